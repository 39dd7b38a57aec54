"""Documents of load tests of a server of which all is known."""

from typing import Any

import numpy as np

from tests.deploykit.planning.servers import traced

SERVICE = 0.01


def latency(milliseconds) -> dict[str, float]:
    at = dict(zip(("p50", "p90", "p99", "p99.9"), np.percentile(milliseconds, (50, 90, 99, 99.9)),
                  strict=True))  # fmt: skip
    return {**at, "mean": float(np.mean(milliseconds)), "max": float(np.max(milliseconds))}


def services(count: int):
    return np.random.default_rng(1).gamma(100, SERVICE / 100, count)


def load(callers: int = 0, rate: float = 0.0, slower: float = 1.0, calls: int = 3000):
    """Return what a load test says of a server with one place."""
    own = slower * services(calls)
    if rate:
        due = np.cumsum(np.random.default_rng(5).exponential(1 / rate, calls))
        taken = 1e3 * traced(due, own).latencies
    else:
        taken = 1e3 * own * callers
    return {
        "callers": callers, "rate": rate, "statuses": {"OK": calls}, "failed": 0,
        "throughput": rate or 1 / SERVICE, "latency_ms": latency(taken),
        "generator_limited": False,
    }  # fmt: skip


def document(*loads: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the document of a load test."""
    return {"command": "load-test", "address": "there:8500", "model": "net", "loads": list(loads),
            **more}  # fmt: skip
