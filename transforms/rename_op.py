"""Another version of an op, or a custom op, can replace an op with the same interface."""

import logging
from dataclasses import replace

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import input_types, op_defs
from deploykit.transforms.ir.pattern import check_ops

logger = logging.getLogger("deploykit")


def rename_op(graph: Graph, *, old_op_name: str, new_op_name: str) -> None:
    """Change the op of all nodes of one op; inputs and attributes do not change.

    A new op that TensorFlow does not have causes a warning: register it before loading the graph.
    The functions of the graph's library are not changed. GraphError: TensorFlow's new op takes
    another number of inputs.

    Args:
        old_op_name: current op.
        new_op_name: op that replaces it.
    """
    check_ops(graph, [old_op_name])
    nodes = [node for node in graph if node.op == old_op_name]
    functions = {function.signature.name for function in graph.library.function}
    if nodes and new_op_name not in op_defs() and new_op_name not in functions:
        logger.warning("TensorFlow has no op %s; register it before loading the graph", new_op_name)
    renamed = [replace(node, op=new_op_name) for node in nodes]
    for node in renamed:
        _check_inputs(node)
    for node in renamed:
        graph.replace(node, node)


def _check_inputs(node: Node) -> None:
    types = input_types(node)
    if types is not None and len(types) != len(node.data_inputs):
        raise GraphError(
            "op-inputs-count",
            node=node.name,
            count=len(node.data_inputs),
            op=node.op,
            expected=len(types),
        )
