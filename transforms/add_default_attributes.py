"""A missing attribute has the default that its op declares."""

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.ops import op_defs


def add_default_attributes(graph: Graph) -> None:
    """Write the default of every attribute that a node does not set.

    Calls of functions of the graph have no defaults and are not changed.
    GraphError: an op is neither a TensorFlow op nor a function of the graph.
    """
    functions = {function.signature.name for function in graph.library.function}
    for node in graph:
        op_def = op_defs().get(node.op)
        if op_def is None:
            if node.op in functions:
                continue
            hint = nearest(node.op, tuple(op_defs()))
            raise GraphError("unknown-op-of-node", node=node.name, op=node.op, hint=hint)
        missing = {
            attr.name: attr.default_value
            for attr in op_def.attr
            if attr.HasField("default_value") and attr.name not in node.attrs
        }
        if missing:
            graph.replace(node, node.with_attrs(**missing))
