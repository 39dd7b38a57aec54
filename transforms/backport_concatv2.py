"""Concat takes the axis before the tensors, ConcatV2 after them."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import with_op
from deploykit.transforms.ir.tensors import DType


def backport_concatv2(graph: Graph) -> None:
    """Replace ConcatV2 by Concat, for TensorFlow before 0.12."""
    for node in graph:
        if node.op != "ConcatV2":
            continue
        *tensors, axis = node.data_inputs
        if node.attr("Tidx", DType("int32")) != "int32":
            axis = _axis_as_int32(graph, node, axis)
        graph.replace(node, with_op(node, "Concat").with_data_inputs(axis, *tensors))


def _axis_as_int32(graph: Graph, node: Node, axis: str) -> str:
    const = graph.constant(axis)
    if const is not None:
        new = graph.constant_beside(const, const.value.astype(np.int32), f"{node.name}/axis")
        return new.name
    types = {"SrcT": node.attr("Tidx"), "DstT": DType("int32")}
    return graph.put(f"{node.name}/axis", "Cast", axis, like=node, **types)
