"""GELU in any form of ops: with Erf, with Erfc, or in the approximation with Tanh.

Libraries use different ops for it. So this module compares not the ops but the function of one
tensor that they compute, at many sample values.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: x times the cumulative normal
distribution at x, and its approximation by Tanh.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array

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
    steps: list[Node] = []
    waiting = list(graph.readers(node.name))
    while waiting and len(steps) < _MAX_STEPS:
        # a step may also need the result of another step, which is not computed yet
        step = next((item for item in waiting if _operands(graph, item, values)), None)
        if step is None:
            return None
        waiting = [item for item in waiting if item.name != step.name]
        with np.errstate(all="ignore"):
            result = _STEPS[step.op](*_operands(graph, step, values))
        steps.append(step)
        kind = next((k for k, gelu in _GELUS.items() if _is_close(result, gelu)), "")
        if kind and _is_closed(graph, [node, *steps]):
            return Gelu(tuple(steps), kind)
        values[step.name] = result
        waiting += [reader for reader in graph.readers(step.name) if reader not in waiting]
    return None


def _operands(graph: Graph, step: Node, values: Mapping[str, Array]) -> list[Array]:
    """Return the operands of a step; empty: the step is not a known function."""
    if step.op not in _STEPS or step.name in values or graph.is_input(step.name):
        return []
    results = []
    for tensor in step.data_inputs:
        if tensor in values:
            results.append(values[tensor])
            continue
        const = graph.constant(tensor)
        if const is None or const.value.size != 1 or const.value.ndim > 1:
            return []
        results.append(const.value.astype(np.float64).reshape(()))
    return results


def _is_close(result: Array, gelu: Array) -> bool:
    return bool((np.abs(result - gelu) <= _TOLERANCE * np.maximum(np.abs(gelu), 1)).all())


def _is_closed(graph: Graph, nodes: list[Node]) -> bool:
    """Return whether only these nodes need all but the last, and one of them identifies a GELU."""
    names = {node.name for node in nodes}
    for node in nodes[:-1]:
        if graph.is_output(node.name) or (
            {reader.name for reader in graph.consumers(node.name)} - names
        ):
            return False
    return any(node.op in _TELLING for node in nodes)
