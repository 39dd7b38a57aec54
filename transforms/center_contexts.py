"""Attention weights sum to 1, so a constant in all values passes through attention unchanged."""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import lift, through
from deploykit.transforms.layers.fused_ops import ADD_OPS
from deploykit.transforms.layers.layers import is_product, only_reader
from deploykit.transforms.shapes.sizes import require
from deploykit.transforms.shapes.static_shapes import Shapes

_BATCH = 3
_MOVING = frozenset({"Identity", "Reshape", "Transpose"})
_BATCHED = frozenset({"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})


@dataclass(frozen=True)
class _Context:
    """The bias of attention's values, and the nodes up to a product that reads the context."""

    bias: Node
    """The node that adds the constant."""
    path: tuple[Node, ...]
    product: Node
    channels: Array
    """For each channel that the product reads: its index in the bias."""


def center_contexts(graph: Graph, *, ranges: str) -> None:
    """Move the midrange of the attention context into the next bias, to reduce the int8 error.

    Softmax gives weights that sum to 1, so the bias of the values passes unchanged into each
    weighted mean. The bias of the product that reads the means takes it over. The result is exact
    in float32. The values may pass only through Reshape, Transpose and the attention product, and
    each tensor must have one reader. Changed tensors are named NAME_centered, so calibrate the
    graph again.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
    """
    known, shapes = load_ranges(ranges), Shapes(graph.copy(), _BATCH)
    for node in list(graph):
        if node.op != "Softmax" or node.name not in graph:
            continue
        result = _context(graph, shapes, node)
        if isinstance(result, str):
            graph.skip(node, result)
            continue
        seen = known.tensors.get(result.product.data_inputs[0])
        count = result.channels.size
        if seen is None or not len(seen.channel_min) == len(seen.channel_max) == count:
            graph.skip(node, f"the ranges do not contain '{result.product.data_inputs[0]}'")
        else:
            middle = (np.array(seen.channel_min) + np.array(seen.channel_max)) / 2
            _center(graph, result, middle)


def _context(graph: Graph, shapes: Shapes, softmax: Node) -> _Context | str:
    """Return the context of a Softmax and its reader, or the reason why it cannot be centered."""
    mixing = only_reader(graph, softmax)
    if mixing is None or mixing.op not in _BATCHED | {"Einsum"}:
        return "it is not the weights of one attention product"
    if len(mixing.data_inputs) != 2 or mixing.data_inputs.count(softmax.name) != 1:
        return "it is not the weights of one attention product"
    place = 1 - mixing.data_inputs.index(softmax.name)
    before: list[Node] = []
    node, reader = graph.producer(mixing.data_inputs[place]), mixing
    while node.op in _MOVING and graph.feeds_only(node, reader):
        before.append(node)
        node, reader = graph.producer(node.data_inputs[0]), node
    if not (_bias(graph, node) and graph.feeds_only(node, reader)):
        return "its values have no separate constant bias"
    after: list[Node] = []
    product = only_reader(graph, mixing)
    while product is not None and product.op in _MOVING:
        after.append(product)
        product = only_reader(graph, product)
    last = (after or [mixing])[-1].name
    if product is None or not is_product(graph, product, last):
        return "its result is not read by exactly one product with constant weights"
    path = (*reversed(before), mixing, *after)
    channels = _channels(graph, shapes, node, path)
    if channels is None:
        return "the channels of the bias and of the product do not correspond one to one"
    return _Context(node, path, product, channels)


def _bias(graph: Graph, node: Node) -> str:
    """Return the constant that a node adds, or an empty string."""
    if node.op not in ADD_OPS | {"BiasAdd"} or node.attr("T") != "float32":
        return ""
    if graph.is_input(node.name) or node.attr("data_format", "NHWC") != "NHWC":
        return ""
    tensors = [tensor for tensor in node.data_inputs if graph.constant(tensor) is not None]
    return tensors[0] if len(tensors) == 1 else ""


def _channels(graph: Graph, shapes: Shapes, bias: Node, path: tuple[Node, ...]) -> Array | None:
    """Return the index in the bias of each channel at the end of a path, or None.

    The indices pass through the ops of the path as values would, at a batch of three.
    """
    const = graph.constant(_bias(graph, bias))
    shape = shapes.full_shape(bias.name)
    if const is None or shape is None:
        return None
    size = const.value.size
    array: Array = np.broadcast_to(np.arange(size).reshape(const.value.shape), shape)
    tensor = bias.name
    for node in path:
        moved: Array | None = array
        if node.op == "Reshape":
            shape = shapes.full_shape(node.name)
            moved = None if shape is None else array.reshape(shape)
        elif node.op == "Transpose":
            order = graph.constant(node.data_inputs[1])
            moved = None if order is None else array.transpose(order.value.ravel().tolist())
        elif node.op != "Identity":
            moved = _mixed(graph, shapes, node, tensor, array)
        if moved is None:
            return None
        array, tensor = moved, node.name
    rows = array.reshape(-1, array.shape[-1])
    is_one_to_one = np.array_equal(np.sort(rows[0]), np.arange(size))
    return rows[0] if is_one_to_one and (rows == rows[0]).all() else None


def _mixed(graph: Graph, shapes: Shapes, node: Node, tensor: str, values: Array) -> Array | None:
    """Return the indices after a product with weights that sum to 1, or None.

    The weights sum to 1 where the product sums over their last axis, to which Softmax was applied,
    and over no other axis.
    """
    place, shape = node.data_inputs.index(tensor), shapes.full_shape(node.name)
    if shape is None:
        return None
    if node.op == "Einsum":
        return _mixed_by_equation(str(node.attr("equation")), place, shape, values)
    turned = node.attr("adj_y" if place else "adj_x", False)
    weights_turned = node.attr("adj_x" if place else "adj_y", False)
    if weights_turned == (place == 1):  # the product does not sum over the weights' last axis
        return None
    axis = -1 if turned == (place == 1) else -2
    first = values.take([0], axis)
    if (values != first).any():
        return None
    # the other axis keeps its position in the result if it stays on its side
    retained = first if axis == (-2 if place else -1) else first.swapaxes(-1, -2)
    return np.broadcast_to(retained, shape)


def _mixed_by_equation(
    equation: str, place: int, shape: tuple[int, ...], values: Array
) -> Array | None:
    """Return the indices after an Einsum of weights and values, or None."""
    operands, _, result = equation.replace(" ", "").partition("->")
    labels = operands.split(",")
    if "." in equation or len(labels) != 2 or any(len(set(t)) < len(t) for t in (*labels, result)):
        return None
    ours, weights = labels[place], labels[1 - place]
    summed = set(ours + weights) - set(result)
    if summed != {weights[-1]} or weights[-1] not in ours:
        return None
    axis = ours.index(weights[-1])
    first = values.take(0, axis)
    if (values != np.expand_dims(first, axis)).any():
        return None
    rest = ours.replace(weights[-1], "")
    ordered = first.transpose([rest.index(label) for label in result if label in rest])
    expanded = tuple(slice(None) if label in rest else np.newaxis for label in result)
    return np.broadcast_to(ordered[expanded], shape)


def _center(graph: Graph, context: _Context, middle: Array) -> None:
    """Subtract the midrange from the bias, and add its effect to the bias of the product."""
    tensor = _bias(graph, context.bias)
    const = require(graph.constant(tensor))
    shift = np.zeros(const.value.size)
    shift[context.channels] = middle
    value = const.value.astype(np.float64) - shift.reshape(const.value.shape)
    product = context.product
    change = through(graph, product, middle)
    new = graph.constant_beside(const, value.astype(np.float32), f"{context.bias.name}/centered")
    moves = {tensor: new.name}
    for node in (context.bias, *context.path):
        copy = graph[node.name].reading(moves)
        moves[node.name] = graph.add_copy(copy, f"{node.name}_centered").name
    del moves[tensor]
    graph.supersede(moves)
    lift(graph, product.name, change)
