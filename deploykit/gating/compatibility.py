"""Checks that need no run: compatible signatures, and the size of the model files."""

import math
from collections.abc import Iterator, Sequence

from deploykit.gating.verdict import COMPATIBLE, FAIL, NO_LIMIT, PASS, UNKNOWN, Check
from deploykit.importers.open_model import OpenedModel
from deploykit.inspection.summary import shape_text, tensor_summary
from deploykit.transforms.shapes.static_shapes import Shapes

_SHOWN = 3


def signature_check(baseline: OpenedModel, candidate: OpenedModel, is_limited: bool) -> Check:
    """Return whether the candidate accepts all requests of the baseline and returns its outputs.

    Names, dtypes and shapes are compared. The candidate may accept more shapes and return more
    outputs.
    """
    problems = [*incompatibilities(baseline, candidate)]
    shown = "; ".join(problems[:_SHOWN])
    if len(problems) > _SHOWN:
        shown += f"; and {len(problems) - _SHOWN} more"
    verdict = (FAIL if problems else PASS) if is_limited else NO_LIMIT
    return Check("signatures", None, None, "", math.nan, UNKNOWN, None, verdict,
                 "names, dtypes, shapes", shown or COMPATIBLE)  # fmt: skip


def incompatibilities(baseline: OpenedModel, candidate: OpenedModel) -> Iterator[str]:
    """Yield why requests to the baseline would fail, or return other outputs, at the candidate.

    Unknown types and shapes are compatible.
    """
    graphs = baseline.graph, candidate.graph
    shapes = Shapes(graphs[0]), Shapes(graphs[1])
    for name, signature in baseline.signatures.items():
        other = candidate.signatures.get(name)
        if other is None:
            yield f"signature '{name}' is missing"
            continue
        for role in ("input", "output"):
            ours, theirs = (getattr(item, f"{role}s") for item in (signature, other))
            yield from (f"{role} '{alias}' is missing" for alias in ours if alias not in theirs)
            if role == "input":
                yield from (f"input '{alias}' is new, so existing requests lack it"
                            for alias in theirs if alias not in ours)  # fmt: skip
            for alias in ours:
                if alias not in theirs:
                    continue
                pair = ours[alias], theirs[alias]
                a, b = (tensor_summary(*item)["type"] for item in zip(graphs, pair, strict=True))
                if a is not None and b is not None and a != b:
                    yield f"{role} '{alias}' is {b} instead of {a}"
                first, second = (item.shape(n) for item, n in zip(shapes, pair, strict=True))
                if first is None or second is None or _fits(first, second, role == "input"):
                    continue
                texts = [shape_text([*shape]) for shape in (second, first)]
                yield f"{role} '{alias}' has shape {' instead of '.join(texts)}"


def _fits(ours: Sequence[int], theirs: Sequence[int], is_input: bool) -> bool:
    """Return whether the candidate's shape of a tensor is compatible with the baseline's."""
    return len(ours) == len(theirs) and all(
        b < 0 or a == b or (a < 0 and not is_input) for a, b in zip(ours, theirs, strict=True)
    )


def size_check(baseline: OpenedModel, candidate: OpenedModel, limit: float | None) -> Check:
    """Compare the sizes of the model files; of models in memory, those of the graphs."""
    first, second = (
        sum(map(len, model.graph.serialized())) if model.bytes is None else model.bytes
        for model in (baseline, candidate)
    )
    change = second / first - 1
    return Check.of("size", (first, second), "bytes", change, (change, change), limit, "exact size")
