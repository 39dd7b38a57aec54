"""Charts as inline SVG for a page: small, with unique ids, in the colours of the page."""

import io
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from deploykit.reporting.charts.bars import classes, gains, layer_times, nodes, ops
from deploykit.reporting.charts.chart import Chart
from deploykit.reporting.charts.curves import loads, throughput
from deploykit.reporting.charts.strips import latencies
from deploykit.reporting.charts.style import (
    GRID,
    INK,
    MUTED,
    PAPER,
    SERIES,
    SMALL,
    VARIABLES,
    in_style,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import escaped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_DIGITS = re.compile(r"(\.\d)\d+")
_KEPT = {"fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity",
         "stroke-linejoin", "text-anchor", "fill-opacity", "stroke-opacity"}  # fmt: skip
_DEFAULTS = {"text-anchor": "start", "stroke-linecap": "butt", "stroke-linejoin": "miter",
             "font-size": f"{SMALL:g}px", "fill": INK, "opacity": "0"}  # fmt: skip
_ROOT_STYLE = f"width:100%;height:auto;font-size:{SMALL:g}px;fill:var({VARIABLES[INK]},{INK})"
_DARK = {INK: "#e8e8e8", MUTED: "#b0b0b0", GRID: "#444444", PAPER: "#16181c"} | dict(
    zip(SERIES, ("#56b4e9", "#e69f00", "#2fc79a", "#e39ac6", "#9ad3f5", "#f0e442", "#a0a0a0"),
        strict=True)
)  # fmt: skip


def _rules(colours: dict[str, str]) -> str:
    return ";".join(f"{VARIABLES[light]}:{shown}" for light, shown in colours.items())


CSS = (
    f":root{{{_rules({variable: variable for variable in VARIABLES})}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_rules(_DARK)}}}}}"
)
"""Rules that set the colour variables of charts, light and dark; print is always light."""


def svg(figure: "Figure", label: str) -> str:
    """Return a chart as an `<svg>` element for a page.

    It is as wide as its container. The page sets its font and, by the variables
    in CSS, its colours; without them it uses light colours. Its ids start with a hash of the label,
    so labels on a page must be unique.

    Args:
        figure: a chart.
        label: description for screen readers.
    """
    file = io.BytesIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with in_style():
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    drawn, label = ElementTree.fromstring(file.getvalue()), escaped(label)
    root = ElementTree.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "viewBox": drawn.attrib["viewBox"],
        "role": "img", "aria-label": label, "style": _ROOT_STYLE,
    })  # fmt: skip
    ElementTree.SubElement(root, "title").text = label
    root.extend(_elements(drawn, f"c{zlib.crc32(label.encode()):x}"))
    return ElementTree.tostring(root, encoding="unicode")


def _elements(drawn: ElementTree.Element, prefix: str) -> Iterator[ElementTree.Element]:
    """Yield what matplotlib drew, without the enclosing groups; ids start with the prefix."""
    ids: dict[str, str] = {}
    for item in drawn.iter():
        kind = item.tag.removeprefix(_SVG)
        style = _style(item.attrib.get("style", ""))
        if kind not in ("path", "text", "use") or style == "fill:none":
            continue
        element = ElementTree.Element(kind)
        for name, value in item.attrib.items():
            if name in ("d", "x", "y", "transform") and not value.startswith("rotate(-0 "):
                element.set(name, _DIGITS.sub(r"\1", " ".join(value.split())))
        if style:
            element.set("style", style)
        if kind == "use":
            element.set("href", f"#{ids[item.attrib[_HREF].removeprefix('#')]}")
        if kind == "text":
            element.text = "".join(item.itertext())
        if known := item.attrib.get("id"):  # of a marker, which a "use" element draws
            element.set("id", ids.setdefault(known, f"{prefix}-{len(ids)}"))
            defined = ElementTree.Element("defs")
            defined.append(element)
            yield defined
        else:
            yield element


def _style(style: str) -> str:
    """Return a style without defaults and what the page sets, with colour variables."""
    rules = (rule.partition(":") for rule in style.split(";"))
    retained = {name.strip(): value.strip() for name, _, value in rules if name.strip() in _KEPT}
    if size := re.search(r"([0-9.]+)px", style):  # `font` includes the family
        retained["font-size"] = f"{float(size[1]):g}px"
    for name, value in _DEFAULTS.items():
        if retained.get(name) == value:
            del retained[name]
    return ";".join(
        f"{name}:" + (f"var({VARIABLES[value]},{value})" if value in VARIABLES
                      else _DIGITS.sub(r"\1", value))
        for name, value in retained.items()
    )  # fmt: skip


MAX_BYTES = 80_000
"""A larger chart is skipped, as a table on the page contains the same values."""

Draw = Callable[[Mapping[str, Any]], Chart | None]
_DRAWN: Mapping[str, tuple[str, Draw]] = {
    "latencies": ("Latency distribution", latencies),
    "throughput": ("Throughput over latency", throughput),
    "figures": ("Improvement, with confidence intervals", gains),
    "gains": ("Speedup, with confidence intervals", gains),
    "ops": ("Time by op", ops),
    "nodes": ("Time by node", nodes),
    "layer times": ("Time by layer", layer_times),
    "loads": ("Throughput over latency under load", loads),
    "classes": ("By class", classes),
}


def images(name: str, document: Mapping[str, Any], of: str) -> Iterator[tuple[str, str]]:
    """Yield a label and an SVG element for the chart with this name, of a document.

    The label includes `of` unless that is empty. An old or incomplete document yields nothing;
    tables show its values.
    """
    label, draw = _DRAWN[name]
    label = f"{label}: {of}" if of else label
    try:
        chart = draw(document)
        drawn = "" if chart is None else svg(chart.figure(), label)
    except (GraphError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return
    if drawn and len(drawn.encode()) <= MAX_BYTES:
        yield label, drawn
