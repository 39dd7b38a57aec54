"""How near a result has to come to its reference, by the graphs that are compared."""

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.differences import QualityBar
from deploykit.verification.tolerance import default_tolerance

QUANTIZED_BAR_DB = 15.0  # below this a quantized graph's answers are noise (int8.md, rule 10)


def bar_between(
    reference: Graph, result: Graph, tolerance: float | None, min_sqnr: float | None
) -> QualityBar:
    """Return the bar that is given, or else what such a result is held to."""
    if tolerance is not None:
        return QualityBar(tolerance)
    if min_sqnr is not None:
        return QualityBar(None, min_sqnr)
    if _is_quantized(result) and not _is_quantized(reference):
        return QualityBar(None, QUANTIZED_BAR_DB)
    return QualityBar(default_tolerance(reference))


def _is_quantized(graph: Graph) -> bool:
    return any("Quantize" in node.op or node.op == "Dequantize" for node in graph)
