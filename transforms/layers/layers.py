"""Layers: ops that multiply their input by weights, the axes of their output channels, and new
names for changed tensors.
"""

from collections.abc import Iterable

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.transforms.shapes.sizes import require

# Op: rank of its output. The weights are the second input of each.
LAYER_OPS = {
    "Conv2D": 4,
    "Conv2DBackpropInput": 4,
    "Conv3D": 5,
    "DepthwiseConv2dNative": 4,
    "MatMul": 2,
}
# Private op for a layer and the ops that follow it: the layer's op.
PRIVATE_OPS = {
    "_FusedQuantizedConv2D": "Conv2D",
    "_FusedQuantizedDepthwiseConv2D": "DepthwiseConv2dNative",
    "_MklNativeFusedConv2D": "Conv2D",
    "_MklNativeFusedDepthwiseConv2dNative": "DepthwiseConv2dNative",
    "_MklNativeFusedMatMul": "MatMul",
    "_QuantizedMatMul": "MatMul",
}
WEIGHTS = 1  # input index of the weights
FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


def channel_axes(layer: Node) -> tuple[int, ...]:
    """Return the axes of a layer's weights that index its output channels.

    Conv2D [h, w, in, out]: (3,); Conv3D: (4,); Conv2DBackpropInput [h, w, out, in]: (2,);
    DepthwiseConv2dNative [h, w, in, multiplier]: (2, 3); MatMul [in, out]: (1,), transposed (0,).
    """
    if layer.op == "MatMul":
        return (0,) if layer.attr("transpose_b", False) else (1,)
    return {"Conv2D": (3,), "Conv2DBackpropInput": (2,), "Conv3D": (4,)}.get(layer.op, (2, 3))


def channel_shape(layer: Node, weights: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which one value per output channel broadcasts against the weights."""
    axes = channel_axes(layer)
    return tuple(size if axis in axes else 1 for axis, size in enumerate(weights))


def channels_first(node: Node) -> bool:
    """Return whether a node's data format is NCHW or NCDHW."""
    return str(node.attr("data_format", "NHWC")).startswith("NC")


def per_channel(layer: Node, value: Array, channels: int) -> Array | None:
    """Return `value` as a vector if it broadcasts only along the output channels, else None."""
    rank = LAYER_OPS[layer.op]
    axis = 1 if channels_first(layer) else rank - 1
    expected = [channels if i == axis else 1 for i in range(rank)]
    if value.ndim > rank or [1] * (rank - value.ndim) + list(value.shape) != expected:
        return None
    return value.reshape(channels)


def weights_of(graph: Graph, layer: Node) -> Node | None:
    """Return the Const of a layer's float weights, or None if they are computed."""
    inputs = layer.data_inputs
    if layer.attr("T") not in FLOATS or len(inputs) <= WEIGHTS:
        return None
    return graph.constant(inputs[WEIGHTS])


def own_weights(graph: Graph, layer: Node) -> bool:
    """Return whether only the layer reads its weights, directly or through Identity nodes."""
    reader, node = layer, graph.producer(layer.data_inputs[WEIGHTS])
    while graph.feeds_only(node, reader):
        if node.op == "Const":
            return reader is not layer or layer.data_inputs.count(node.name) == 1
        reader, node = node, graph.producer(node.data_inputs[0])
    return False


def with_weights(graph: Graph, layer: Node, old: Node, weights: Array) -> Node:
    """Return the layer with other weights: in the old Const, or in a new one if it is shared."""
    if own_weights(graph, layer):
        graph.replace(graph[old.name], graph[old.name].with_value(weights))
        return layer
    new = graph.constant_beside(old, weights, f"{layer.name}/weights", old.attr("dtype"))
    inputs = list(layer.data_inputs)
    inputs[WEIGHTS] = new.name
    return layer.with_data_inputs(*inputs)


def scaled(weights: Array, scale: Array) -> Array:
    """Return the weights times a scale that broadcasts to them, computed in float64 in chunks."""
    result = np.empty_like(weights)
    with np.errstate(over="ignore"):
        np.multiply(weights, scale, out=result, dtype=np.float64, casting="unsafe")
    return result


def bias_add(graph: Graph, name: str, layer: Node, bias: Array, ending: str = "_bn_offset") -> Node:
    """Return a BiasAdd after the layer, one value per channel, and add the Const that it reads."""
    value = bias.astype(numpy_type(layer.attr("T")))
    const = graph.constant_beside(layer, value, layer.name + ending)
    add = Node(name, "BiasAdd", (layer.name, const.name), device=layer.device)
    data_format = "NCHW" if channels_first(layer) else "NHWC"
    return add.with_attrs(T=layer.attr("T"), data_format=data_format)


def matrix_of(graph: Graph, layer: Node) -> Array:
    """Return weights as float64 [..., in, out], or [h, w, channels] of a depthwise layer.

    The layer has constant weights, and one filter per channel if it is depthwise.
    """
    weights: Array = require(weights_of(graph, layer)).value.astype(np.float64)
    if layer.op == "DepthwiseConv2dNative":
        return weights[..., 0]
    return weights.T if layer.attr("transpose_b", False) else weights


def set_matrix(graph: Graph, layer: Node, matrix: Array) -> None:
    """Set a layer's float32 weights from the layout that `matrix_of` returns."""
    const = require(weights_of(graph, layer))
    value = matrix.T if layer.attr("transpose_b", False) else matrix
    value = np.ascontiguousarray(value.reshape(const.shape), np.float32)
    graph.replace(layer, with_weights(graph, layer, const, value))


def has_weights(graph: Graph, node: Node, tensor: str = "") -> bool:
    """Return whether a node has finite, constant float32 weights, and channels last.

    With `tensor`, the tensor must be the factor of the weights.
    """
    if node.attr("T") != "float32" or channels_first(node) or graph.is_input(node.name):
        return False
    if tensor and (node.data_inputs[0] != tensor or node.data_inputs[WEIGHTS] == tensor):
        return False
    const = weights_of(graph, node)
    return const is not None and bool(np.isfinite(const.value).all())


def is_product(graph: Graph, node: Node, tensor: str = "") -> bool:
    """Return whether a node is a float32 MatMul of rows with finite, constant weights.

    With `tensor`, the tensor must be the factor of the weights.
    """
    if node.op != "MatMul" or node.attr("transpose_a", False):
        return False
    return has_weights(graph, node, tensor)


def only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the one node that reads a node, if nothing else needs it; else None."""
    readers = graph.readers(node.name)
    return readers[0] if len(readers) == 1 and graph.feeds_only(node, readers[0]) else None


def rename(graph: Graph, names: Iterable[str], ending: str) -> None:
    """Append an ending to the names of nodes that are not inputs or outputs."""
    graph.supersede({n: graph.add_copy(graph[n], f"{n}{ending}").name for n in names})
