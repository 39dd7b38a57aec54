"""Layer norms over the last axis and GELU, recognized by what their nodes compute.

Libraries use different ops for them. So this module compares not the ops but the value that they
compute: scale * (x - mean) / sqrt(variance + epsilon) + offset of a layer norm, and of a GELU (with
Erf, with Erfc, or in the approximation with Tanh) its results at many sample values.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: x times the cumulative normal
distribution at x, and its approximation by Tanh.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

Value = TypeVar("Value")

_MOST_OF_A_NORM = 12
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
    starts = [*graph.readers(row.root), *graph.readers(row.mean)]
    is_fed = any(graph.is_input(node.name) for node in row.nodes)
    best = None
    for steps, value in _following(graph, values, starts, _value, _MOST_OF_A_NORM):
        result = _scale_and_offset(value, channels)
        if result is not None and not is_fed and _is_closed(graph, [*row.nodes, *steps]):
            best = [*steps], result
    return best


def _following(
    graph: Graph,
    values: dict[str, Value],
    starts: list[Node],
    value_of: Callable[[Graph, Node, Mapping[str, Value]], Value | None],
    most: int,
) -> Iterator[tuple[list[Node], Value]]:
    """Yield the steps whose values follow from known ones, each time with the last value."""
    steps: list[Node] = []
    waiting = starts
    while len(steps) < most:
        # a step may also need the result of another step, which is not computed yet
        waiting = [item for item in waiting if item.name not in values]
        ready = ((item, value_of(graph, item, values)) for item in waiting)
        step, value = next(((s, v) for s, v in ready if v is not None), (None, None))
        if step is None or value is None:
            return
        steps.append(step)
        values[step.name] = value
        yield steps, value
        waiting += [reader for reader in graph.readers(step.name) if reader not in waiting]


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
        graph.is_output(node.name) or {reader.name for reader in graph.consumers(node.name)} - names
        for node in nodes[:-1]
    )


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

# Ops of such a function, with one or two operands.
_STEPS: Mapping[str, Callable[..., Array]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Erf": _erf,
    "Erfc": _erfc,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Pow": np.power,
    "RealDiv": np.divide,
    "Square": np.square,
    "Sub": np.subtract,
    "Tanh": np.tanh,
}
_TELLING = frozenset({"Erf", "Erfc", "Tanh"})
_MAX_STEPS = 16
_PLACES: Array = np.concatenate([np.linspace(-6, 6, 241), [-40.0, -9.0, 9.0, 40.0]])
_GELUS: Mapping[str, Array] = {
    "GeluExact": _PLACES * (0.5 * _erfc(-_PLACES / math.sqrt(2))),
    "GeluApproximate": 0.5
    * _PLACES
    * (1 + np.tanh(math.sqrt(2 / math.pi) * (_PLACES + 0.044715 * _PLACES**3))),
}
# Constants in float32 have errors of 6e-8; the two functions differ by at most 4.7e-4.
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Gelu:
    """The nodes that compute the GELU of a tensor; the last one returns it."""

    nodes: tuple[Node, ...]
    kind: str
    """GeluExact or GeluApproximate, as TensorFlow's kernels call them."""


def gelu_of(graph: Graph, node: Node) -> Gelu | None:
    """Return the GELU of a node's result, if the result has no other use.

    None as well if an intermediate value has another use, or is fed.
    """
    values: dict[str, Array] = {node.name: _PLACES}
    starts = graph.readers(node.name)
    for steps, result in _following(graph, values, starts, _result, _MAX_STEPS):
        kind = next((k for k, gelu in _GELUS.items() if _is_close(result, gelu)), "")
        is_told = any(item.op in _TELLING for item in steps)
        if kind and is_told and _is_closed(graph, [node, *steps]):
            return Gelu(tuple(steps), kind)
    return None


def _result(graph: Graph, step: Node, values: Mapping[str, Array]) -> Array | None:
    """Return the result of a step at the sample values; None: it is not a known function."""
    if step.op not in _STEPS or graph.is_input(step.name):
        return None
    operands = []
    for tensor in step.data_inputs:
        const = None if tensor in values else graph.constant(tensor)
        if tensor in values:
            operands.append(values[tensor])
        elif const is None or const.value.size != 1 or const.value.ndim > 1:
            return None
        else:
            operands.append(const.value.astype(np.float64).reshape(()))
    with np.errstate(all="ignore"):
        return _STEPS[step.op](*operands)


def _is_close(result: Array, gelu: Array) -> bool:
    return bool((np.abs(result - gelu) <= _TOLERANCE * np.maximum(np.abs(gelu), 1)).all())
