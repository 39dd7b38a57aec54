"""Layers without activation, and the ops that hand on what is done to each of their channels."""

from collections.abc import Callable

from deploykit.transforms.core.checks.kernel_limits import limit
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.fused_chain import ADD_OPS, Chain, chain
from deploykit.transforms.core.layers.layers import channels_first, weights_of
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.pattern import Op

LAYER = Op("Conv2D|DepthwiseConv2dNative|MatMul", name="layer")
SameShape = Callable[[str, str], bool]


def linear_chains(graph: Graph, same_shape: SameShape) -> dict[str, Chain]:
    """Return the layers with their biases and sums, by the last node; each sum belongs to one."""
    chains: dict[str, Chain] = {}
    summands: set[str] = set()

    def free_sum(tensor: str, other: str) -> bool:
        return tensor not in summands and same_shape(tensor, other)

    for match in graph.match(LAYER):
        layer = match["layer"]
        reason = _reason(graph, layer)
        if reason:
            graph.skip(layer, reason)
            continue
        found = chain(graph, layer, frozenset(), free_sum)
        summands.add(found.summand)
        chains[found.nodes[-1].name] = found
    return chains


def _reason(graph: Graph, layer: Node) -> str:
    """Return why a layer's bias cannot be changed, or an empty string."""
    if layer.attr("T") != "float32":
        return f"its type is {layer.attr('T')}, not float32"
    if weights_of(graph, layer) is None:
        return "its weights are not constant"
    if graph.is_input(layer.name):
        return "it is fed"
    if channels_first(layer):
        return "its data format is NCHW; convert_layout makes it NHWC"
    return limit(layer.op, layer.with_attrs(dilations=None))  # those that it has run already


def passes_on(node: Node, same_shape: SameShape, zeros_matter: bool = True) -> bool:
    """Say whether offsets of what a node reads are, added up, the offset of what it gives.

    Without `zeros_matter`: whether factors of what it reads are those of what it gives.
    """
    if node.op in ADD_OPS:
        return same_shape(*node.data_inputs)
    if node.op in ("MaxPool", "AvgPool"):
        within_channels = not channels_first(node) and node.attr("ksize")[-1] == 1
        keeps_zeros = node.op == "MaxPool" or node.attr("padding") == "VALID"
        return within_channels and (keeps_zeros or not zeros_matter)
    return node.op == "Identity"
