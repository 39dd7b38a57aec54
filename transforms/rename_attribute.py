"""Another version of an op, or a custom op, may use another name for an attribute."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.pattern import ANY, select


def rename_attribute(
    graph: Graph, *, old_attribute_name: str, new_attribute_name: str, op_name: str = ANY
) -> None:
    """Rename an attribute of every node, or of the nodes of one op.

    A node that has both attributes keeps both.

    Args:
        old_attribute_name: current name of the attribute.
        new_attribute_name: new name of the attribute.
        op_name: the op whose nodes are edited; * for all.
    """
    for node in select(graph, [op_name]):
        if old_attribute_name not in node.attrs or old_attribute_name == new_attribute_name:
            continue
        if new_attribute_name in node.attrs:
            graph.skip(node, f"it has an attribute '{new_attribute_name}' already")
            continue
        value = node.attrs[old_attribute_name]
        attrs = {old_attribute_name: None, new_attribute_name: value}
        graph.replace(node, node.with_attrs(**attrs))
