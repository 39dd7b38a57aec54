"""Documents of all that is drawn, by a seed: short and long names, tiny and vast figures."""

from typing import Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.run_config import RunConfig
from tests.deploykit.benchmarking.made_up_results import measurement

LETTERS = [*list("abcdefghijklmnopqrstuvwxyzWMil0123456789/_-.$ "), "模", "é", "\x07"]


def a_name(rng: np.random.Generator, most: int = 200) -> str:
    """Return a name of some letters, mostly short."""
    return "".join(rng.choice(LETTERS, int(rng.integers(1, 4 ** int(rng.integers(1, 5)) + 1))))[
        :most
    ]


def an_amount(rng: np.random.Generator, low: float = 1e-3, high: float = 1e5) -> float:
    """Return a figure from anywhere in between, or a bare end of it."""
    found = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    return [found, found, found, low, high][rng.integers(5)]


def some_calls(rng: np.random.Generator, p50: float) -> tuple[float, ...]:
    """Return the latencies of one call, of calls all alike, or scattered and with slow ones."""
    kind, count = rng.integers(4), int(rng.choice([1, 2, 30, 3000]))
    scatter = float(rng.choice([1e-6, 0.01, 0.3, 3.0]))
    calls = p50 * np.exp(scatter * rng.standard_normal(count)) if kind else np.full(count, p50)
    slow = rng.random(count) < 0.02
    return tuple(float(each) for each in np.where(slow, calls * an_amount(rng, 1, 1e4), calls))


def a_measurement(rng: np.random.Generator, near: float | None) -> Measurement:
    """Return a measurement; `near` is where its latency lies, None: anywhere."""
    settings = RunConfig(
        batch=int(rng.choice([1, 1, 8, 512])), concurrency=int(rng.choice([1, 1, 4])),
        onednn=[None, True, False][rng.integers(3)],
        env={"KMP_AFFINITY": "granularity=fine,verbose,compact,1,0"} if rng.random() < 0.2 else {},
    )  # fmt: skip
    p50 = an_amount(rng) if near is None else near * float(rng.uniform(0.8, 1.2))
    rounds = tuple(some_calls(rng, p50) for _ in range(int(rng.integers(1, 4))))
    name = a_name(rng)
    return measurement(
        name, settings=settings, model=name if rng.random() < 0.5 else "models/model.pb",
        rounds_ms=rounds, rounds_seconds=tuple(sum(each) / 1e3 for each in rounds),
    )  # fmt: skip


def measurements(rng: np.random.Generator) -> list[Measurement]:
    """Return 1 to 45 measurements, mostly few, near each other or anywhere."""
    near = an_amount(rng) if rng.random() < 0.5 else None
    return [a_measurement(rng, near) for _ in range(int(rng.choice([1, 2, 2, 3, 3, 5, 8, 13, 45])))]


def a_profile(rng: np.random.Generator) -> dict[str, Any]:
    """Return the document of a profile, as far as it is drawn."""
    count = int(rng.choice([1, 5, 80, 700]))
    return {"ops": [{"op": a_name(rng, 60), "ms": an_amount(rng)} for _ in range(20)],
            "nodes": [{"name": a_name(rng), "op": a_name(rng, 40), "ms": an_amount(rng)}
                      for _ in range(count)]}  # fmt: skip


def a_load_test(rng: np.random.Generator) -> dict[str, Any]:
    """Return the document of a load test, as far as it is drawn."""
    steps = [(int(n), 0.0) for n in rng.integers(1, 5000, int(rng.choice([1, 3, 12])))]
    steps += [(0, an_amount(rng, 0.1, 1e6)) for _ in range(int(rng.choice([0, 1, 7])))]
    loads = []
    for callers, rate in steps:
        p50 = an_amount(rng)
        latency = {} if rng.random() < 0.1 else {"p50": p50, "p99": p50 * an_amount(rng, 1, 100)}
        loads.append({"callers": callers, "rate": rate, "latency_ms": latency,
                      "throughput": an_amount(rng, 1e-2, 1e6),
                      "generator_limited": bool(rng.random() < 0.2)})  # fmt: skip
    return {"address": a_name(rng), "model": a_name(rng), "loads": loads,
            "latency_limit_ms": an_amount(rng), "highest_rate": an_amount(rng)}  # fmt: skip


def a_tuned(rng: np.random.Generator) -> dict[str, Any]:
    """Return the document of a search for settings, as far as it is drawn."""

    def figures() -> dict[str, Any]:
        return {"p50_ms": an_amount(rng), "p99_ms": an_amount(rng),
                "items_per_second": an_amount(rng),
                "times_faster": a_ratio(rng), "times_the_items": a_ratio(rng)}  # fmt: skip

    failed = {"failure": "it has no room", "settings": {}}
    many = [figures() for _ in range(int(rng.choice([0, 3, 90])))]
    return {"kind": "tuned", "default": figures(), "latency": figures(),
            "throughput": None if rng.random() < 0.3 else figures(),
            "trials": [failed, *many]}  # fmt: skip


def a_quantized(rng: np.random.Generator) -> dict[str, Any]:
    """Return the document of a quantized model, as far as it is drawn."""
    kernels = (
        ("eigen_us", "onednn_us", "int8_us") if rng.random() < 0.5 else ("float_us", "int8_us")
    )
    speed = a_ratio(rng)
    return {
        "speed": {**speed, "times_as_fast": speed["value"], "against": a_name(rng),
                  "cpu_ratio": None},
        "layers": [
            {"layer": a_name(rng), "op": a_name(rng, 30),
             "computes_in": str(rng.choice(["int8", "float"])),
             "sqnr_db": None if rng.random() < 0.1 else float(rng.uniform(-5, 200)),
             **{kernel: an_amount(rng) for kernel in kernels}}
            for _ in range(int(rng.choice([1, 2, 30, 500])))
        ]
    }  # fmt: skip


def a_ratio(rng: np.random.Generator) -> dict[str, float | None]:
    """Return a ratio, with an interval or without."""
    value, reach = an_amount(rng, 1e-3, 1e3), an_amount(rng, 1, 1e3)
    if rng.random() < 0.2:
        return {"value": value, "low": None, "high": None}
    return {"value": value, "low": value / reach, "high": value * reach}


def a_shipment(rng: np.random.Generator) -> dict[str, Any]:
    """Return the figures of a shipped model."""
    count = int(rng.choice([1, 5, 50]))
    titles = [a_name(rng) for _ in range(count)]
    return {"kind": "ship", "figures": {
        str(n): {"title": title, "ratio": a_ratio(rng)} for n, title in enumerate(titles)
    }}  # fmt: skip


def an_accuracy(rng: np.random.Generator) -> dict[str, Any]:
    """Return an accuracy by class, of one to four models."""
    models, most = int(rng.integers(1, 5)), float(rng.choice([1.0, 1e6]))
    return {
        "models": [{"name": a_name(rng)} for _ in range(models)],
        "by_class": [
            {"label": a_name(rng), "samples": int(rng.integers(1, 1000)),
             "models": [{"value": value, "low": 0.9 * value, "high": min(most, 1.1 * value)}
                        for value in rng.uniform(0, most, models)]}
            for _ in range(int(rng.choice([1, 10, 60])))
        ],
    }  # fmt: skip
