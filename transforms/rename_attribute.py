"""An attribute by another name is for another version of its op, or for an op of one's own."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.pattern import ANY, select


def rename_attribute(
    graph: Graph, *, old_attribute_name: str, new_attribute_name: str, op_name: str = ANY
) -> None:
    """Rename an attribute of every node, or of the nodes of one op.

    A node that has both attributes keeps both.

    Args:
        old_attribute_name: the attribute as it is.
        new_attribute_name: its new name.
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
