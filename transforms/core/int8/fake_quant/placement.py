"""Fake-quants are put directly behind the layers that they belong to."""

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.fake_quant.grids import ARGS, VARS, grid_of
from deploykit.transforms.core.layers.layers import LAYER_OPS
from deploykit.transforms.core.node import Node, producer_name

_MOVING = frozenset({"ConcatV2", "ExpandDims", "MaxPool", "Reshape", "Squeeze"})
"""Ops that give what they read: a fake-quant before them has the effect of one behind."""
_IN_CHAINS = frozenset({"Add", "AddV2", "BiasAdd", "Relu", "Relu6"})


def place_fake_quants(graph: Graph) -> None:
    """Raise fake-quants above ops that move values, where a layer's result is read there alone.

    TF-MOT states the range of a concatenation behind it, and none for the layers before. Ranges in
    attributes become constants.
    """
    for node in tuple(graph):
        if node.op == ARGS:
            _with_constant_range(graph, node)
    waiting = [node.name for node in graph if node.op == VARS]
    for name in waiting:  # it grows
        waiting += _raised(graph, graph[name])


def _with_constant_range(graph: Graph, node: Node) -> None:
    values = {"min": node.attr("min", -6.0), "max": node.attr("max", 6.0)}
    ends = [
        graph.constant_beside(node, np.array(value, np.float32), f"{node.name}/{end}").name
        for end, value in values.items()
    ]
    inputs = (*node.data_inputs, *ends, *node.control_inputs)
    new = Node(node.name, VARS, inputs, device=node.device)
    kept = {name: node.attrs[name] for name in ("num_bits", "narrow_range") if name in node.attrs}
    graph.replace(node, new.with_attrs(**kept))


def _raised(graph: Graph, node: Node) -> list[str]:
    """Raise a fake-quant above what it reads; return the names of those that come of it."""
    moves = graph.producer(node.data_inputs[0])
    if moves.op not in _MOVING or not graph.feeds_only(moves, node):
        return []
    if isinstance(grid_of(graph, node), str):
        return []
    tensors = moves.data_inputs[:-1] if moves.op == "ConcatV2" else moves.data_inputs[:1]
    if not any(_is_made_by_layer(graph, tensor, moves) for tensor in dict.fromkeys(tensors)):
        return []
    raised = dict[str, str]()
    for tensor in dict.fromkeys(tensors):
        name = graph.unique_name(f"{node.name}/{producer_name(tensor).rpartition('/')[2]}")
        before = node.with_name(name).with_data_inputs(tensor, *node.data_inputs[1:])
        raised[tensor] = graph.add(before).name
    rest = moves.data_inputs[len(tensors) :]
    new = moves.with_name(node.name).with_data_inputs(*map(raised.__getitem__, tensors), *rest)
    graph.absorb([moves, node], into=new)
    return list(raised.values())


def _is_made_by_layer(graph: Graph, tensor: str, reader: Node) -> bool:
    """Say whether a layer, with what its kernel computes behind it, makes a tensor for a reader."""
    while True:
        node = graph.producer(tensor)
        if not graph.feeds_only(node, reader):
            return False
        if node.op in LAYER_OPS:
            return True
        if node.op in _MOVING:
            inputs = node.data_inputs[:-1] if node.op == "ConcatV2" else node.data_inputs[:1]
            return any(_is_made_by_layer(graph, each, node) for each in inputs)
        if node.op not in _IN_CHAINS:
            return False
        if node.op in ("Add", "AddV2"):
            return any(_is_made_by_layer(graph, each, node) for each in node.data_inputs)
        tensor, reader = node.data_inputs[0], node
