"""How many times better something became: ratios around 1, with where they lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.results import BenchmarkResult
from deploykit.reporting.charts.figures import chart, is_number
from deploykit.reporting.charts.lettering import all_wrapped, clean, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LINE, Place, Sheet
from deploykit.reporting.charts.style import INK, MUTED, PAPER, SERIES, SMALL, TEXT
from deploykit.text.templates import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEY = "Above 1 is better; whisker: where it lies; grey: it may be 1"
_BETTER, _WORSE, _OPEN = SERIES[2], SERIES[1], MUTED
_HIGH = 10.0  # points, of a bar
_MOST_ROWS = 40
_FARTHEST = 1e4


@dataclass(frozen=True)
class GainRow:
    """How many times better something is, and where that lies; None: it is not known."""

    name: str
    value: float
    low: float | None
    high: float | None

    @classmethod
    def of(cls, name: str, ratio: object) -> "GainRow | None":
        """Return it of a document's `value`, `low` and `high`; None: there is no value."""
        if not isinstance(ratio, Mapping):
            return None
        value, low, high = (ratio.get(each) for each in ("value", "low", "high"))
        if not is_number(value) or value <= 0:
            return None
        known = is_number(low) and is_number(high) and 0 < low <= high
        return cls(clean(name), value, low if known else None, high if known else None)

    @property
    def text(self) -> str:
        """The ratio in words."""
        if self.low is None or self.high is None:
            return f"{number(self.value)} times (interval not known)"
        value, low, high = (number(each) for each in (self.value, self.low, self.high))
        return f"{value} times" if low == high else f"{value} times ({low} to {high})"

    @property
    def colour(self) -> str:
        """By what is sure of it."""
        if self.low is not None and self.low > 1:
            return _BETTER
        return _WORSE if self.high is not None and self.high < 1 else _OPEN


def gains(found: "BenchmarkResult | Mapping[str, Any]") -> "Figure | None":
    """Return ratios around 1, with their intervals; None: there are none.

    `found` is a result of `deploykit.benchmark`, or a document of kind `benchmark`, `tuned` or
    `ship`, or of `Quantized`.
    """
    rows = gain_rows(found)
    return chart(lambda sheet, place: draw_gains(sheet, place, rows)) if rows else None


def gain_rows(found: "BenchmarkResult | Mapping[str, Any]") -> list[GainRow]:
    """Return the ratios of a document, or of a benchmark's result."""
    known = found.document() if isinstance(found, BenchmarkResult) else found
    named: list[tuple[str, object]] = []
    for each in known.get("comparisons") or ():
        named.append((f"{each['b']}: speed", each.get("ratio")))
        named.append((f"{each['b']}: CPU time", each.get("cpu_ratio")))
    for goal in ("latency", "throughput"):
        choice = known.get(goal) if known.get("kind") == "tuned" else None
        if choice:
            named.append((f"settings for {goal}: speed", choice.get("times_faster")))
            named.append((f"settings for {goal}: items", choice.get("times_the_items")))
    if quantized := known.get("speed"):
        against = f"8 bits beside {quantized['against']}"
        ratio = {"value": quantized["times_as_fast"], **quantized}
        named.append((f"{against}: speed", ratio))
        named.append((f"{against}: CPU time", quantized.get("cpu_ratio")))
    if engine := known.get("engine_speed"):
        named.append(("the other engine: speed", engine.get("ratio")))
        named.append(("the other engine: CPU time", engine.get("cpu_ratio")))
    for name, figure in (known.get("figures") or {}).items():
        ratio = figure.get("ratio")
        if ratio and figure.get("unit") == "bytes":  # it was counted, not measured
            ratio = {**ratio, "low": ratio["value"], "high": ratio["value"]}
        named.append((figure.get("title") or name, ratio))
    rows = [GainRow.of(name, ratio) for name, ratio in named]
    return [row for row in rows if row is not None]


def draw_gains(sheet: Sheet, place: Place, rows: Sequence[GainRow]) -> float:
    """Draw a bar from 1 to each ratio, with its interval; return where they end."""
    shown, top = rows[:_MOST_ROWS], place.top
    ends = [each for row in shown for each in (row.value, row.low, row.high) if each is not None]
    near = [min(max(each, 1 / _FARTHEST), _FARTHEST) for each in ends]
    scale = Scale.over([1.0, *near], "plain")
    ticks = scale.ticks_across(place.width, 0, 0)
    one = place.left + place.width * scale.at(1.0)
    for row, lines in zip(
        shown, all_wrapped([row.name for row in shown], TEXT, place.width), strict=True
    ):
        top = sheet.write_lines(place.below(top), lines)
        told = wrapped(row.text, SMALL, place.width, 2)
        top = sheet.write_lines(place.below(top), told, size=SMALL, colour=MUTED) + 3
        spots = [place.left + place.width * each.share for each in ticks]
        sheet.grid([((spot, top), (spot, top + _HIGH + 2)) for spot in spots])
        _draw_gain(sheet, place.below(top + 1), row, scale)
        sheet.line(((one, top), (one, top + _HIGH + 2)), INK, 1.2)
        top += _HIGH + 8
    for tick in ticks:
        spot = place.left + place.width * tick.share
        sheet.write(spot, top - 3 + SMALL, tick.label, size=SMALL, align="center")
    more = f"; the first {len(shown)} of {len(rows)} are shown" if len(rows) > len(shown) else ""
    lines = wrapped(KEY + more, SMALL, place.width, 3)
    return sheet.write_lines(place.below(top + LINE * SMALL), lines, size=SMALL, colour=MUTED)


def _draw_gain(sheet: Sheet, place: Place, row: GainRow, scale: Scale) -> None:
    def across(value: float) -> float:
        return place.left + place.width * scale.at(value)

    one, end, middle = across(1.0), across(row.value), place.top + _HIGH / 2
    left, right = min(one, end), max(one, end, min(one, end) + 0.8)
    if row.low is None or row.high is None:
        corners = ((left, place.top), (right, place.top), (right, place.top + _HIGH),
                   (left, place.top + _HIGH))  # fmt: skip
        sheet.area([corners], row.colour, edge=0.8)
        return
    sheet.box(left, place.top, right, place.top + _HIGH, row.colour)
    low, high = across(row.low), across(row.high)
    whisker = [((low, middle), (high, middle))]
    whisker += [((x, middle - 3), (x, middle + 3)) for x in (low, high)]
    sheet.lines(whisker, PAPER, 3.6)
    sheet.lines(whisker, INK, 1.2)
