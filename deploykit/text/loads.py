"""Load tests of a server."""

from collections.abc import Iterator, Mapping
from typing import Any

from deploykit.text.tables import Table, table
from deploykit.text.templates import said


def load_name(callers: int, rate: float) -> str:
    """Return what a load was: `500 requests/s`, or `2 clients`."""
    return f"{rate:.4g} requests/s" if rate else f"{callers} client{'s' if callers > 1 else ''}"


def failures(statuses: Mapping[str, int]) -> str:
    """Return how many requests ended with each status except OK."""
    return ", ".join(f"{count} {name}" for name, count in sorted(statuses.items()) if name != "OK")


def lines(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a load test as a table, and its limits."""
    loads, shown = found["loads"], ("p50", "p90", "p99", "p99.9", "max")
    yield table(
        loads,
        {
            "load": _name,
            "req/s": "{throughput:.1f}",
            **{f"{name} ms": f"{{latency_ms.{name}:.2f}}" for name in shown},
            "failed": "{failed}",
        },
    )
    for load in loads:
        if load["failed"]:
            yield f"failed at {_name(load)}: {failures(load['statuses'])}"
    if limited := ", ".join(_name(load) for load in loads if load["generator_limited"]):
        yield (
            f"the load generator was the limit at {limited}, not the server: give it more "
            "processes (--processes) or another machine"
        )
    yield from said(
        found,
        "highest rate with 99 % of requests within {latency_limit_ms:g} ms: {highest_rate:.4g} "
        "requests/s",
    )


def _name(load: Mapping[str, Any]) -> str:
    return load_name(load["callers"], load["rate"])
