"""The scales and shifts that a graph still holds, counted by the reason why no layer holds them."""

from collections import Counter

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import LAYER_OPS

FOLDABLE = "a layer could take it in"
COMPUTED = "both operands are computed"
NO_LAYER = "no layer stands before it"
SHARED = "others read the layer before it too"

STEPS = ("Add", "AddV2", "Sub", "Mul", "RealDiv", "Rsqrt", "FusedBatchNorm", "FusedBatchNormV2",
         "FusedBatchNormV3")  # fmt: skip


def leftovers(graph: Graph) -> Counter[str]:
    """Return how many nodes that scale or shift remain, for each reason."""
    return Counter(_reason(graph, node) for node in graph if node.op in STEPS)


def _reason(graph: Graph, step: Node) -> str:
    computed = [tensor for tensor in step.data_inputs if graph.constant(tensor) is None]
    if len(computed) != 1:
        return COMPUTED
    before = graph.producer(computed[0])
    layer = graph.producer(before.inputs[0]) if before.op == "BiasAdd" else before
    if layer.op not in LAYER_OPS:
        return NO_LAYER
    return FOLDABLE if graph.feeds_only(before, step) else SHARED
