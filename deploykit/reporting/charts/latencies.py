"""How latencies are spread: a strip for each measurement, those of one load on one axis."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.statistics import summary
from deploykit.reporting.charts.figures import amount, benchmark_of, chart
from deploykit.reporting.charts.lettering import all_wrapped, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LINE, Place, Sheet, Spot
from deploykit.reporting.charts.style import INK, MUTED, SMALL, TEXT, series_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 40
KEY = "Latency of a call: line p50, dashes p99, ticks slower calls"
_HIGH = 26.0  # points, of a strip
_MOST_TICKS = 60
_BINS = 900  # of all strips together, so that the picture stays small


def latencies(found: "BenchmarkResult | Mapping[str, Any]") -> "Figure":
    """Return the latencies of a benchmark's measurements, each with p50, p99 and the slowest call.

    `found` is a result of `deploykit.benchmark`, or its document. GraphError: it is neither.
    """
    measurements = benchmark_of(found).measurements
    return chart(lambda sheet, place: draw_latencies(sheet, place, measurements))


def load(measurement: Measurement) -> tuple[int, int]:
    """Return samples and calls at once; with as many, latencies compare."""
    return measurement.samples, measurement.settings.concurrency


def latency_scale(alike: Sequence[Measurement]) -> Scale:
    """Return the axis of measurements that compare; beyond it are single slow calls only."""
    figures = [summary(each) for each in alike]
    low = min(each.min for each in figures)
    return Scale.over([low, max(min(each.max, 2 * each.p99) for each in figures)], "ms")


def draw_latencies(sheet: Sheet, place: Place, measurements: Sequence[Measurement]) -> float:
    """Draw a strip for each, those of a load together, and return where they end."""
    rows, top, beyond = measurements[:MOST_ROWS], place.top, False
    names = all_wrapped([each.name for each in rows], TEXT, place.width)
    colours = [series_colour(n) for n in model_numbers(rows)]
    groups: dict[tuple[int, int], list[int]] = {}
    for number, each in enumerate(rows):
        groups.setdefault(load(each), []).append(number)
    for group in groups.values():
        scale = latency_scale([rows[number] for number in group])
        ticks = scale.ticks_across(place.width, 0, 0)
        spots = [place.left + place.width * each.share for each in ticks]
        for number in group:
            top = sheet.write_lines(place.below(top), names[number])
            beyond |= max(rows[number].latencies_ms) > scale.high
            told = wrapped(_figures(rows[number], scale), SMALL, place.width, 2)
            top = sheet.write_lines(place.below(top), told, size=SMALL, colour=MUTED) + 3
            sheet.grid([((spot, top), (spot, top + _HIGH)) for spot in spots])
            bins = min(60, _BINS // len(rows))
            _draw_strip(sheet, place.below(top), rows[number], (scale, colours[number], bins))
            top += _HIGH + 7
        for spot, tick in zip(spots, ticks, strict=True):
            sheet.write(spot, top - 3 + SMALL, tick.label, size=SMALL, align="center")
        top += LINE * SMALL + 8
    told = [KEY]
    if beyond:
        told.append("beyond: so many calls took longer than the axis goes")
    if len(rows) < len(measurements):
        told.append(f"the first {len(rows)} of {len(measurements)} are shown")
    lines = wrapped("; ".join(told), SMALL, place.width, 5)
    return sheet.write_lines(place.below(top - 4), lines, size=SMALL, colour=MUTED)


def model_numbers(rows: Sequence[Measurement]) -> list[int]:
    """Return the number of each one's model and other settings, as a curve would colour them."""
    from deploykit.reporting.charts.throughput import lines, varied

    found: dict[int, int] = {}
    for number, line in enumerate(lines(rows, varied(rows))):
        found |= {id(each): number for each in line.measurements}
    return [found[id(each)] for each in rows]


def _figures(measurement: Measurement, scale: Scale) -> str:
    figures = summary(measurement)
    calls = f"{figures.calls} call{'s' * (figures.calls != 1)}"
    beyond = sum(call > scale.high for call in measurement.latencies_ms)
    told = [f"{name} {amount(getattr(figures, name), 'ms')}" for name in ("p50", "p99", "max")]
    return ", ".join([*told, calls, *([f"{beyond} beyond"] if beyond else [])])


def _draw_strip(
    sheet: Sheet, place: Place, measurement: Measurement, how: tuple[Scale, str, int]
) -> None:
    """Draw how often each latency is; `how` are the axis, the colour and the bars at most."""
    scale, colour, most = how
    figures, calls = summary(measurement), np.asarray(measurement.latencies_ms)
    body = max(min(figures.max, 3 * figures.p90 - 2 * figures.p50), figures.min * 1.005)
    bins = int(np.clip(2 * len(calls) ** (1 / 3), 10, most))
    spaced = np.geomspace if scale.is_long else np.linspace
    counts, edges = np.histogram(calls, spaced(figures.min, body, bins + 1))
    bottom, width = place.top + _HIGH, place.width

    def across(latency: float) -> float:
        return place.left + width * scale.at(latency)

    spots: list[Spot] = [(across(edges[0]), bottom)]
    for count, start, end in zip(counts, edges, edges[1:], strict=False):
        level = bottom - 0.92 * _HIGH * float(count) / max(1, counts.max())
        spots += [(across(start), level), (across(end), level)]
    spots.append((across(edges[-1]), bottom))
    sheet.area([spots], colour, edge=0.8)
    slower = np.sort(calls[calls > body])[::-1]
    slower = slower[:: max(1, -(-len(slower) // _MOST_TICKS))]
    places = [across(each) for each in slower]
    sheet.lines([((x, bottom - 7), (x, bottom)) for x in places], colour)
    sheet.line(((place.left, bottom), (place.right, bottom)), MUTED, 0.6)
    p50, p99 = across(figures.p50), across(figures.p99)
    sheet.line(((p50, place.top), (p50, bottom)), INK, 1.4)
    sheet.line(((p99, place.top), (p99, bottom)), INK, 1.0, dashed=True)
