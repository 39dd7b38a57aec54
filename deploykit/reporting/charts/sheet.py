"""A sheet to draw on, in points from its top left corner; its height is what was drawn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deploykit.reporting.charts.lettering import clean
from deploykit.reporting.charts.style import GRID, INK, PAPER, SMALL, TEXT

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.path import Path

Spot = tuple[float, float]

LINE = 1.25
"""The height of a line of text, for letters of height 1."""
_INCH = 72.0
_SHAPES = {  # for a size of 1
    "square": ((-0.45, -0.45), (0.45, -0.45), (0.45, 0.45), (-0.45, 0.45)),
    "triangle": ((0, -0.6), (0.55, 0.4), (-0.55, 0.4)),
    "diamond": ((0, -0.65), (0.55, 0), (0, 0.65), (-0.55, 0)),
    "wedge": ((0, 0.6), (0.55, -0.4), (-0.55, -0.4)),
}
SHAPES = ("round", *_SHAPES)
"""Of marks, in the order in which series take them."""


@dataclass(frozen=True)
class Place:
    """Where a chart may draw: from here downward, so wide; in points."""

    left: float
    top: float
    width: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.left + self.width

    def below(self, top: float) -> "Place":
        """Return the rest of it, from there on."""
        return Place(self.left, top, self.width)


class Sheet:
    """Collects lines, areas, marks and texts, and makes a figure of them."""

    def __init__(self) -> None:
        """Begin an empty sheet."""
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        self._figure = Figure()
        self._flip = Affine2D()  # known when the height is
        self._to_display = self._flip + self._figure.dpi_scale_trans

    def figure(self, width: float, height: float) -> "Figure":
        """Return what was drawn, as a figure of this size in points."""
        self._figure.set_size_inches(width / _INCH, height / _INCH)
        self._flip.clear().scale(1 / _INCH, -1 / _INCH).translate(0, height / _INCH)
        return self._figure

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = TEXT,
        colour: str = INK,
        align: str = "left",
        bold: bool = False,
    ) -> None:
        """Write a line of text; y is where its letters stand. `align` is left, center or right."""
        if text:
            self._figure.text(
                x, y, clean(text), size=size, color=colour, ha=align, va="baseline",
                weight="bold" if bold else "normal", transform=self._to_display,
            )  # fmt: skip

    def write_lines(
        self, place: Place, lines: Iterable[str], *, size: float = TEXT, colour: str = INK,
        bold: bool = False,
    ) -> float:  # fmt: skip
        """Write lines of text below one another, and return where they end."""
        y = place.top
        for line in lines:
            self.write(place.left, y + size, line, size=size, colour=colour, bold=bold)
            y += LINE * size
        return y

    def line(
        self, spots: Sequence[Spot], colour: str, width: float = 1.0, *, dashed: bool = False
    ) -> None:
        """Draw a line through these spots."""
        self.lines([spots], colour, width, dashed=dashed)

    def lines(
        self,
        lines: Sequence[Sequence[Spot]],
        colour: str,
        width: float = 1.0,
        *,
        dashed: bool = False,
        cap: str = "butt",
    ) -> None:
        """Draw several lines that look alike."""
        from matplotlib.patches import PathPatch

        if lines:
            style = (0, (3, 2)) if dashed else "-"
            self._add(
                PathPatch(
                    _path(lines), fill=False, edgecolor=colour, linewidth=width, linestyle=style,
                    capstyle=cap, joinstyle="round",
                )
            )  # fmt: skip

    def area(self, shapes: Sequence[Sequence[Spot]], colour: str, *, edge: float = 0.0) -> None:
        """Fill areas with a colour; those with an edge, so wide, with half of it."""
        from matplotlib.patches import PathPatch

        if shapes:
            fill = (colour, 0.5) if edge else colour
            line = colour if edge else "none"
            closed = _path(shapes, closed=True)
            self._add(PathPatch(closed, facecolor=fill, edgecolor=line, linewidth=edge))

    def box(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        """Fill a rectangle."""
        self.area([((left, top), (right, top), (right, bottom), (left, bottom))], colour)

    def marks(self, spots: Sequence[Spot], colour: str, size: float, shape: str = "round") -> None:
        """Draw a mark of one of SHAPES at each spot, with a rim of paper."""
        if not spots:
            return
        if shape == "round":  # a short line with round ends is a dot, and small in a file
            dots = [(spot, (spot[0] + 0.01, spot[1])) for spot in spots]
            self.lines(dots, PAPER, size + 2, cap="round")
            self.lines(dots, colour, size, cap="round")
            return
        for scale, each in ((size + 2, PAPER), (size, colour)):
            corners = _SHAPES[shape]
            self.area(
                [[(x + scale * a, y + scale * b) for a, b in corners] for x, y in spots], each
            )

    def grid(self, lines: Sequence[Sequence[Spot]]) -> None:
        """Draw thin lines behind values."""
        self.lines(lines, GRID, 0.8)

    def legend(self, place: Place, entries: Sequence[tuple[str, str, Sequence[str]]]) -> float:
        """Write what colours and shapes stand for, and return where that ends.

        `entries` are a colour, a shape and the lines of a name each.
        """
        top = place.top
        for colour, shape, lines in entries:
            self.marks([(place.left + 5, top + 0.65 * SMALL)], colour, 7, shape)
            top = self.write_lines(
                Place(place.left + LEGEND_INDENT, top, place.width), lines, size=SMALL
            )
            top += 3
        return top

    def _add(self, artist: object) -> None:
        artist.set_transform(self._to_display)  # type: ignore[attr-defined]
        artist.set_snap(False)  # type: ignore[attr-defined]
        self._figure.add_artist(artist)  # type: ignore[arg-type]


LEGEND_INDENT = 15.0
"""Of a legend's names, in points."""


def _path(parts: Sequence[Sequence[Spot]], *, closed: bool = False) -> "Path":
    """Return lines as one path, or as closed shapes."""
    from matplotlib.path import Path

    spots: list[Spot] = []
    codes: list[int] = []
    for part in parts:
        spots += part
        codes += [int(Path.MOVETO)] + [int(Path.LINETO)] * (len(part) - 1)
        if closed:
            spots.append(part[0])
            codes.append(int(Path.CLOSEPOLY))
    if not all(math.isfinite(value) for spot in spots for value in spot):
        raise ValueError("a spot of a chart is not finite")
    return Path(spots, codes)
