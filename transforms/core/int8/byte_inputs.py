"""Floats that are bytes in other units, such as pixels from -1 to 1: the bytes are their codes."""

from dataclasses import dataclass

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, split

_LINEAR = frozenset({"Add", "AddV2", "BiasAdd", "Mul", "RealDiv", "Sub"})


@dataclass(frozen=True)
class Bytes:
    """A tensor of uint8, of which another is `scale * byte + offset`."""

    tensor: str
    scale: float
    offset: float


def bytes_of(graph: Graph, tensor: str) -> Bytes | None:
    """Return the bytes that a float tensor is made of, one number for all; None if it is not.

    Followed are Cast, Identity, and sums and products with a constant that is a single number.
    """
    scale, offset = 1.0, 0.0  # of the tensor reached so far
    while not graph.is_input(tensor):
        name, port = split(tensor)
        node = graph[name]
        if port or not node.data_inputs:
            return None
        first = node.data_inputs[0]
        if node.op == "Cast" and node.attr("SrcT") == "uint8" and node.attr("DstT") == "float32":
            return Bytes(first, scale, offset) if scale > 0 else None
        if node.op == "Identity":
            tensor = first
            continue
        step = _step(graph, node)
        if step is None:
            return None
        tensor, factor, term = step
        scale, offset = scale * factor, offset + scale * term
    return None


def _step(graph: Graph, node: Node) -> tuple[str, float, float] | None:
    """Return what a node reads, and the factor and the term that it applies to it."""
    if node.op not in _LINEAR:
        return None
    left, right = node.data_inputs
    number = _number(graph, right)
    is_left = number is not None
    if number is None:
        number = _number(graph, left)
    if number is None:
        return None
    tensor = left if is_left else right
    if node.op == "Mul":
        return tensor, number, 0.0
    if node.op == "RealDiv":
        return (tensor, 1 / number, 0.0) if is_left and number else None
    if node.op == "Sub":
        return (tensor, 1.0, -number) if is_left else (tensor, -1.0, number)
    return tensor, 1.0, number


def _number(graph: Graph, tensor: str) -> float | None:
    """Return the one number of a constant that changes no shape, or None."""
    const = graph.constant(tensor)
    if const is None or len(const.shape) > 1 or const.value.size != 1:
        return None
    return float(const.value.reshape(()))
