"""Strip chart of latency distributions, one row per measurement."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.statistics import summary
from deploykit.reporting.charts.chart import (
    LINE,
    NAME_WIDTH,
    Chart,
    benchmark_of,
    is_long,
    limits,
    row_axes,
    set_axis,
    vertical_lines,
)
from deploykit.reporting.charts.curves import curve_lines, varied
from deploykit.reporting.charts.style import INK, MUTED, SMALL, amount, distinct, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deploykit.reporting.charts.chart import FigureLike

MAX_ROWS = 40
_ROW = 54.0
"""Height of a row in points."""
_TOP, _END = 0.1, 0.9
"""Start and end of a strip, as shares of its row."""
_BINS = 800  # total of bins and ticks in all strips, to limit the file size
_LATENCY_KEY = "Latency of a call: line p50, dashes p99, ticks slower calls"


def latencies(benchmark_result: BenchmarkResult | Mapping[str, Any]) -> Chart:
    """Return the latency distributions of a benchmark, each with p50, p99 and slow calls.

    Measurements with the same batch and concurrency share an axis. `benchmark_result` is a result
    of `deploykit.benchmark`, or its document. GraphError: it is neither.
    """
    every = benchmark_of(benchmark_result).measurements
    rows = every[:MAX_ROWS]
    groups: dict[tuple[int, int], list[int]] = {}
    for place, entry in enumerate(rows):
        groups.setdefault((entry.samples, entry.settings.concurrency), []).append(place)
    ends = [latency_limits([rows[place] for place in group]) for group in groups.values()]
    pairs = zip(groups.values(), ends, strict=True)
    beyond = any(max(rows[n].latencies_ms) > high for group, (_, high) in pairs for n in group)
    note = _LATENCY_KEY + "; beyond: number of calls slower than the axis shows" * beyond
    if len(rows) < len(every):
        note += f"; the first {len(rows)} of {len(every)} are shown"

    def draw(figure: "FigureLike") -> "Axes":
        names = distinct([row.name for row in rows], SMALL, NAME_WIDTH)
        colours = [series_colour(n) for n in _model_numbers(rows)]
        heights = [len(group) for group in groups.values()]
        several = figure.subplots(len(heights), height_ratios=heights, squeeze=False)[:, 0]
        for axes, group, span in zip(several, groups.values(), ends, strict=True):
            row_axes(axes, [(names[n], *_latency_lines(rows[n], span[1])) for n in group])
            set_axis(axes, "x", span, "ms")
            axes.grid(axis="x")
            for place, n in enumerate(group):
                _draw_latencies(axes, place, rows[n], colours[n], min(60, _BINS // len(rows)))
            results = [(n, summary(rows[place])) for n, place in enumerate(group)]
            lines = [(item.p50, n + _TOP, n + _END) for n, item in results]
            vertical_lines(axes, lines, color=INK, linewidth=1.4)
            lines = [(min(item.p99, span[1]), n + _TOP, n + _END) for n, item in results]
            vertical_lines(axes, lines, color=INK, linewidth=1, linestyle=(0, (3, 2)))
        return several[-1]  # type: ignore[no-any-return]  # element of an array

    return Chart(_ROW * len(rows) + (LINE + 12) * len(groups) + 4, draw, [note])


def latency_limits(alike: Sequence[Measurement]) -> tuple[float, float]:
    """Return the limits of an axis in ms; only single slow calls exceed them."""
    figures = [summary(item) for item in alike]
    low = min(figure.min for figure in figures)
    return limits([low, max(min(figure.max, 2 * figure.p99) for figure in figures)])


def _model_numbers(rows: Sequence[Measurement]) -> list[int]:
    """Return the index of each measurement's line in a curve, for its colour."""
    lines = enumerate(curve_lines(rows, varied(rows)))
    results = {
        id(measurement): number for number, line in lines for measurement in line.measurements
    }
    return [results[id(row)] for row in rows]


def _latency_lines(measurement: Measurement, high: float) -> tuple[str, str]:
    figures = summary(measurement)
    calls = f"{figures.calls} call{'s' * (figures.calls != 1)}"
    beyond = sum(call > high for call in measurement.latencies_ms)
    p50, p99, most = (amount(item, "ms") for item in (figures.p50, figures.p99, figures.max))
    return f"p50 {p50}, p99 {p99}", f"max {most}, {calls}{f', {beyond} beyond' if beyond else ''}"


def _draw_latencies(
    axes: "Axes", row: int, measurement: Measurement, colour: str, most: int
) -> None:
    """Draw a histogram of a row's calls, and ticks for slower ones: at most `most` of each."""
    low, high = axes.get_xlim()
    figures, calls = summary(measurement), np.asarray(measurement.latencies_ms)
    body = max(min(figures.max, 3 * figures.p90 - 2 * figures.p50), figures.min * 1.005)
    bins = int(np.clip(2 * len(calls) ** (1 / 3), 10, most))
    spaced = np.geomspace if is_long(low, high) else np.linspace
    counts, edges = np.histogram(calls, spaced(figures.min, body, bins + 1))
    top, bottom = row + _TOP, row + _END
    axes.stairs(bottom - 0.92 * (bottom - top) * counts / max(1, counts.max()),
                np.clip(edges, low, high), baseline=bottom, fill=True, facecolor=(colour, 0.5),
                edgecolor=colour, linewidth=0.8)  # fmt: skip
    slower = np.sort(calls[calls > body])[::-1]
    slower = np.minimum(slower[:: max(1, -(-len(slower) // most))], high)
    vertical_lines(axes, [(x, bottom - 0.11, bottom) for x in slower], color=colour, linewidth=1)
    axes.hlines(bottom, low, high, color=MUTED, linewidth=0.6)
