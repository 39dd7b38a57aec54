"""The pictures of a page, by the name of what they show."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deploykit.reporting.charts.classes import classes
from deploykit.reporting.charts.gains import gains
from deploykit.reporting.charts.inline import svg
from deploykit.reporting.charts.latencies import latencies
from deploykit.reporting.charts.layers import layer_noise, layer_times
from deploykit.reporting.charts.profiles import nodes, ops
from deploykit.reporting.charts.replicas import replicas
from deploykit.reporting.charts.roofline import roofline
from deploykit.reporting.charts.throughput import loads, throughput
from deploykit.reporting.charts.warm_ups import warm_ups
from deploykit.transforms.core.errors import GraphError

_BARS = frozenset(("gains", "ops", "nodes", "layer times", "classes"))
"""Charts that are as wide as the page."""
MOST_BYTES = 60_000
"""A larger picture is left out: the table beside it says the same."""

Draw = Callable[[Mapping[str, Any]], Any]
_DRAWN: Mapping[str, tuple[str, Draw]] = {
    "latencies": ("How latencies are spread", latencies),
    "throughput": ("Throughput over latency", throughput),
    "warm-ups": ("Calls before the steady state", warm_ups),
    "gains": ("Speedup, with 95 % intervals", gains),
    "ops": ("Time by op", ops),
    "nodes": ("Time by node", nodes),
    "roofline": ("Roofline: node performance and machine limits", roofline),
    "layer noise": ("Noise by layer, each alone in 8 bits", layer_noise),
    "layer times": ("Time by layer", layer_times),
    "loads": ("Throughput over latency under load", loads),
    "replicas": ("p99 of a replica over its calls", replicas),
    "classes": ("By class", classes),
}


def pictures(name: str, document: Mapping[str, Any], of: str) -> Iterator[tuple[str, str]]:
    """Yield a label and an SVG element that shows what has this name, of a document.

    The label names what it is `of`, where that is not empty.

    What cannot be drawn, as the document is old or not whole, is left out: tables show what there
    is of it.
    """
    label, draw = _DRAWN[name]
    label = f"{label}: {of}" if of else label
    try:
        figure = draw(document)
        drawn = "" if figure is None else svg(figure, label, stretch=name in _BARS)
    except (GraphError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return
    if drawn and len(drawn.encode()) <= MOST_BYTES:
        yield label, drawn
