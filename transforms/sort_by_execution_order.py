"""The order of the nodes in a file means nothing to TensorFlow; here each follows its inputs."""

from deploykit.transforms.ir.graph import Graph


def sort_by_execution_order(graph: Graph) -> None:
    """Put every node after the nodes that it needs.

    Nodes that are already in such an order stay where they are.
    """
    graph.sort()
