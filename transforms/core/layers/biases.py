"""Biases of layers: changed to move a layer's result by a constant per channel."""

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.fused_chain import Chain, chain
from deploykit.transforms.core.layers.layers import bias_add, weights_of
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.tensors import Array


def chain_of(graph: Graph, layer: Node) -> Chain:
    """Return a layer with the constant bias behind it."""
    return chain(graph, layer, frozenset(), lambda _, __: False)


def lift(graph: Graph, layer: str, change: Array, is_shifted: bool = False) -> None:
    """Add a value per channel to the bias of a layer; with `is_shifted`, its result is renamed."""
    if not change.any():
        return
    moves: dict[str, str] = {}
    change_bias(graph, chain_of(graph, graph[layer]), change, moves, is_shifted)
    graph.redirect(moves | {f"^{old}": f"^{new}" for old, new in moves.items()})
    for name in moves:
        graph.remove(graph[name])


def set_bias(graph: Graph, each: Chain, bias: Array) -> None:
    """Give a layer that has a bias another one, one value per channel."""
    biased = each.nodes[1]
    add = bias_add(graph, biased.name, graph[each.nodes[0].name], bias, "/new_bias")
    graph.absorb([biased], into=add)


def through(graph: Graph, layer: Node, offset: Array) -> Array:
    """Return what an offset per input channel adds to each output channel of a layer.

    The layer is none that `mean_output` refuses.
    """
    const = weights_of(graph, layer)
    assert const is not None
    result = mean_output(layer, const.value, offset)
    assert result is not None
    return result


def mean_output(layer: Node, weights: Array, means: Array) -> Array | None:
    """Return what a layer gives for an input of these means, one per channel: float64.

    Weights are [h, w, in / groups, out], [h, w, in, multiplier] (depthwise) or [in, out]; each
    group of output channels sees its own input channels. None where the means are of other channels
    than the weights.
    """
    if layer.attr("transpose_a", False):
        return None
    if layer.op == "MatMul":
        matrix = weights.T if layer.attr("transpose_b", False) else weights
    else:
        matrix = weights.sum((0, 1), dtype=np.float64)
    if layer.op == "DepthwiseConv2dNative":
        return (matrix * means[:, np.newaxis]).reshape(-1) if len(means) == len(matrix) else None
    inputs, outputs = matrix.shape
    groups, rest = divmod(len(means), inputs)
    if rest or not groups or outputs % groups or (groups > 1 and layer.op == "MatMul"):
        return None
    by_group = matrix.astype(np.float64).reshape(inputs, groups, outputs // groups)
    result: Array = np.einsum("igo,gi->go", by_group, means.reshape(groups, inputs))
    return result.reshape(outputs)


def change_bias(
    graph: Graph, each: Chain, change: Array, moves: dict[str, str], is_shifted: bool
) -> None:
    """Put a BiasAdd with another bias behind a layer; under a new name where its value changes."""
    layer = biased = each.nodes[0]
    bias = change
    if each.bias:
        biased = each.nodes[1]
        const = graph.constant(each.bias)
        assert const is not None
        bias = const.value.astype(np.float64) + change
    else:
        layer = graph.add(layer.with_name(graph.unique_name(f"{layer.name}_unbiased")))
    add = bias_add(graph, biased.name, layer, bias, "/shifted_bias")
    add = graph.absorb([biased], into=add)
    if is_shifted:
        moves[biased.name] = shifted_copy(graph, add)


def shifted_copy(graph: Graph, node: Node) -> str:
    """Add a node that gives the shifted value once its inputs have moved; return its name."""
    return graph.add(node.with_name(graph.unique_name(f"{node.name}_shifted"))).name
