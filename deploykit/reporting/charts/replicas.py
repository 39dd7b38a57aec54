"""P99 of a replica over the calls that it gets, and where a plan lies on it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.reporting.charts.figures import chart
from deploykit.reporting.charts.lettering import wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LEGEND_INDENT, SHAPES, Place, Sheet, Spot
from deploykit.reporting.charts.style import INK, MUTED, SMALL, series_colour
from deploykit.reporting.charts.value_plane import ValuePlane, draw_plane, write_labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HIGH = 240.0  # points
_LOST = {"nothing": "", "replica": ", one lost", "zone": ", one zone lost"}


def replicas(found: Mapping[str, Any]) -> "Figure":
    """Return p99 over the calls of a replica, of a plan's document."""
    return chart(lambda sheet, place: draw_replicas(sheet, place, found))


def draw_replicas(sheet: Sheet, place: Place, found: Mapping[str, Any]) -> float:
    """Draw the document of a plan; return where it ends."""
    curve, limit = found["curve"], float(found["p99_limit_ms"])
    rates = [float(each["rate"]) for each in curve]
    times = [float(each[name]) for each in curve for name in ("p99_low_ms", "p99_high_ms")]
    scales = (
        Scale.over([0.0, *rates], "count", zero=True),
        Scale.over([*times, limit], "ms", zero=True),
    )
    titles = "Calls a second to each replica", "p99 of a call"
    plane = draw_plane(sheet, place, scales, titles, _HIGH)
    seen = _draw_curve(sheet, plane, curve)
    left, right = plane.spot(0.0, limit), (plane.inside[2], plane.spot(0.0, limit)[1])
    sheet.line((left, right), INK, 1.0, dashed=True)
    marked = [each for each in found["outcomes"] if each["p99_ms"] is not None]
    spots = [plane.spot(found["rate"] / each["replicas"], each["p99_ms"]) for each in marked]
    sheet.marks(spots, series_colour(1), 8, SHAPES[1])
    names = [_named(each) for each in marked]
    wanted = list(zip(spots, names, strict=True))
    entries = [
        (series_colour(0), SHAPES[0], ["foreseen, with its range; dashes: the limit"]),
        (series_colour(1), SHAPES[1], ["the planned rate"]),
    ]
    if check := found["check"]:
        spot = plane.spot(check["rate"], check["p99_ms"])
        sheet.marks([spot], series_colour(2), 8, SHAPES[2])
        entries.append((series_colour(2), SHAPES[2], ["measured on one replica"]))
    write_labels(sheet, plane, wanted, [seen, (left, right)])
    bottom = sheet.legend(place.below(plane.bottom + 4), [
        (colour, shape, wrapped(lines[0], SMALL, place.width - LEGEND_INDENT, 2))
        for colour, shape, lines in entries
    ])  # fmt: skip
    told = [
        f"{_named(each)}: too much load"
        for each in found["outcomes"]
        if each["p99_ms"] is None and each["replicas"]
    ]
    return sheet.write_lines(place.below(bottom), told, size=SMALL, colour=MUTED)


def _named(outcome: Mapping[str, Any]) -> str:
    count = outcome["replicas"]
    return f"{count} replica{'s' * (count != 1)}{_LOST[outcome['lost']]}"


def _draw_curve(
    sheet: Sheet, plane: ValuePlane, curve: Sequence[Mapping[str, Any]]
) -> Sequence[Spot]:
    """Draw what was foreseen with its range; return the line."""

    def along(name: str) -> list[Spot]:
        return [plane.spot(each["rate"], each[name]) for each in curve]

    sheet.area([[*along("p99_low_ms"), *reversed(along("p99_high_ms"))]], series_colour(0),
               edge=0.4)  # fmt: skip
    line = along("p99_ms")
    sheet.line(line, series_colour(0), 1.8)
    sheet.marks(line, series_colour(0), 5)
    return line
