"""The calls before the steady state: a strip for each measurement, on one axis of time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.statistics import summary
from deploykit.reporting.charts.figures import amount, benchmark_of, chart
from deploykit.reporting.charts.latencies import MOST_ROWS, model_numbers
from deploykit.reporting.charts.lettering import all_wrapped, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LINE, Place, Sheet
from deploykit.reporting.charts.style import INK, MUTED, SMALL, TEXT, series_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from deploykit.transforms.core.tensors import Array

KEY = (
    "Latency of a call over the time since the first run, on a logarithmic axis; dashes: p50 later"
)
_HIGH, _INDENT = 30.0, 6.0  # points: of a strip, and of its axis
_MOST_SPOTS = 120


def warm_ups(found: "BenchmarkResult | Mapping[str, Any]") -> "Figure":
    """Return the latencies of a benchmark's measurements before their steady state, over time.

    `found` is a result of `deploykit.benchmark`, or its document. GraphError: it is neither.
    """
    measurements = benchmark_of(found).measurements
    return chart(lambda sheet, place: draw_warm_ups(sheet, place, measurements))


def draw_warm_ups(sheet: Sheet, place: Place, measurements: Sequence[Measurement]) -> float:
    """Draw a strip for each, and return where they end."""
    rows, top = measurements[:MOST_ROWS], place.top
    names = all_wrapped([each.name for each in rows], TEXT, place.width)
    scale = Scale.over([0.0, *(_seconds(each) for each in rows)], "seconds", zero=True)
    ticks = scale.ticks_across(place.width - _INDENT, _INDENT, 0)
    spots = [place.left + _INDENT + (place.width - _INDENT) * each.share for each in ticks]
    for each, lines, number in zip(rows, names, model_numbers(rows), strict=True):
        top = sheet.write_lines(place.below(top), lines)
        told = wrapped(_figures(each), SMALL, place.width, 2)
        top = sheet.write_lines(place.below(top), told, size=SMALL, colour=MUTED) + 3
        sheet.grid([((spot, top), (spot, top + _HIGH)) for spot in spots])
        _draw_strip(sheet, place.below(top), each, (scale, series_colour(number)))
        top += _HIGH + 7
    for spot, tick in zip(spots, ticks, strict=True):
        sheet.write(spot, top - 3 + SMALL, tick.label, size=SMALL, align="center")
    told = [KEY]
    if len(rows) < len(measurements):
        told.append(f"the first {len(rows)} of {len(measurements)} are shown")
    lines = wrapped("; ".join(told), SMALL, place.width, 5)
    return sheet.write_lines(place.below(top + LINE * SMALL), lines, size=SMALL, colour=MUTED)


def _seconds(measurement: Measurement) -> float:
    """Return how long the warm-up took behind the first run."""
    return sum(measurement.warm_up_ms) / 1e3 / measurement.settings.concurrency


def _figures(measurement: Measurement) -> str:
    calls = len(measurement.warm_up_ms)
    then = f"then {calls} call{'s' * (calls != 1)} in {amount(_seconds(measurement), 'seconds')}"
    first = f"First run {amount(measurement.first_run_ms, 'ms')}"
    later = f"p50 later {amount(summary(measurement).p50, 'ms')}"
    return ", ".join([first, *([then] if calls else []), later])


def _draw_strip(
    sheet: Sheet, place: Place, measurement: Measurement, how: tuple[Scale, str]
) -> None:
    """Draw the calls as a line, behind the first run; `how` are the axis and the colour."""
    scale, colour = how
    p50, first = summary(measurement).p50, measurement.first_run_ms
    calls = np.asarray(measurement.warm_up_ms)
    times = np.cumsum(calls) / 1e3 / measurement.settings.concurrency
    levels = [each for each in (p50, first, *calls) if each > 0]
    low, high = min(levels), max(levels)
    up = Scale(low / 1.1, high * 1.1, True, "ms")
    bottom = place.top + _HIGH

    def spot(seconds: float, latency: float) -> tuple[float, float]:
        across = (place.width - _INDENT) * scale.at(seconds)
        return place.left + _INDENT + across, bottom - _HIGH * up.at(latency)

    later = spot(0, p50)[1]
    sheet.line(((place.left, bottom), (place.right, bottom)), MUTED, 0.6)
    sheet.line(((place.left, later), (place.right, later)), INK, 0.8, dashed=True)
    kept = _outline(calls)
    drawn = [spot(float(times[each]), float(calls[each])) for each in kept]
    if len(drawn) > 1:
        sheet.line(drawn, colour, 1.2)
    sheet.marks(drawn[:1] if len(drawn) == 1 else [], colour, 4)
    if first > 0:
        sheet.marks([spot(0, first)], colour, 6, "diamond")


def _outline(values: "Array") -> list[int]:
    """Return few enough places: of each stretch the least and the most, as an oscilloscope does."""
    if len(values) <= _MOST_SPOTS:
        return list(range(len(values)))
    parts = np.array_split(np.arange(len(values)), _MOST_SPOTS // 2)
    ends = ((p[values[p].argmin()], p[values[p].argmax()]) for p in parts)
    return sorted({int(each) for pair in ends for each in pair})
