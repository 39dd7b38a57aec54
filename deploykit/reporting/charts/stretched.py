"""A chart of bars, as wide as its place: every x is a share of the width, letters stay as high.

A page stretches bars and lines so, whereas it would enlarge the letters of an SVG with a viewBox.
"""

import itertools
import re
from collections.abc import Iterator

_ELEMENT = re.compile(r"<(path|text) (.*?)(/>|>.*?</text>)", re.DOTALL)
_STEP = re.compile(r"([Mlhvz])([-0-9. ]*)")
_MARK = 11.0
"""An area that is no wider is a mark of a legend, which stays as wide, or the shortest of bars."""

Spot = tuple[float, float]


def stretched(elements: str, width: float) -> str:
    """Return the elements of a chart that is as wide as this, in shares of the width.

    ValueError: it has a shape that is no bar, line or text.
    """
    return "".join(_drawn(each, width) for each in _ELEMENT.finditer(elements))


def _drawn(element: re.Match[str], width: float) -> str:
    kind, attributes, end = element.groups()
    if kind == "text":
        x = re.sub(r'^x="([-0-9.]+)"', lambda at: f'x="{_share(float(at[1]), width)}"', attributes)
        return f"<text {x}{end}"
    drawn = re.search(r'd="([^"]*)"', attributes)
    style = re.search(r' style="[^"]*"', attributes)
    look = style[0] if style else ""
    return "".join(
        _box(spots, width, look) if closed else _lines(spots, width, look)
        for spots, closed in _parts(drawn[1] if drawn else "")
    )


def _box(spots: list[Spot], width: float, look: str) -> str:
    """Return a rectangle; a bar is stretched, a mark is not."""
    across, along = ({spot[axis] for spot in spots} for axis in (0, 1))
    if len(across) != 2 or len(along) != 2:
        raise ValueError("a chart that is stretched has bars, lines and texts")
    left, right, top, bottom = min(across), max(across), min(along), max(along)
    is_mark = right - left <= _MARK and abs(right - left - (bottom - top)) < 0.3
    wide = f"{right - left:.1f}" if is_mark else _share(right - left, width)
    place = f'x="{_share(left, width)}" y="{top:.1f}" width="{wide}" height="{bottom - top:.1f}"'
    return f"<rect {place}{look}/>"


def _lines(spots: list[Spot], width: float, look: str) -> str:
    return "".join(
        f'<line x1="{_share(x, width)}" y1="{y:.1f}" x2="{_share(to_x, width)}" '
        f'y2="{to_y:.1f}"{look}/>'
        for (x, y), (to_x, to_y) in itertools.pairwise(spots)
    )


def _parts(path: str) -> Iterator[tuple[list[Spot], bool]]:
    """Yield the lines of a path in steps, and whether each is closed."""
    spots: list[Spot] = []
    for step, text in _STEP.findall(path):
        numbers = [float(each) for each in text.split()]
        x, y = spots[-1] if spots else (0.0, 0.0)
        if step == "z":
            yield spots, True
            spots = []
        elif step == "M":
            if spots:
                yield spots, False
            spots = [(numbers[0], numbers[1])]
        else:
            right = numbers[0] if step in "hl" else 0.0
            spots.append(
                (round(x + right, 1), round(y + (numbers[-1] if step in "vl" else 0.0), 1))
            )
    if spots:
        yield spots, False


def _share(value: float, width: float) -> str:
    return f"{100 * value / width:.2f}%"
