"""A node without an attribute uses the default of its op."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.pattern import ANY, select


def remove_attribute(graph: Graph, *, attribute_name: str, op_name: str = ANY) -> None:
    """Remove an attribute from every node, or from the nodes of one op.

    TensorFlow uses the default of a missing attribute, and does not load a node that lacks an
    attribute without a default.

    Args:
        attribute_name: the attribute, such as _class or _output_shapes.
        op_name: the op whose nodes lose the attribute; * for all.
    """
    for node in select(graph, [op_name]):
        if attribute_name in node.attrs:
            graph.replace(node, node.with_attrs(**{attribute_name: None}))
