"""How right models are on the samples of each class."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.reporting.charts.bars import BarRow, draw_bars
from deploykit.reporting.charts.figures import chart, is_number
from deploykit.reporting.charts.lettering import wrapped
from deploykit.reporting.charts.sheet import Place, Sheet
from deploykit.reporting.charts.style import MUTED, SMALL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 20


def classes(accuracy: Mapping[str, Any]) -> "Figure | None":
    """Return how right each model is by class, of a document of kind `accuracy`.

    None: it tells nothing by class, or what it tells goes below 0.
    """
    rows = _rows(accuracy)
    if not rows:
        return None
    names = [each["name"] for each in accuracy["models"]]
    return chart(lambda sheet, place: draw_classes(sheet, place, rows, names))


def draw_classes(sheet: Sheet, place: Place, rows: Sequence[BarRow], names: Sequence[str]) -> float:
    """Draw a bar for each model and class, the worst classes of the last model first."""
    ordered = sorted(rows, key=lambda row: 1.0 if row.values[-1] is None else row.values[-1])
    shown = ordered[:MOST_CLASSES]
    is_share = all(value is None or value <= 1 for row in rows for value in row.values)
    kind, most = ("share", 1.0) if is_share else ("plain", None)
    top = draw_bars(sheet, place, shown, names, kind, most)
    if len(shown) == len(rows):
        return top
    told = wrapped(f"The worst {len(shown)} of {len(rows)} classes", SMALL, place.width, 2)
    return sheet.write_lines(place.below(top), told, size=SMALL, colour=MUTED)


def _rows(accuracy: Mapping[str, Any]) -> list[BarRow]:
    rows = []
    for each in accuracy.get("by_class") or ():
        scores = each["models"]
        values = tuple(s["value"] if is_number(s.get("value")) else None for s in scores)
        if any(value is not None and value < 0 for value in values):
            return []
        whiskers = tuple(_whisker(score) for score in scores)
        count = each["samples"]
        name = f"{each['label']} ({count} sample{'s' * (count != 1)})"
        rows.append(BarRow(name, values, whiskers))
    return rows


def _whisker(score: Mapping[str, Any]) -> tuple[float, float] | None:
    low, high = score.get("low"), score.get("high")
    return (low, high) if is_number(low) and is_number(high) else None
