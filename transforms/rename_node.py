"""A graph is the same whatever its nodes are called."""

from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir.functions import rename
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.untrusted.nodes import LEGAL_NAME


def rename_node(graph: Graph, *, old_node_name: str, new_node_name: str) -> None:
    """Rename one node; an input or output of the graph is an input or output by its new name.

    GraphError: there is no such node, or the new name is taken.

    Args:
        old_node_name: the node as it is called.
        new_node_name: its new name.
    """
    node = graph[producer_name(old_node_name)]
    if not LEGAL_NAME.fullmatch(new_node_name):
        raise PipelineError(
            "unexpected", what="new_node_name", got=new_node_name, expected="a legal name of a node"
        )
    if new_node_name in graph:
        raise GraphError("new-name-taken", name=new_node_name)
    rename(graph, {node.name: new_node_name})
