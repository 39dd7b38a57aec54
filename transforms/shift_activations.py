"""Readers can compensate a shift of their input in their biases."""

from collections.abc import Mapping

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.affine import (
    SameShape,
    change_bias,
    linear_chains,
    passes_on,
    shifted_copy,
    through,
)
from deploykit.transforms.layers.fused_ops import Chain, channel_count, shape_comparison
from deploykit.transforms.layers.layers import weights_of
from deploykit.transforms.layers.padding import zeros_around
from deploykit.transforms.shapes.sizes import require


def shift_activations(graph: Graph, *, ranges: str) -> None:
    """Shift signed tensors to start at zero in each channel, so that int8 codes need no sign.

    A layer without activation has negative values. Its bias raises each channel by the amount that
    it is below zero, and the layers that read it compensate that in their biases. Residual sums,
    Identity, MaxPool and AvgPool without padding pass the shift on. The result is exact in float32.
    A tensor is not changed if a reader cannot compensate: padding of a convolution adds zeros that
    would have to shift as well, an activation is not linear, an output has to keep its value. A
    shifted tensor is named NAME_shifted, so calibrate the graph again.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
    """
    known = load_ranges(ranges)
    same_shape = shape_comparison(graph)
    chains = linear_chains(graph, same_shape)
    obstacles = _obstacles(graph, chains, same_shape)
    expected = _wanted(graph, chains, obstacles, known, ranges)
    offsets: dict[str, Array] = {}  # by tensor, under its old name: readers move at the end
    moves: dict[str, str] = {}
    for name in graph.order():
        if name in chains:
            _shift(graph, chains[name], expected[name], offsets, moves)
        elif obstacles.get(name) == "":
            passed = [offsets[t] for t in graph[name].data_inputs if t in offsets]
            if passed:
                offsets[name] = np.sum(passed, axis=0)
                moves[name] = shifted_copy(graph, graph[name])
    graph.supersede(moves)


def _obstacles(graph: Graph, chains: Mapping[str, Chain], same_shape: SameShape) -> dict[str, str]:
    """Return why a tensor cannot be shifted, or an empty string, by the node that computes it.

    It makes one pass against the execution order: a node that passes an offset on can take one if
    its readers can. Nodes that are not the last of a chain and do not pass offsets on are not
    included.
    """
    layers = {chain.nodes[0].name for chain in chains.values()}
    obstacles: dict[str, str] = {}

    def can_take(reader: Node, tensor: str) -> bool:
        if reader.name in layers:
            return reader.data_inputs[0] == tensor and _can_undo(graph, reader)
        # the bias before a layer's sum compensates the offset of the summand
        return reader.name in chains or obstacles.get(reader.name) == ""

    for name in reversed(graph.order()):
        node = graph[name]
        if name not in chains and not passes_on(node, same_shape):
            continue
        if graph.is_output(name):
            obstacles[name] = "it is an output of the graph"
        elif graph.is_input(name):
            obstacles[name] = "it is fed"
        elif not graph.readers(name):
            obstacles[name] = "no node reads it"
        else:
            readers = [r for r in graph.readers(name) if not can_take(r, name)]
            shown = [f"'{reader.name}' ({reader.op})" for reader in readers]
            obstacles[name] = f"{shown[0]} cannot take an offset back" if shown else ""
    return obstacles


def _can_undo(graph: Graph, layer: Node) -> bool:
    """Return whether an input offset shifts a layer's result equally at each position."""
    weights = require(weights_of(graph, layer))
    if layer.op == "MatMul":
        unpadded = not layer.attr("transpose_a", False)
    else:
        zeros = zeros_around(layer, weights.shape)
        unpadded = zeros is not None and not any(map(any, zeros.values()))
    is_dense = layer.op in ("Conv2D", "MatMul")
    return is_dense and unpadded and bool(np.isfinite(weights.value).all())


def _wanted(
    graph: Graph,
    chains: Mapping[str, Chain],
    obstacles: Mapping[str, str],
    known: Ranges,
    path: str,
) -> dict[str, Array]:
    """Return the offset of the result of each chain; zeros if it cannot have one.

    GraphError: the ranges belong to another graph.
    """
    candidates = [name for name in chains if not obstacles[name]]
    if candidates and known.tensors.keys().isdisjoint(candidates):
        raise GraphError(
            "ranges-lack-tensors", source=path, action="shifted", example=candidates[0]
        )
    expected: dict[str, Array] = {}
    for name, item in chains.items():
        channels = channel_count(graph, item.nodes[0])
        expected[name] = np.zeros(channels)
        reason = obstacles[name] or ("" if name in known.tensors else "the ranges lack it")
        if graph.skip(graph[name], reason):
            continue
        try:
            smallest = known.of(name, channels).channel_min
        except GraphError as error:
            raise error.within(path) from None
        expected[name] = np.maximum(0.0, np.negative(smallest))
    return expected


def _shift(
    graph: Graph,
    chain: Chain,
    offset: Array,
    offsets: dict[str, Array],
    moves: dict[str, str],
) -> None:
    """Change the bias of a chain, so that its result has the offset.

    The bias compensates the offset of the layer's input; a sum adds that of the summand itself.
    """
    layer, last = chain.nodes[0], chain.nodes[-1]
    change = lift = offset - offsets.get(chain.summand, 0.0)
    if layer.data_inputs[0] in offsets:
        change = lift - through(graph, layer, offsets[layer.data_inputs[0]])
    if change.any() or lift.any():
        change_bias(graph, chain, change, moves, is_shifted=bool(lift.any()))
    if offset.any():
        offsets[last.name] = offset
        if chain.summand:
            moves[last.name] = shifted_copy(graph, last)
