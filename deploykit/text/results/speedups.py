"""Two benchmarks side by side: a table, then what has no partner."""

from collections.abc import Iterator
from math import isfinite
from typing import TYPE_CHECKING

from deploykit.benchmarking.comparison.comparing import Speedups
from deploykit.benchmarking.statistics import summary
from deploykit.text.tables import new_table

if TYPE_CHECKING:
    from deploykit.text.tables import Table


def lines(found: Speedups) -> "Iterator[str | Table]":
    """Yield a comparison for people."""
    if found.is_first:
        yield f"{found.a}: baseline written, nothing compared"
        return
    interval = f"{100 * found.confidence:g} % interval"
    table = new_table("measurement", "p50 a", "p50 b", "CPU a", "CPU b", "speed", interval)
    for pair in found.pairs:
        value = pair.ratio
        between = f"{value.low:.3f} to {value.high:.3f}" if isfinite(value.high) else "not known"
        cpu = ("?" if each.cpu_ms is None else f"{each.cpu_ms:.4g} ms" for each in (pair.a, pair.b))
        table.add_row(
            pair.name,
            *(f"{summary(each).p50:.4g} ms" for each in (pair.a, pair.b)),
            *cpu,
            f"{value.value:.3f}",
            between,
        )
    yield table
    yield from (f"{pair.name}: {pair.judgement.verdict}" for pair in found.pairs)
    for side, names in (("a", found.only_a), ("b", found.only_b)):
        yield from (f"only in {side}: {name}" for name in names)
