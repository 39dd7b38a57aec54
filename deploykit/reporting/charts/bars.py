"""Bars with names above them: time by op, by node and by layer, and shares by class."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.reporting.charts.figures import amount
from deploykit.reporting.charts.lettering import all_wrapped, text_width
from deploykit.reporting.charts.sheet import LEGEND_INDENT, Place, Sheet
from deploykit.reporting.charts.style import INK, MUTED, PAPER, SMALL, TEXT, series_colour

MOST_BARS = 12
_HIGH = 9.0  # points, of a bar
_HIGHEST_SERIES = 6


@dataclass(frozen=True)
class BarRow:
    """A name, and a value of each series; None: that series has none. Values are not below 0."""

    name: str
    values: tuple[float | None, ...]
    whiskers: tuple[tuple[float, float] | None, ...] = ()
    """Where each value lies, at 95 %; empty: it is not known."""


def most_and_rest(rows: Sequence[BarRow], noun: str, most: int = MOST_BARS) -> list[BarRow]:
    """Return the rows with the largest values, largest first, and the sum of all others as one."""
    ordered = sorted(rows, key=lambda row: -max((v for v in row.values if v), default=0.0))
    if len(ordered) <= most + 1:
        return ordered
    rest = ordered[most:]
    columns = list(zip(*(row.values for row in rest), strict=True))
    sums = tuple(
        sum(v for v in column if v is not None) if any(v is not None for v in column) else None
        for column in columns
    )
    return [*ordered[:most], BarRow(f"{len(rest)} other {noun} together", sums)]


def draw_bars(
    sheet: Sheet, place: Place, rows: Sequence[BarRow], series: Sequence[str], kind: str,
    most: float | None = None, shares: bool = False,
) -> float:  # fmt: skip
    """Draw rows of bars, one bar for each series, and return where they end.

    Args:
        sheet: to draw on.
        place: where.
        rows: the bars; at least one.
        series: the name of each value of a row; a single one has no legend.
        kind: what values are, see scale.UNITS.
        most: where the axis ends; the largest value, if it is not given.
        shares: whether the share of a series' sum is written beside each value.
    """
    series = series[:_HIGHEST_SERIES]
    top = place.top
    if len(series) > 1:
        names = all_wrapped(series, SMALL, place.width - LEGEND_INDENT)
        entries = [(series_colour(n), "square", name) for n, name in enumerate(names)]
        top = sheet.legend(place.below(top), entries) + 4
    sums = [sum(row.values[n] or 0.0 for row in rows) for n in range(len(series))]
    texts = [
        [_text(row.values[n], sums[n] if shares else 0.0, kind) for n in range(len(series))]
        for row in rows
    ]
    room = max(text_width(text, SMALL) for each in texts for text in each) + 6
    ends = [each for row in rows for each in (*row.values, *_highs(row)) if each is not None]
    scale = (place.width - room) / ((max(ends, default=0.0) if most is None else most) or 1.0)
    labels = all_wrapped([row.name for row in rows], TEXT, place.width)
    for row, lines, told in zip(rows, labels, texts, strict=True):
        top = sheet.write_lines(place.below(top), lines) + 2
        for number, text in enumerate(told):
            end = _draw_bar(sheet, place.below(top), row, (number, scale))
            sheet.write(end + 5, top + 0.87 * _HIGH + 1, text, size=SMALL, colour=MUTED)
            top += max(_HIGH, SMALL) + 2
        top += 5
    return top


def _draw_bar(sheet: Sheet, place: Place, row: BarRow, how: tuple[int, float]) -> float:
    """Draw a bar, with where its value lies; return where it ends."""
    number, scale = how
    left, middle = place.left, place.top + _HIGH / 2
    value, whisker = row.values[number], (row.whiskers or (None,) * 99)[number]
    if value is None:
        return left - 4
    end = left + max(0.8, value * scale)
    sheet.box(left, place.top, end, place.top + _HIGH, series_colour(number))
    if whisker is None:
        return end
    low, high = (left + each * scale for each in whisker)
    sheet.line(((low, middle), (high, middle)), PAPER, 3.6)
    sheet.line(((low, middle), (high, middle)), INK, 1.2)
    return max(end, high)


def _highs(row: BarRow) -> list[float]:
    return [each[1] for each in row.whiskers if each is not None]


def _text(value: float | None, total: float, kind: str) -> str:
    if value is None:
        return "none"
    share = f", {100 * value / total:.1f} %" if total else ""
    return f"{amount(value, kind)}{share}"
