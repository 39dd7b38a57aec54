"""The value that an update leaves behind in a variable, computed from the value before it."""

import re

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.ops import FEEDABLE_OPS
from deploykit.transforms.core.shapes.known_shapes import Shapes
from deploykit.transforms.core.tensors import DType

_SUMS = {"AssignAdd": "AddV2", "AssignSub": "Sub"}
_SCATTER = re.compile(r"(?:Resource)?Scatter(Nd)?(Update|Add|Sub|Min|Max)")
_SLICES = ("ResourceStridedSliceAssign", "StridedSliceAssign")
_MASKS = ("begin_mask", "ellipsis_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")


def reads_value_before(update: Node) -> bool:
    """Say whether an update leaves a part of what the variable held before."""
    return _assigned(update) != "Assign"


def value_behind(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    """Add the node that has the value behind an update; return its name, or None for other updates.

    `before` is the tensor that has the variable's value before; an Assign does not read it.
    """
    assigned = _assigned(update)
    given = update.data_inputs[1:]
    if assigned == "Assign":
        return _add(graph, update, "Identity", given[:1], T=dtype)
    if assigned in _SUMS:
        return _add(graph, update, _SUMS[assigned], (before, *given), T=dtype)
    if update.op in _SLICES:
        kept = {name: update.attr(name) for name in (*_MASKS, "Index") if name in update.attrs}
        return _add(graph, update, "TensorStridedSliceUpdate", (before, *given), T=dtype, **kept)
    return _scattered(graph, update, before, dtype)


def _scattered(graph: Graph, update: Node, before: str, dtype: DType) -> str | None:
    match = _SCATTER.fullmatch(update.op)
    if match is None:
        return None
    indices, values = update.data_inputs[1:3]
    index_type = update.attr("Tindices")
    if not match[1]:  # whole rows, which one value alone may fill
        if not Shapes(graph).shape(values):
            return None
        axis = Node.constant(graph.unique_name(f"{update.name}/axis"), np.array(-1, np.int32))
        graph.add(axis)
        rows = Node(graph.unique_name(f"{update.name}/rows"), "ExpandDims", (indices, axis.name))
        indices = graph.add(rows.with_attrs(T=index_type, Tdim=DType("int32"))).name
    op = f"TensorScatter{match[2]}"
    return _add(graph, update, op, (before, indices, values), T=dtype, Tindices=index_type)


def _add(graph: Graph, update: Node, op: str, inputs: tuple[str, ...], **attrs: object) -> str:
    name = graph.unique_name(f"{update.name}/value")
    return graph.add(Node(name, op, tuple(inputs)).with_attrs(**attrs)).name


def _assigned(update: Node) -> str:
    return update.op.removesuffix("VariableOp")


def is_zero(graph: Graph, tensor: str) -> bool:
    """Say whether all values of a tensor are 0, whatever is fed."""
    node = graph.producer(tensor)
    if node.op in FEEDABLE_OPS or graph.is_input(node.name):
        return False
    if node.op == "ZerosLike":
        return True
    source = node.data_inputs[1] if node.op == "Fill" else tensor
    constant = graph.constant(source)
    return constant is not None and constant.attr("dtype") != "string" and not constant.value.any()
