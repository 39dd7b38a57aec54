"""Two benchmarks side by side: a table, the verdicts, and measurements of one side only."""

from collections.abc import Iterator
from math import isfinite

from deploykit.benchmarking.comparison.comparing import Speedups
from deploykit.benchmarking.statistics import Ratio, summary
from deploykit.text.tables import Table, table
from deploykit.text.templates import filled, for_each


def lines(found: Speedups) -> Iterator[str | Table]:
    """Yield a comparison for people."""
    if found.is_first:
        yield f"{found.a}: baseline written, nothing compared"
        return
    yield table(
        found.pairs,
        {
            "measurement": "{name}",
            "p50 a": lambda pair: f"{summary(pair.a).p50:.4g} ms",
            "p50 b": lambda pair: f"{summary(pair.b).p50:.4g} ms",
            "CPU a": "{a.cpu_ms:.4g} ms",
            "CPU b": "{b.cpu_ms:.4g} ms",
            "speed": "{ratio.value:.3f}x",
            f"{100 * found.confidence:g} % CI": lambda pair: _interval(pair.ratio),
        },
    )
    yield from for_each(found.pairs, "{name}: {judgement.verdict}")
    yield from for_each(found.only_a, "only in a: {}")
    yield from for_each(found.only_b, "only in b: {}")
    yield from for_each(found.warnings, "warning: {}")


def _interval(ratio: Ratio) -> str | None:
    return filled("{low:.3f}-{high:.3f}", ratio) if isfinite(ratio.high) else None
