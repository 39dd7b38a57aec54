"""The parts of a benchmark's plot: strips of latencies, warm-ups, throughput against latency."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import summary
from deploykit.text.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from deploykit.transforms.core.tensors import Array

# Okabe and Ito's colours, which the colour-blind tell apart, without the yellow that white hides.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#666666")
_MARKERS = "os^Dv<>p"
_BLACK = "#222222"
_LONG = 4  # from the least to the most: beyond it an axis is logarithmic
_TENTHS = (1, 1.5, 2, 3, 4, 5, 7)  # of a logarithmic axis that is short
_MOST_MARKS = 200


@dataclass(frozen=True)
class PanelLine:
    """Measurements that differ only in what a curve goes along."""

    name: str
    colour: str
    marker: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class Ends:
    """Where axes end."""

    latencies_ms: tuple[float, float]
    """Beyond it are single slow calls only."""
    warm_up_seconds: float


def varied(measurements: Sequence[Measurement]) -> str:
    """Return what a curve can go along: `batch`, `calls in flight`, or nothing."""
    if len({each.samples for each in measurements}) > 1:
        return "batch"
    return "calls in flight" if len(set(map(load, measurements))) > 1 else ""


def load(measurement: Measurement) -> tuple[int, int]:
    """Return samples and calls at once; with as many, latencies compare."""
    return measurement.samples, measurement.settings.concurrency


def lines(measurements: Sequence[Measurement], along: str) -> list[PanelLine]:
    """Return the lines of a curve: one for each model and for each of the other settings."""
    groups: dict[tuple[str, Settings], list[Measurement]] = {}
    for each in measurements:
        rest = replace(each.settings, batch=None)
        if along == "calls in flight":
            rest = replace(rest, concurrency=1)
        groups.setdefault((each.model, rest), []).append(each)
    models = {model for model, _ in groups}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({rest for _, rest in groups}) > 1
    return [
        PanelLine(
            ", ".join([short[model]] * (len(models) > 1) + [str(rest)] * several),
            _COLOURS[count % len(_COLOURS)],
            _MARKERS[count % len(_MARKERS)],
            tuple(sorted(group, key=load)),
        )
        for count, ((model, rest), group) in enumerate(groups.items())
    ]


def ends(alike: Sequence[Measurement]) -> Ends:
    """Return where the axes of measurements end that are to be compared."""
    figures = [summary(each) for each in alike]
    low = min(each.min for each in figures)
    high = max(min(each.max, 2 * each.p99) for each in figures)
    margin = 0.03 * (high - low) or 0.1 * high
    latencies = (low / 1.04, high * 1.04) if _is_long(low, high) else (low - margin, high + margin)
    seconds = max(sum(each.warm_up_ms) / 1e3 / each.settings.concurrency for each in alike)
    return Ends(latencies, 1.05 * seconds or 1.0)


def draw_strip(axes: "Axes", measurement: Measurement, colour: str, ends: Ends) -> None:
    """Draw how the latencies of the steady state are spread, and write their figures beside it."""
    figures, calls = summary(measurement), np.asarray(measurement.latencies_ms)
    body = min(figures.max, max(3 * figures.p90 - 2 * figures.p50, figures.min * 1.01))
    bins = int(np.clip(2 * len(calls) ** (1 / 3), 10, 80))
    spaced = np.geomspace if _is_long(*ends.latencies_ms) else np.linspace
    counts, edges = np.histogram(calls, spaced(figures.min, body, bins + 1))
    heights = counts / counts.max()
    axes.stairs(heights, edges, fill=True, color=colour, alpha=0.55)
    axes.stairs(heights, edges, color=colour, linewidth=0.8)
    slower = np.sort(calls[calls > body])[::-1]
    slower = slower[:: max(1, len(slower) // _MOST_MARKS)]
    axes.plot(slower, np.full(len(slower), 0.12), "|", color=colour, markersize=7)
    axes.axvline(figures.p50, color=_BLACK, linewidth=1.2)
    axes.axvline(figures.p99, color=_BLACK, linewidth=1, linestyle=(0, (3, 2)))
    texts = [f"{name} {number(getattr(figures, name))} ms" for name in ("p50", "p99", "max")]
    axes.text(1.02, 0.5, "\n".join(texts), transform=axes.transAxes, va="center", linespacing=1.3)
    axes.set(ylim=(0, 1.1), yticks=[])
    axes.spines["left"].set_visible(False)
    _scale_axis(axes, "x", *ends.latencies_ms)
    axes.grid(axis="x")


def draw_warm_up(axes: "Axes", measurement: Measurement, colour: str, ends: Ends) -> None:
    """Draw the latencies before the steady state over time, from the end of the first run on."""
    p50, first = summary(measurement).p50, measurement.first_run_ms
    calls = np.asarray(measurement.warm_up_ms)
    times = np.cumsum(calls) / 1e3 / measurement.settings.concurrency
    axes.plot(*_outline(times, calls), color=colour, linewidth=0.8, marker=".", markersize=1.5)
    axes.plot([0], [first], "D", color=colour, markersize=4, clip_on=False)
    axes.axhline(p50, color=_BLACK, linewidth=0.8, linestyle=(0, (1, 2)))
    low, high = min([p50, first, *calls]), max([p50, first, *calls])
    axes.set(xlim=(0, ends.warm_up_seconds), ylim=(low / 1.1, high * 1.1), yscale="log")
    ticks = [p50, high] if high > 1.5 * p50 else [p50]
    axes.set_yticks(ticks, [number(tick) for tick in ticks])
    axes.set_yticks([], minor=True)
    _plain_numbers(axes.xaxis, 5)


def draw_curve(axes: "Axes", found: Sequence[PanelLine], names: Sequence[str], along: str) -> None:
    """Draw items a second against p50, with whiskers to p99, and name the lines below."""
    figures = [[summary(each) for each in line.measurements] for line in found]
    tops = [max(each.items_per_second for each in line) for line in figures]
    for index, (line, points) in enumerate(zip(found, figures, strict=True)):
        x, y = [each.p50 for each in points], [each.items_per_second for each in points]
        axes.errorbar(
            x, y, xerr=[[0.0] * len(x), [max(0.0, each.p99 - each.p50) for each in points]],
            color=line.colour, marker=line.marker, markersize=5, linewidth=1.4, elinewidth=0.8,
            capsize=2, label=names[index] if names else None,
        )  # fmt: skip
        # Above the upper lines and below the lower ones, where two are less likely to collide.
        upper = sum(top > tops[index] for top in tops) < len(tops) / 2
        offset, side = ((-2, 5), "right") if upper else ((3, -11), "left")
        for each, point in zip(line.measurements, zip(x, y, strict=True), strict=True):
            text = str(_along(each, along))
            axes.annotate(
                text, point, offset, textcoords="offset points", ha=side, color=line.colour,
                weight="bold",
            )  # fmt: skip
    axes.set(xlabel="latency of a call in ms: p50, whisker to p99", ylabel="items/s")
    flat = [each for points in figures for each in points]
    _scale_from_zero(axes, "x", [each.p50 for each in flat] + [each.p99 for each in flat])
    _scale_from_zero(axes, "y", [each.items_per_second for each in flat])
    axes.grid()
    if names:
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.15), frameon=False, borderaxespad=0)


def _along(measurement: Measurement, along: str) -> int:
    return measurement.samples if along == "batch" else measurement.settings.concurrency


def _is_long(low: float, high: float) -> bool:
    return high > _LONG * low > 0


def _scale_axis(axes: "Axes", which: Literal["x", "y"], low: float, high: float) -> None:
    """Limit an axis, with plain numbers, and make it logarithmic where it is long."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log" if _is_long(low, high) else "linear"})
    axes.set(**{f"{which}lim": (low, high)})
    _plain_numbers(axis, 7)
    if _is_long(low, high):
        decades = math.log10(high / low)
        subs = _TENTHS if decades < 1.1 else (1, 2, 5) if decades < 2.5 else (1,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_minor_locator(NullLocator())


def _scale_from_zero(axes: "Axes", which: Literal["x", "y"], values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    _scale_axis(axes, which, low / 1.3 if _is_long(low, high) else 0.0, 1.2 * high)


def _plain_numbers(axis: "Axis", most: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _outline(x: "Array", y: "Array") -> "tuple[Array, Array]":
    """Return few enough points: of each stretch the least and the most, as an oscilloscope does."""
    if len(y) <= 2 * _MOST_MARKS:
        return x, y
    parts = np.array_split(np.arange(len(y)), _MOST_MARKS)
    kept = sorted(int(i) for p in parts for i in (p[y[p].argmin()], p[y[p].argmax()]))
    return x[kept], y[kept]
