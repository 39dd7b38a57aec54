"""Documents as commands write them, made of their pinned keys, with values of one's own choice."""

from collections.abc import Callable
from typing import Any

from tests.documents import pins

Leaf = Callable[[str], Any]
COMMANDS = {
    "benchmark": "benchmark", "input": "benchmark", "tuned": "tune", "quantize": "quantize",
    "load-test": "load-test", "placement": "placement", "engine placement": "placement",
    "optimize": "optimize", "verify": "verify", "check": "check",
    "export": "export",
}  # fmt: skip
_ONLY = {"input": "styles", "benchmark": "measurements", "engine placement": "ops_by_precision",
         "placement": "ops_by_device"}  # fmt: skip
_SAYS = {"benchmark": "benchmark", "input": "input", "tuned": "tuned"}
FIGURES = ("accuracy", "size", "p50", "rate", "cpu")


def sample(kind: str, leaf: Leaf, count: int = 3) -> dict[str, Any]:
    """Return a document with every key that is pinned of its command; outer lists are that long."""
    always, sometimes = pins(COMMANDS[kind])
    others = {each for name, each in _ONLY.items() if name != kind}
    paths = sorted(p for p in always | sometimes if p.split(".")[0].rstrip("[]") not in others)
    document = _filled(paths, leaf, count)
    document |= {"command": COMMANDS[kind], "schema": 1}
    if kind in _SAYS:
        document |= {"kind": _SAYS[kind], "format": 1}
    else:
        document.pop("kind", None)
    return document


def _filled(paths: list[str], leaf: Leaf, count: int) -> dict[str, Any]:
    inner = {path.rpartition(".")[0] for path in paths if "." in path}
    found: dict[str, Any] = {}
    for path in paths:
        if path not in inner and not any(each.startswith(f"{path}[") for each in inner):
            _put(found, path.split("."), leaf, path, count)
    return found


def _put(found: Any, steps: list[str], leaf: Leaf, path: str, count: int) -> None:
    here, wide = [found], False
    for place, step in enumerate(steps):
        name, last = step.rstrip("[]"), place == len(steps) - 1
        depth = step.count("[]")
        below: list[Any] = []
        width = min(count, 3) if wide else count  # of what lies in a long list, a few
        wide = wide or name == "*" or depth > 0
        for each in here:
            for key in [f"{name}{n}" for n in range(width)] if name == "*" else [name]:
                if last and not depth:
                    each[key] = leaf(path)
                elif not depth:
                    below.append(each.setdefault(key, {}))
                else:
                    below += each.setdefault(key, [{} for _ in range(width)])
        here = below


def accuracy(leaf: Leaf, count: int = 3) -> dict[str, Any]:
    """Return a document of `deploykit accuracy`."""
    change = {key: leaf(f"change.{key}") for key in ("value", "low", "high")}
    answer = {"class": leaf("class"), "score": leaf("score")}
    return {
        "kind": "accuracy", "format": 1, "metric": "top1", "samples": leaf("samples"),
        "source": leaf("source"), "change": change, "agreement": change,
        "models": [{"name": leaf("name"), "value": leaf("value"), "interval": [0.8, 0.9]}
                   for _ in range(count)],
        "by_group": [{"group": leaf("group"), "samples": leaf("samples"),
                      "sqnr_db": leaf("sqnr_db"), "sqnr_low_db": leaf("sqnr_low_db"),
                      "agreement": 0.9, "agreement_interval": [0.8, 0.95]} for _ in range(count)],
        "by_class": [{"class": leaf("class"), "value": leaf("value")} for _ in range(count)],
        "worst": [{"sample": n, "label": leaf("label"), "first": answer, "last": answer,
                   "disagreement": leaf("disagreement"), "picture": None} for n in range(count)],
    }  # fmt: skip


def figure(**values: Any) -> dict[str, Any]:
    """Return a figure of a shipped model."""
    even = {"value": 1.0, "low": 0.9, "high": 1.1}
    return {"title": "latency (p50)", "unit": "ms", "better": "lower", "before": dict(even),
            "after": dict(even), "ratio": dict(even), "verdict": "inconclusive: busy",
            **values}  # fmt: skip


def ship(leaf: Leaf, count: int = 3) -> dict[str, Any]:
    """Return the report.json of a shipped model, all of whose stages were done."""
    documents = {
        "check": sample("check", leaf, count),
        "optimize": sample("optimize", leaf, count),
        "calibrate": {"samples": leaf("samples"), "tensors": leaf("tensors"), "method": "minmax"},
        "quantize": sample("quantize", leaf, count),
        "verify": sample("verify", leaf, count),
        "accuracy": accuracy(leaf, count),
        "placement": sample("placement", leaf, count),
        "tune": sample("tuned", leaf, count),
        "benchmark": {"models": sample("benchmark", leaf, count),
                      "input": sample("input", leaf, count)},
        "export": sample("export", leaf, count),
        "serve": {key: leaf(key) for key in ("address", "request", "answer", "agrees", "seconds")},
    }  # fmt: skip
    return {
        "format": 1, "kind": "ship", "name": leaf("name"), "started": leaf("started"),
        "machine": documents["tune"]["machine"],
        "model": {key: leaf(key) for key in ("source", "sha256", "bytes", "inputs", "outputs")},
        "options": {"calibration": leaf("options"), "max_drop": 0.01},
        "result": "int8", "engine": "tensorflow", "verdict": leaf("verdict"),
        "figures": {name: figure() for name in FIGURES},
        "measured": {"batch": leaf("batch"), "threads": [leaf("threads"), leaf("threads")],
                     "concurrency": leaf("concurrency")},
        "stages": [{"stage": name, "outcome": "done", "why": "", "seconds": 1.5, "kept": False,
                    "document": document} for name, document in documents.items()],
        "commands": [{"what": leaf("what"), "command": leaf("command")} for _ in range(count)],
    }  # fmt: skip


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    **{kind: lambda leaf, count=3, kind=kind: sample(kind, leaf, count) for kind in COMMANDS},
    "accuracy": accuracy,
    "ship": ship,
}
