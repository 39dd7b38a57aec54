"""The pictures of a page, by the name of what they show."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deploykit.reporting.charts.bars import classes, gains, layer_times, nodes, ops
from deploykit.reporting.charts.chart import Chart
from deploykit.reporting.charts.curves import loads, replicas, throughput
from deploykit.reporting.charts.inline import svg
from deploykit.reporting.charts.points import layer_noise, roofline
from deploykit.reporting.charts.strips import latencies, warm_ups
from deploykit.transforms.core.errors import GraphError

MOST_BYTES = 60_000
"""A larger picture is left out: the table beside it says the same."""

Draw = Callable[[Mapping[str, Any]], Chart | None]
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
        chart = draw(document)
        drawn = "" if chart is None else svg(chart.figure(), label)
    except (GraphError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return
    if drawn and len(drawn.encode()) <= MOST_BYTES:
        yield label, drawn
