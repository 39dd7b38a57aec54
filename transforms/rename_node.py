"""Node names do not influence the results of a graph."""

from deploykit.transforms.common.errors import GraphError, PipelineError
from deploykit.transforms.ir.functions import rename
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.untrusted.nodes import LEGAL_NAME


def rename_node(graph: Graph, *, old_node_name: str, new_node_name: str) -> None:
    """Rename one node; an input or output of the graph keeps its role under the new name.

    GraphError: the node does not exist, or the new name is in use.

    Args:
        old_node_name: current name of the node.
        new_node_name: new name of the node.
    """
    node = graph[producer_name(old_node_name)]
    if not LEGAL_NAME.fullmatch(new_node_name):
        raise PipelineError(
            "unexpected", what="new_node_name", got=new_node_name, expected="a legal name of a node"
        )
    if new_node_name in graph:
        raise GraphError("new-name-taken", name=new_node_name)
    rename(graph, {node.name: new_node_name})
