"""Loads on a server, in tables and lines for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.text.tables import new_table

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_SHOWN = ("p50", "p90", "p99", "p99.9", "max")


def load_name(callers: int, rate: float) -> str:
    """Return what a load was, in words."""
    return f"{rate:.4g} calls/s" if rate else f"{callers} caller{'s' if callers > 1 else ''}"


def failures(statuses: Mapping[str, int]) -> str:
    """Return how many calls ended with which status but OK."""
    return ", ".join(f"{count} {name}" for name, count in sorted(statuses.items()) if name != "OK")


def load_lines(found: Mapping[str, Any]) -> "Iterator[str | Table]":
    """Yield the document of a load test as a table, and what a reader should know about it."""
    loads = found["loads"]
    yield _table(loads)
    for each in loads:
        if each["failed"]:
            yield f"failed at {_name(each)}: {failures(each['statuses'])}"
    limited = ", ".join(_name(each) for each in loads if each["generator_limited"])
    if limited:
        yield (
            f"the generator was the limit at {limited}, not the server; give it more processes "
            "(--processes) or another machine"
        )
    if (limit := found["latency_limit_ms"]) is not None:
        highest = f"{found['highest_rate']:.4g} calls/s"
        yield f"highest rate with 99 % of calls within {limit:g} ms: {highest}"


def _table(loads: Sequence[Mapping[str, Any]]) -> "Table":
    found = new_table("load", "calls/s", *(f"{name} ms" for name in _SHOWN), "failed")
    for each in loads:
        latency = each["latency_ms"]
        figures = [f"{latency[name]:.2f}" if latency else "-" for name in _SHOWN]
        found.add_row(_name(each), f"{each['throughput']:.1f}", *figures, str(each["failed"]))
    return found


def _name(load: Mapping[str, Any]) -> str:
    return load_name(load["callers"], load["rate"])
