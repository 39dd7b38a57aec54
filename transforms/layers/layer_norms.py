"""Layer norms over the last axis, recognized by what their nodes compute.

How scale and offset are applied differs between libraries, so matching compares the computed value:
scale * (x - mean) / sqrt(variance + epsilon) + offset.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

_MAX_STEPS = 12
# A product of powers of the row x, its mean m, and the inverse r of its deviation.
_Power = tuple[int, int, int]
_Sum = Mapping[_Power, Array]
_X, _M, _R, _ONE = (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)


@dataclass(frozen=True)
class Row:
    """A row and its tensors, and the epsilon that is added to its variance."""

    x: str
    mean: str
    root: str
    epsilon: float
    nodes: tuple[Node, ...]


def row_of(graph: Graph, root: Node) -> Row | None:
    """Return the row whose deviation a Rsqrt inverts."""
    add = graph.producer(root.data_inputs[0])
    if add.op not in ("Add", "AddV2"):
        return None
    results = [(tensor, graph.constant(tensor)) for tensor in add.data_inputs]
    numbers = [const for _, const in results if const is not None and const.value.size == 1]
    rest = [tensor for tensor, const in results if const is None]
    if len(numbers) != 1 or len(rest) != 1:
        return None
    variance = graph.producer(rest[0])
    if not _is_mean(graph, variance):
        return None
    square = graph.producer(variance.data_inputs[0])
    if square.op != "SquaredDifference":
        return None
    for x, mean in (square.data_inputs, square.data_inputs[::-1]):
        node = graph.producer(mean)
        while node.op == "StopGradient":
            node = graph.producer(node.data_inputs[0])
        if _is_mean(graph, node) and node.data_inputs[0] == x:
            nodes = (node, square, variance, add, root)
            epsilon = float(numbers[0].value.reshape(()))
            return Row(x, node.name, root.name, epsilon, nodes)
    return None


def _is_mean(graph: Graph, node: Node) -> bool:
    """Return whether a node is the mean over the last axis, with that axis kept."""
    if node.op != "Mean" or not node.attr("keep_dims", False) or graph.is_input(node.name):
        return False
    axes = graph.constant(node.data_inputs[1])
    return axes is not None and axes.value.ravel().tolist() in ([-1],)


def norm_of(graph: Graph, row: Row, channels: int) -> tuple[list[Node], tuple[Array, Array]] | None:
    """Return the steps of the longest layer norm of a row, with its scale and offset."""
    one: Array = np.ones((), np.float64)
    values: dict[str, _Sum] = {row.x: {_X: one}, row.mean: {_M: one}, row.root: {_R: one}}
    names = {node.name for node in row.nodes}
    waiting = [*graph.readers(row.root), *graph.readers(row.mean)]
    steps: list[Node] = []
    best = None
    while len(steps) < _MAX_STEPS:
        waiting = [item for item in waiting if item.name not in names]
        ready = ((item, _value(graph, item, values)) for item in waiting)
        step, value = next(((s, v) for s, v in ready if v is not None), (None, None))
        if step is None or value is None:
            break
        names.add(step.name)
        steps.append(step)
        values[step.name] = value
        result = _scale_and_offset(value, channels)
        if result is not None and _is_closed(graph, [*row.nodes, *steps]):
            best = [*steps], result
        waiting += [reader for reader in graph.readers(step.name) if reader not in waiting]
    return best


def _value(graph: Graph, step: Node, values: Mapping[str, _Sum]) -> _Sum | None:
    """Return the result of a step as a sum of products, or None if it is not one."""
    if step.op not in ("Add", "AddV2", "Mul", "Neg", "Sub") or graph.is_input(step.name):
        return None
    operands: list[_Sum] = []
    for tensor in step.data_inputs:
        const = graph.constant(tensor)
        if tensor in values:
            operands.append(values[tensor])
        elif const is not None and const.value.size == max(const.value.shape[-1:], default=1):
            vector = const.value.astype(np.float64).reshape(-1 if const.value.size > 1 else ())
            operands.append({_ONE: vector})
        else:
            return None
    first = operands[0]
    if step.op == "Neg":
        return {power: -factor for power, factor in first.items()}
    second = operands[1]
    result: dict[_Power, Array] = {}
    if step.op == "Mul":
        for a, factor in first.items():
            for b, other in second.items():
                power = (a[0] + b[0], a[1] + b[1], a[2] + b[2])
                result[power] = result.get(power, 0.0) + factor * other
        return result
    sign = -1.0 if step.op == "Sub" else 1.0
    result.update(first)
    for power, factor in second.items():
        result[power] = result.get(power, 0.0) + sign * factor
    return result


def _scale_and_offset(value: _Sum, channels: int) -> tuple[Array, Array] | None:
    """Return scale and offset of a sum that is a layer norm: scale * x * r - scale * m * r + b."""
    up, down, both = (1, 0, 1), (0, 1, 1), {(1, 0, 1), (0, 1, 1)}
    if not both <= value.keys() <= both | {_ONE} or (value[up] != -value[down]).any():
        return None
    parts = (value[up], value.get(_ONE, np.zeros(())))
    if any(part.size not in (1, channels) for part in parts):
        return None
    scale, offset = (np.broadcast_to(part, (channels,)) for part in parts)
    return scale, offset


def _is_closed(graph: Graph, nodes: list[Node]) -> bool:
    """Return whether only these nodes need all but the last."""
    names = {node.name for node in nodes}
    return not any(
        graph.is_output(node.name)
        or graph.is_input(node.name)
        or {reader.name for reader in graph.consumers(node.name)} - names
        for node in nodes[:-1]
    )
