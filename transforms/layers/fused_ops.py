"""A layer with the ops that one kernel can run with it: bias, sum and activation."""

import math
from collections.abc import Callable, Container
from dataclasses import dataclass

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.pattern import needed_elsewhere
from deploykit.transforms.layers.composites import gelu_of
from deploykit.transforms.layers.layers import channel_axes, channels_first, weights_of
from deploykit.transforms.shapes.sizes import require
from deploykit.transforms.shapes.static_shapes import Shapes

ADD_OPS = frozenset({"Add", "AddV2"})
BATCHES = (5, 1009)  # sizes linear in the batch that are equal at both are always equal


@dataclass(frozen=True)
class Chain:
    """A layer and the nodes that its kernel includes."""

    nodes: tuple[Node, ...]
    bias: str = ""
    summand: str = ""
    activation: Node | None = None
    """The last node of the activation."""
    gelu: str = ""
    """Kind of a GELU activation: GeluExact or GeluApproximate."""

    @property
    def biased(self) -> str:
        """The tensor of the layer with its bias, if it has one."""
        return self.nodes[1 if self.bias else 0].name

    @property
    def activation_op(self) -> str:
        """Name of the activation in the kernels; empty: none."""
        return self.gelu or ("" if self.activation is None else self.activation.op)


def chain(
    graph: Graph,
    layer: Node,
    activations: Container[str] = (),
    same_shape: Callable[[str, str], bool] | None = None,
) -> Chain:
    """Return the layer with the following nodes that one kernel can include.

    These are a constant bias, then (after a Conv2D) the sum with another tensor whose shape is
    equal by `same_shape`, then one of the activations; `Gelu` means GELU, which consists of several
    nodes.
    """
    nodes, bias, summand = [layer], "", ""
    while (reader := _only_reader(graph, nodes[-1])) is not None:
        last = nodes[-1].name
        others = [tensor for tensor in reader.data_inputs if tensor != last]
        if reader.op in activations:
            return Chain((*nodes, reader), bias, summand, reader)
        if nodes == [layer] and _is_bias(graph, layer, reader):
            (bias,) = others
        elif layer.op == "Conv2D" and reader.op in ADD_OPS and not summand:
            if same_shape is None or not same_shape(last, others[0]):
                break
            (summand,) = others
        else:
            break
        nodes.append(reader)
    if "Gelu" in activations and (gelu := gelu_of(graph, nodes[-1])):
        return Chain((*nodes, *gelu.nodes), bias, summand, gelu.nodes[-1], gelu.kind)
    return Chain(tuple(nodes), bias, summand)


def unfit(graph: Graph, op: str, layer: Node) -> str:
    """Return why a private op of oneDNN does not support a layer, or an empty string."""
    if reason := limit(op, layer):
        return reason
    if weights_of(graph, layer) is None:
        return "its weights are not constant"
    return "it is fed" if graph.is_input(layer.name) else ""


def channel_count(graph: Graph, layer: Node) -> int:
    """Return the number of output channels of a layer with constant weights."""
    shape = require(weights_of(graph, layer)).shape
    return math.prod(shape[axis] for axis in channel_axes(layer))


def shape_comparison(graph: Graph) -> Callable[[str, str], bool]:
    """Return a function that tests whether two tensors have the same shape at every batch.

    A kernel writes out of bounds for a smaller summand. So sums are not fused if two inputs could
    be fed with different batches.
    """
    fed = [node for node in graph if node.op in FEEDABLE_OPS or graph.is_input(node.name)]
    if len(fed) > 1 or any(node.op not in FEEDABLE_OPS for node in fed):
        return lambda _, __: False
    at_batches = [Shapes(graph.copy(), batch) for batch in BATCHES]

    def same(one: str, other: str) -> bool:
        shapes = [(at.full_shape(one), at.full_shape(other)) for at in at_batches]
        return all(a is not None and a == b for a, b in shapes)

    return same


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the only node that needs another one's value, or None."""
    readers = graph.readers(node.name)
    if len(readers) != 1 or needed_elsewhere(graph, [node, readers[0]]):
        return None
    return readers[0] if node.name in readers[0].data_inputs else None


def _is_bias(graph: Graph, layer: Node, step: Node) -> bool:
    """Return whether a step adds one constant to each channel of a layer."""
    if step.op not in ADD_OPS | {"BiasAdd"} or channels_first(step):
        return False
    constants = [graph.constant(t) for t in step.data_inputs if t != layer.name]
    return [c.shape for c in constants if c is not None] == [(channel_count(graph, layer),)]
