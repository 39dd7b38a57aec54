"""Load curves: throughput over latency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.statistics import summary
from deploykit.rendering.serving import load_name
from deploykit.reporting.charts.chart import Chart, add_label, benchmark_of, limits, set_axis
from deploykit.reporting.charts.style import MARKERS, PAPER, series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deploykit.reporting.charts.chart import FigureLike

_MAX_LINES, _MAX_WHISKERS = 12, 60
_BODY = 300.0
"""Height of the axes with their tick labels, in points."""
_LOADS = {"closed": "closed loop: clients wait for responses", "open": "open loop: fixed rate"}
_LATENCY = "Latency: p50, whisker to p99"


@dataclass(frozen=True)
class CurveLine:
    """Measurements that differ only in the parameter along a curve."""

    name: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class CurvePoint:
    """A point of a curve: latencies in milliseconds, and throughput per second."""

    label: str
    p50: float
    p99: float
    rate: float


Curve = tuple[str, Sequence[CurvePoint]]
"""A name, and its points in order."""


def varied(measurements: Sequence[Measurement]) -> str:
    """Return the parameter along a curve: `batch`, `calls in flight`, or empty."""
    if len({measurement.samples for measurement in measurements}) > 1:
        return "batch"
    return "calls in flight" if len({e.settings.concurrency for e in measurements}) > 1 else ""


def curve_lines(measurements: Sequence[Measurement], along: str) -> list[CurveLine]:
    """Return the lines of a curve: one for each model and for its other settings."""
    groups: dict[tuple[str, RunConfig], list[Measurement]] = {}
    for measurement in measurements:
        rest = replace(measurement.settings, batch=None)
        if along == "calls in flight":
            rest = replace(rest, concurrency=1)
        groups.setdefault((measurement.model, rest), []).append(measurement)
    models = {model for model, _ in groups}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({rest for _, rest in groups}) > 1
    return [
        CurveLine(
            ", ".join([short[model]] * (len(models) > 1) + [str(rest)] * several) or short[model],
            tuple(sorted(group, key=lambda item: (item.samples, item.settings.concurrency))),
        )
        for (model, rest), group in groups.items()
    ]


def throughput(benchmark_result: BenchmarkResult | Mapping[str, Any]) -> Chart:
    """Return throughput over latency, with a line for each model and its other settings.

    `benchmark_result` is a result of `deploykit.benchmark`, or its document. GraphError: it is
    neither.
    """
    measurements = benchmark_of(benchmark_result).measurements
    along = varied(measurements)
    curves: list[Curve] = []
    for line in curve_lines(measurements, along):
        points = []
        for measurement in line.measurements:
            figures = summary(measurement)
            count = measurement.samples if along == "batch" else measurement.settings.concurrency
            label = str(count) if along else ""
            points.append(CurvePoint(label, figures.p50, figures.p99, figures.items_per_second))
        curves.append((line.name, points))
    notes = [f"{_LATENCY}; numbers: {along}" if along else _LATENCY]
    return _curve_chart(curves, "Items per second", notes)


def loads(results: Mapping[str, Any]) -> Chart | None:
    """Return throughput over latency of a load test's document; None without responses."""
    curves: dict[str, list[CurvePoint]] = {}
    for item in sorted(results["loads"], key=lambda entry: (entry["callers"], entry["rate"])):
        if latency := item["latency_ms"]:
            name = load_name(item["callers"], item["rate"])
            point = CurvePoint(name, latency["p50"], latency["p99"], item["throughput"])
            curves.setdefault(_LOADS["open" if item["rate"] else "closed"], []).append(point)
    if not curves:
        return None
    notes = [_LATENCY]
    if unanswered := sum(not result["latency_ms"] for result in results["loads"]):
        notes.append(f"{unanswered} of {len(results['loads'])} loads had no response")
    if limited := sum(result["generator_limited"] for result in results["loads"]):
        notes.append(f"at {limited} of the loads the generator was the limit, not the server")
    if (limit := results.get("latency_limit_ms")) is not None:
        rate = f"{results['highest_rate']:.4g} requests/s"
        notes.append(f"99 % of requests are within {limit:g} ms up to {rate}")
    return _curve_chart(list(curves.items()), "Responses per second", notes)


def _curve_chart(curves: Sequence[Curve], title: str, notes: list[str]) -> Chart:
    """Return a chart of throughput over latency, with a legend if a curve has a name."""
    shown = curves[:_MAX_LINES]
    legend = [name for name, _ in shown if len(curves) > 1 or name]
    if len(shown) < len(curves):
        notes = [*notes, f"The first {len(shown)} of {len(curves)} lines are shown"]
    flat = [point for _, points in shown for point in points]
    times = [point.p50 for point in flat] + [max(point.p50, point.p99) for point in flat]

    def draw(figure: "FigureLike") -> "Axes":
        axes = figure.add_subplot()
        set_axis(axes, "x", limits(times, zero=True), "ms")
        set_axis(axes, "y", limits([point.rate for point in flat], zero=True), "count")
        axes.grid()
        axes.set_title(title)
        for number, (_, points) in reversed(list(enumerate(shown))):
            _draw_curve(axes, points, number)
        for _, points in shown:  # the ends matter most, so they have priority
            for point in [*points[-1:], *points[:1], *points[1:-1]][: len(points)]:
                if point.label:
                    add_label(axes, point.label, point.p50, point.rate)
        return axes

    return Chart(_BODY, draw, notes, legend)


def _draw_curve(axes: "Axes", points: Sequence[CurvePoint], number: int) -> None:
    """Draw a line with its markers, and whiskers from p50 to p99."""
    colour = series_colour(number)
    for point in points[:_MAX_WHISKERS]:
        axes.plot([point.p50, max(point.p50, point.p99)], [point.rate] * 2, color=colour,
                  linewidth=0.8, marker="|", markersize=5)  # fmt: skip
    axes.plot([point.p50 for point in points], [point.rate for point in points], color=colour,
              linewidth=1.6, marker=MARKERS[number % len(MARKERS)], markersize=7,
              markeredgecolor=PAPER)  # fmt: skip
