"""The pictures of a page, by the name of what they show."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deploykit.reporting.charts.inline import svg
from deploykit.reporting.charts.latencies import latencies
from deploykit.reporting.charts.profiles import nodes, ops
from deploykit.reporting.charts.throughput import loads, throughput
from deploykit.transforms.core.errors import GraphError

MOST_BYTES = 60_000
"""A larger picture is left out: the table beside it says the same."""

Draw = Callable[[Mapping[str, Any]], Any]
_DRAWN: Mapping[str, tuple[tuple[str, Draw], ...]] = {
    "latencies": (("How latencies are spread", latencies),),
    "throughput": (("Throughput over latency", throughput),),
    "ops": (("Time by op", ops),),
    "nodes": (("Time by node", nodes),),
    "loads": (("Throughput over latency under load", loads),),
}


def pictures(name: str, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield labels and SVG elements that show something of a document.

    What cannot be drawn, as the document is old or not whole, is left out: tables show what there
    is of it.
    """
    for label, draw in _DRAWN.get(name, ()):
        try:
            figure = draw(document)
            drawn = "" if figure is None else svg(figure, label)
        except (GraphError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            continue
        if drawn and len(drawn.encode()) <= MOST_BYTES:
            yield label, drawn
