"""A chart as SVG inside a page: small, without ids, in the colours that the page sets."""

import io
import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from deploykit.reporting.charts.lettering import clean
from deploykit.reporting.charts.stretched import stretched
from deploykit.reporting.charts.style import (
    GRID,
    INK,
    MUTED,
    PAPER,
    SERIES,
    TEXT,
    VARIABLES,
    in_style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAME = "{http://www.w3.org/2000/svg}"
_REFERENCES = ("use", "clipPath", "image")
_KEPT = {"fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity",
         "stroke-linejoin", "text-anchor", "fill-opacity", "stroke-opacity"}  # fmt: skip
_DEFAULTS = {"text-anchor": "start", "stroke-linecap": "butt", "stroke-linejoin": "miter"}
_DARK = {INK: "#e8e8e8", MUTED: "#b0b0b0", GRID: "#444444", PAPER: "#16181c"} | dict(
    zip(SERIES, ("#56b4e9", "#e69f00", "#2fc79a", "#e39ac6", "#9ad3f5", "#f0e442", "#a0a0a0"),
        strict=True)
)  # fmt: skip


def _rules(colours: dict[str, str]) -> str:
    return ";".join(f"{VARIABLES[light]}:{shown}" for light, shown in colours.items())


CSS = (
    f":root{{{_rules({each: each for each in VARIABLES})}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_rules(_DARK)}}}}}"
)
"""Rules that set the variables of charts, light and dark; paper is always light in print."""


def svg(figure: "Figure", label: str, stretch: bool = False) -> str:
    """Return a chart as an `<svg>` element for a page.

    It is as wide as its place and at most 30 letters' heights, has neither ids nor styles that
    reach beyond it, takes its letters from the page, and its colours from the variables in CSS
    (light ones, where a page sets none). ValueError: the figure is not a chart of this package.

    Args:
        figure: a chart.
        label: what it shows, for those who cannot see it.
        stretch: whether it is as wide as the page, its letters as high as ever; for bar charts.
    """
    file = io.BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with in_style():
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(file.getvalue())
    label = escape(clean(label), quote=True)
    box = " ".join(_short(float(each)) for each in root.attrib["viewBox"].split())
    width, height = box.split()[2:]
    elements = "".join(_elements(root))
    if stretch:
        size, view = f"height:{height}px;overflow:visible", 'class="stretch"'
        elements = stretched(elements, float(width))
    else:
        size, view = "max-width:30rem;height:auto", f'viewBox="{box}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{label}" '
        f'style="width:100%;{size};font-size:{TEXT:g}px;fill:var({VARIABLES[INK]},{INK})">'
        f"<title>{label}</title>{elements}</svg>"
    )


def _elements(root: ElementTree.Element) -> Iterator[str]:
    """Yield what is drawn, without the groups around it."""
    for each in root.iter():
        kind = each.tag.removeprefix(_NAME)
        if kind in _REFERENCES or "clip-path" in each.attrib:
            raise ValueError(f"a chart for a page has no {kind}")
        rules = (rule.partition(":") for rule in each.attrib.get("style", "").split(";"))
        style = {name.strip(): value.strip() for name, _, value in rules if value}
        if kind == "path" and (style.get("fill") != "none" or "stroke" in style):
            yield f'<path d="{_path(each.attrib["d"])}"{_style(style)}/>'
        elif kind == "text":
            yield _text(each, style)


def _text(element: ElementTree.Element, style: dict[str, str]) -> str:
    font = style.pop("font", "")
    if size := re.search(r"([0-9.]+)px", font):
        style["font-size"] = f"{_short(float(size[1]))}px" if float(size[1]) != TEXT else ""
    if style.get("fill") == INK:
        del style["fill"]
    style["font-weight"] = "bold" if "bold" in font or "700" in font else ""
    x, y = (_short(float(element.attrib[each])) for each in "xy")
    written = escape("".join(element.itertext()), quote=False)
    return f'<text x="{x}" y="{y}"{_style(style)}>{written}</text>'


def _style(style: dict[str, str]) -> str:
    """Return the style that says something, with variables for colours."""
    found = []
    for name, value in style.items():
        if not value or _DEFAULTS.get(name) == value or name not in _KEPT | {
            "font-size", "font-weight",
        }:  # fmt: skip
            continue
        if value in VARIABLES:
            value = f"var({VARIABLES[value]},{value})"
        found.append(f"{name}:{value}")
    return f' style="{";".join(found)}"' if found else ""


def _path(drawn: str) -> str:
    """Return a path of straight lines with a digit behind the point, and in steps."""
    found, at, start = [], (0.0, 0.0), (0.0, 0.0)
    for command, numbers in re.findall(r"([MLz])([^MLz]*)", drawn):
        if command == "z":
            found.append("z")
            at = start
            continue
        x, y = (round(float(each), 1) for each in numbers.split())
        across, along = x - at[0], y - at[1]
        if command == "M":
            found.append(f"M{_short(x)} {_short(y)}")
            start = (x, y)
        elif not round(along, 1):
            # A line without length is a dot, if its ends are round.
            found.append(f"h{_short(across)}")
        elif not round(across, 1):
            found.append(f"v{_short(along)}")
        else:
            found.append(f"l{_short(across)} {_short(along)}")
        at = (x, y)
    return "".join(found)


def _short(value: float) -> str:
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
