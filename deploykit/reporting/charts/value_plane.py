"""A plane with two axes, and labels in it that keep apart."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deploykit.reporting.charts.lettering import text_width, wrapped
from deploykit.reporting.charts.scale import Scale
from deploykit.reporting.charts.sheet import LINE, Place, Sheet, Spot
from deploykit.reporting.charts.style import INK, MUTED, SMALL

Edges = tuple[float, float, float, float]
"""Left, top, right and bottom."""

_MARK = 5.0  # points around a spot that a label leaves free


@dataclass(frozen=True)
class ValuePlane:
    """Where values lie on a sheet."""

    x: Scale
    y: Scale
    inside: Edges
    bottom: float
    """Where its axes end, with their labels and titles."""

    def spot(self, x: float, y: float) -> Spot:
        """Return the point for two values."""
        left, top, right, bottom = self.inside
        return left + (right - left) * self.x.at(x), bottom - (bottom - top) * self.y.at(y)


def draw_plane(
    sheet: Sheet, place: Place, scales: tuple[Scale, Scale], titles: tuple[str, str], height: float
) -> ValuePlane:
    """Draw axes, with their ticks, titles and grid. Scales and titles are of x and y."""
    x, y = scales
    top = sheet.write_lines(
        place, wrapped(titles[1], SMALL, place.width, 2), size=SMALL, colour=MUTED
    )
    top, along = top + 4, y.ticks_along(height)
    left = place.left + max((text_width(each.label, SMALL) for each in along), default=0.0) + 7
    right, bottom = place.right - 6, top + height
    across = x.ticks_across(right - left, left - place.left, 6)
    spots = [left + (right - left) * each.share for each in across]
    levels = [bottom - height * each.share for each in along]
    sheet.grid([((spot, top), (spot, bottom)) for spot in spots])
    sheet.grid([((left, level), (right, level)) for level in levels])
    sheet.line(((left, top), (left, bottom), (right, bottom)), MUTED, 0.8)
    for level, tick in zip(levels, along, strict=True):
        sheet.write(left - 5, level + 0.36 * SMALL, tick.label, size=SMALL, align="right")
    for spot, tick in zip(spots, across, strict=True):
        sheet.write(spot, bottom + 4 + SMALL, tick.label, size=SMALL, align="center")
    lines = wrapped(titles[0], SMALL, place.width, 3)
    below = place.below(bottom + 6 + LINE * SMALL)
    end = sheet.write_lines(below, lines, size=SMALL, colour=MUTED)
    return ValuePlane(x, y, (left, top, right, bottom), end + 2)


def write_labels(
    sheet: Sheet,
    plane: ValuePlane,
    wanted: Sequence[tuple[Spot, str]],
    lines: Sequence[Sequence[Spot]] = (),
) -> None:
    """Write labels beside spots, the first ones first; one that has no room is left out.

    They keep off other labels, and off marks and `lines` where they can.
    """
    marks = [_around(spot) for spot, _ in wanted]
    marks += [(x - 1, y - 1, x + 1, y + 1) for line in lines for x, y in _along(line)]
    taken: list[Edges] = []
    for spot, text in wanted:
        places = list(_places(spot, text_width(text, SMALL), plane.inside))
        free = [each for each in places if not any(_meet(each, other) for other in taken)]
        if free:
            found = min(free, key=lambda each: sum(_meet(each, mark) for mark in marks))
            taken.append(found)
            sheet.write(found[0], found[3] - 0.25 * SMALL, text, size=SMALL, colour=INK)


def _along(line: Sequence[Spot]) -> Iterator[Spot]:
    """Yield spots on a line that are some points apart."""
    for (x, y), (to_x, to_y) in itertools.pairwise(line):
        parts = 1 + int(math.hypot(to_x - x, to_y - y) / _MARK)
        for part in range(parts):
            yield x + (to_x - x) * part / parts, y + (to_y - y) * part / parts


def _around(spot: Spot) -> Edges:
    return spot[0] - _MARK, spot[1] - _MARK, spot[0] + _MARK, spot[1] + _MARK


def _places(spot: Spot, width: float, inside: Edges) -> list[Edges]:
    """Return where a text beside a spot may stand, the best place first."""
    (x, y), high, off = spot, LINE * SMALL, _MARK + 1
    lefts = {"left": x - off - width, "middle": x - width / 2, "right": x + off}
    tops = {"above": y - off - high, "middle": y - high / 2, "below": y + off}
    order = (("right", "above"), ("left", "above"), ("middle", "above"), ("right", "below"),
             ("left", "below"), ("middle", "below"), ("right", "middle"),
             ("left", "middle"))  # fmt: skip
    found = [
        (lefts[across], tops[along], lefts[across] + width, tops[along] + high)
        for across, along in order
    ]
    left, top, right, bottom = inside
    return [
        each
        for each in found
        if each[0] >= left and each[1] >= top and each[2] <= right and each[3] <= bottom
    ]


def _meet(a: Edges, b: Edges) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
