"""Bar charts: time by op, node and layer, results by class, and speedups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.rendering.templates import number
from deploykit.reporting.charts.chart import (
    LINE,
    NAME_WIDTH,
    Chart,
    limits,
    row_axes,
    set_axis,
)
from deploykit.reporting.charts.style import (
    INK,
    MUTED,
    SERIES,
    SMALL,
    amount,
    distinct,
    is_number,
    series_colour,
)
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.messages import escaped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from deploykit.reporting.charts.chart import FigureLike

_MAX_BARS, _MAX_SERIES, _MAX_CLASSES, _MAX_RATIOS = 12, 6, 20, 40
_STEP, _GAP = 13.0, 9.0
"""Heights within a row in points: each of its bars, the space between rows."""
_ROOM = 1.3
"""End of the axis for the longest bar, so that its label fits."""
_RATIO_ROW = 36.0
_FARTHEST = 1e4
_KERNELS = {"eigen_us": "float32, Eigen", "onednn_us": "float32, oneDNN",
            "float_us": "float32", "int8_us": "int8"}  # fmt: skip
RATIO_KEY = "Above 1 is better; whisker: its interval; grey: the interval includes 1"

Profiled: TypeAlias = BenchmarkResult | Mapping[str, Any]
"""A result of `deploykit.benchmark`, or its document."""


@dataclass(frozen=True)
class BarRow:
    """A name, and a value of each series, which is not negative; None: no value."""

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    """95 % interval of each value; empty: unknown."""


def most_and_rest(rows: Sequence[BarRow], noun: str, most: int = _MAX_BARS) -> list[BarRow]:
    """Return the rows with the largest values, largest first, and the sum of all others as one."""
    ordered = sorted(rows, key=lambda row: -max((v for v in row.values if v), default=0.0))
    if len(ordered) <= most + 1:
        return ordered
    rest = ordered[most:]
    columns = [[v for v in column if v is not None] for column in zip(*(r.values for r in rest))]  # noqa: B905
    sums = tuple(sum(column) if column else None for column in columns)
    return [*ordered[:most], BarRow(f"{len(rest)} other {noun} together", sums)]


def bar_chart(
    rows: Sequence[BarRow], series: Sequence[str], kind: str, *,
    most: float | None = None, shares: bool = False, notes: Sequence[str] = (),
) -> Chart:  # fmt: skip
    """Return a chart of rows of bars, one bar for each series.

    Args:
        rows: the bars; at least one.
        series: the name of each value of a row; a single one has no legend.
        kind: kind of the values, see `style.UNITS`.
        most: end of the axis; default: the largest value.
        shares: whether to write the share of the series' sum next to each value.
        notes: lines below the bars.
    """
    series = series[:_MAX_SERIES]
    legend = series if len(series) > 1 else ()
    row_height = _STEP * len(series) + _GAP
    sums = [sum(row.values[n] or 0.0 for row in rows) for n in range(len(series))]
    texts = [
        [_value_text(row.values[n], sums[n] if shares else 0.0, kind) for row in rows]
        for n in range(len(series))
    ]

    def draw(figure: "FigureLike") -> "Axes":
        axes = figure.add_subplot()
        row_axes(axes, [[name] for name in distinct([r.name for r in rows], SMALL, NAME_WIDTH)])
        axes.tick_params(axis="x", labelbottom=False)
        ends = [max(v or 0.0, high) for row in rows for v, high in zip(row.values, _highs(row))]  # noqa: B905
        axes.set_xlim(0, _ROOM * (most or max(ends) or 1.0))
        for n, labels in enumerate(texts):
            down = (_GAP / 2 + _STEP * (n + 0.5)) / row_height
            values = [row.values[n] or 0.0 for row in rows]
            bounds = [_interval(row, n) for row in rows]
            below = [max(0.0, v - low) for v, (low, _) in zip(values, bounds, strict=True)]
            above = [max(0.0, high - v) for v, (_, high) in zip(values, bounds, strict=True)]
            colour = series_colour(n)
            bars = axes.barh(
                [place + down for place in range(len(rows))], values, 9 / row_height, color=colour,
                edgecolor=colour, linewidth=[0.8 * (r.values[n] is not None) for r in rows],
                xerr=[below, above] if any(row.intervals for row in rows) else None, ecolor=INK,
            )  # fmt: skip
            axes.bar_label(bars, labels, padding=4, fontsize=SMALL, color=MUTED)
        return axes

    return Chart(row_height * len(rows) + 6, draw, notes, legend, is_bars=True)


def _interval(row: BarRow, index: int) -> tuple[float, float]:
    value = row.values[index] or 0.0
    known = row.intervals[index] if row.intervals else None
    return known or (value, value)


def _highs(row: BarRow) -> list[float]:
    return [_interval(row, n)[1] for n in range(len(row.values))]


def _value_text(value: float | None, total: float, kind: str) -> str:
    if value is None:
        return "none"
    share = f", {100 * value / total:.1f} %" if total else ""
    return f"{amount(value, kind)}{share}"


def ops(profiled: Profiled) -> Chart | None:
    """Return the time of a call by op, with a bar for each profile; None without a profile."""
    if isinstance(profiled, BenchmarkResult):
        profiles = {name: document(item) for name, item in profiled.profiles.items()}
    else:
        measured = profiled["measurements"]
        profiles = {item["name"]: item["profile"] for item in measured if item.get("profile")}
    times = {
        name: {op["op"]: op["ms"] for op in item["ops"]}
        for name, item in profiles.items() if item["ops"]
    }  # fmt: skip
    every = dict.fromkeys(op for time_ in times.values() for op in time_)
    rows = [BarRow(op, tuple(time_.get(op) for time_ in times.values())) for op in every]
    if not rows:
        return None
    return bar_chart(most_and_rest(rows, "ops"), list(times), "ms", shares=True)


def nodes(profile: Profile | Mapping[str, Any]) -> Chart | None:
    """Return the time of a call by node, of a profile or its document; None without nodes."""
    result = document(profile) if isinstance(profile, Profile) else profile
    rows = [BarRow(f"{item['name']} ({item['op']})", (item["ms"],)) for item in result["nodes"]]
    return bar_chart(most_and_rest(rows, "nodes"), [""], "ms", shares=True) if rows else None


def layer_times(quantized: Mapping[str, Any]) -> Chart | None:
    """Return the time of each layer in float32 and int8, for the most expensive layers.

    `quantized` is the document of `Quantized`. None: it contains no times.
    """
    layers = quantized.get("layers") or ()
    known = [k for k in _KERNELS if any(is_number(layer.get(k)) for layer in layers)]
    rows = [
        BarRow(f"{layer['layer']} ({layer['op']})", tuple(layer[k] for k in known))
        for layer in layers
        if known and all(is_number(layer.get(k)) for k in known)
    ]
    if not rows:
        return None
    return bar_chart(most_and_rest(rows, "layers"), [_KERNELS[k] for k in known], "us")


def classes(accuracy: Mapping[str, Any]) -> Chart | None:
    """Return the result of each model by class, of a document of kind `accuracy`, worst first.

    None: the document has no results by class, or a value is negative.
    """
    rows = []
    for item in accuracy.get("by_class") or ():
        scores = item["models"]
        values = tuple(s["value"] if is_number(s.get("value")) else None for s in scores)
        bounds = tuple(
            (s["low"], s["high"]) if is_number(s.get("low")) and is_number(s.get("high")) else None
            for s in scores
        )
        name = f"{item['label']} ({item['samples']} sample{'s' * (item['samples'] != 1)})"
        rows.append(BarRow(name, values, bounds))
    flat = [value for row in rows for value in row.values if value is not None]
    if not rows or any(value < 0 for value in flat):
        return None
    shown = sorted(rows, key=lambda row: 1.0 if row.values[-1] is None else row.values[-1])
    kind, most = ("share", 1.0) if all(value <= 1 for value in flat) else ("plain", None)
    notes = [f"The worst {_MAX_CLASSES} of {len(rows)} classes"] * (len(rows) > _MAX_CLASSES)
    names = [item["name"] for item in accuracy["models"]]
    return bar_chart(shown[:_MAX_CLASSES], names, kind, most=most, notes=notes)


@dataclass(frozen=True)
class GainRow:
    """An improvement factor with its interval; None: unknown."""

    name: str
    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, name: str, ratio: object) -> "GainRow | None":
        """Return the row for a document's `value`, `low` and `high`; None without a value."""
        if not isinstance(ratio, Mapping):
            return None
        value, low, high = (ratio.get(name) for name in ("value", "low", "high"))
        if not is_number(value) or value <= 0:
            return None
        known = is_number(low) and is_number(high) and 0 < low <= high
        return cls(escaped(name), value, low if known else None, high if known else None)

    @property
    def text(self) -> str:
        """The ratio in words."""
        if self.low is None or self.high is None:
            return f"{number(self.value)}x (interval unknown)"
        value, low, high = (number(item) for item in (self.value, self.low, self.high))
        return f"{value}x" if low == high else f"{value}x ({low}-{high})"

    @property
    def colour(self) -> str:
        """A colour for better, for worse, and for an interval that includes 1."""
        if self.low is not None and self.low > 1:
            return SERIES[2]
        return SERIES[1] if self.high is not None and self.high < 1 else MUTED


def gain_rows(profiled: Profiled) -> list[GainRow]:
    """Return the ratios in a document, or in a benchmark's result."""
    known = profiled.document() if isinstance(profiled, BenchmarkResult) else profiled
    named: list[tuple[str, object]] = []
    for item in known.get("comparisons") or ():
        named.append((f"{item['b']}: speed", item.get("ratio")))
        named.append((f"{item['b']}: CPU time", item.get("cpu_ratio")))
    for goal in ("latency", "throughput"):
        choice = known.get(goal) if known.get("kind") == "tuned" else None
        if choice:
            named.append((f"settings for {goal}: speed", choice.get("times_faster")))
            named.append((f"settings for {goal}: items", choice.get("times_the_items")))
    if quantized := known.get("speed"):
        against = f"int8 vs {quantized['against']}"
        ratio = {"value": quantized["times_as_fast"], **quantized}
        named.append((f"{against}: speed", ratio))
        named.append((f"{against}: CPU time", quantized.get("cpu_ratio")))
    if engine := known.get("engine_speed"):
        named.append(("the other engine: speed", engine.get("ratio")))
        named.append(("the other engine: CPU time", engine.get("cpu_ratio")))
    for name, figure in (known.get("figures") or {}).items():
        ratio = figure.get("ratio")
        if ratio and figure.get("unit") == "bytes":  # exact, without an interval
            ratio = {**ratio, "low": ratio["value"], "high": ratio["value"]}
        named.append((figure.get("title") or name, ratio))
    rows = [GainRow.of(name, ratio) for name, ratio in named]
    return [row for row in rows if row is not None]


def gains(profiled: Profiled) -> Chart | None:
    """Return ratios as bars from 1, with their intervals; None without ratios.

    `profiled` is a result of `deploykit.benchmark`, or a document of kind `benchmark`, `tuned` or
    `ship`, or of `Quantized`.
    """
    every = gain_rows(profiled)
    rows = every[:_MAX_RATIOS]
    if not rows:
        return None
    more = f"; the first {len(rows)} of {len(every)} are shown" if len(rows) < len(every) else ""
    notes = [RATIO_KEY + more]

    def near(value: float | None) -> float:
        return min(max(value or 1.0, 1 / _FARTHEST), _FARTHEST)

    def draw(figure: "FigureLike") -> "Axes":
        axes = figure.add_subplot()
        names = distinct([row.name for row in rows], SMALL, NAME_WIDTH)
        row_axes(axes, [(name, row.text) for name, row in zip(names, rows, strict=True)])
        ends = [near(item) for row in rows for item in (row.value, row.low, row.high)]
        set_axis(axes, "x", limits([1.0, *ends]), "plain")
        axes.grid(axis="x")
        axes.axvline(1.0, color=INK, linewidth=1.2)
        for place, row in enumerate(rows):
            middle, is_known = place + 0.5, row.low is not None
            axes.barh(middle, near(row.value) - 1, 0.4, left=1.0, color=row.colour,
                      alpha=1.0 if is_known else 0.5)  # fmt: skip
            if is_known:
                axes.plot([near(row.low), near(row.high)], [middle] * 2, color=INK, marker="|",
                          linewidth=1.2, markersize=6)  # fmt: skip
        return axes

    return Chart(_RATIO_ROW * len(rows) + LINE + 10, draw, notes)
