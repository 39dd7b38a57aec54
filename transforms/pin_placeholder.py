"""A placeholder that is always fed the same value is a constant, and so are its branches.

Many models switch between training and inference by a placeholder such as `is_training`, which
hides their batch norms in branches; pinned to false, it selects the inference branch.
"""

import math
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.ir.control_flow import fold_dead_branches
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.ops import FEEDABLE_OPS
from deploykit.transforms.ir.tensors import MAX_DECLARED_BYTES, Array, DType, numpy_type

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def pin_placeholder(graph: Graph, *, name: str, value: str) -> None:
    """Replace a placeholder by a constant, and remove the branches that are then never taken.

    A placeholder of known shape is filled with the value; one of unknown rank becomes a scalar. The
    transform also inlines functions, as conditions can be in them.

    Args:
        name: the placeholder, such as is_training.
        value: true or false, a number, or a string, depending on the placeholder's type.
    """
    node = _placeholder(graph, producer_name(name))
    dtype = node.attr("dtype")
    pinned = np.broadcast_to(_converted(node, dtype, value), _shape(node, dtype))
    graph.inputs = tuple(t for t in graph.inputs if producer_name(t) != node.name)
    graph.absorb([node], into=Node.constant(node.name, pinned, dtype, node.device))
    fold_dead_branches(graph)
    inline_functions(graph)
    while fold_dead_branches(graph):
        inline_functions(graph)


def _placeholder(graph: Graph, name: str) -> Node:
    known = tuple(node.name for node in graph if node.op in FEEDABLE_OPS)
    if name not in graph:
        hint = nearest(name, known) or nearest(name, tuple(node.name for node in graph))
        raise GraphError("missing", kind="placeholder", name=name, hint=hint)
    node = graph[name]
    if node.op not in FEEDABLE_OPS:
        raise GraphError("placeholder-not-it", name=name, op=node.op, known=known[:5])
    if node.attr("dtype") in (None, "resource", "variant"):
        raise GraphError("placeholder-type", name=name, type=node.attr("dtype"))
    return node


def _converted(node: Node, dtype: DType, text: str) -> Array:
    """Return a text as a value of a type. GraphError: the text is not such a value."""
    if dtype == "string":
        return np.array(text.encode(), object)
    if dtype == "bool":
        value, kind = _BOOLEANS.get(text.strip().lower()), "true or false"
        result = None if value is None else np.array(value)
    else:
        result, kind = _number(numpy_type(dtype), text), f"a value of type {dtype}"
    if result is None:
        raise GraphError("placeholder-value", node=node.name, expected=kind, got=text)
    return result


def _number(type_: np.dtype[Any], text: str) -> Array | None:
    """Return a text as a number of a type, or None if it is not a number or does not fit."""
    parse: Any = {"i": int, "u": int, "c": complex}.get(type_.kind, float)
    try:
        number = parse(text)
        with np.errstate(all="ignore"):
            result = np.array(number).astype(type_)
        if parse is int:
            return result if int(result) == number else None
        overflows = np.isfinite(number) and not np.isfinite(result.astype(np.complex128))
        return None if overflows else result
    except (ValueError, OverflowError):
        return None


def _shape(node: Node, dtype: DType) -> tuple[int, ...]:
    shape: tuple[int, ...] = node.attr("shape") or ()
    if any(size < 0 for size in shape):
        raise GraphError("placeholder-shape-open", node=node.name, shape=shape)
    if math.prod(shape) * numpy_type(dtype).itemsize > MAX_DECLARED_BYTES:
        raise GraphError("placeholder-too-large", node=node.name, shape=shape)
    return shape
