"""TensorFlow ignores the order of the nodes in a file; sorted nodes follow their inputs."""

from deploykit.transforms.ir.graph import Graph


def sort_by_execution_order(graph: Graph) -> None:
    """Put every node after its inputs.

    Nodes that are already in such an order are not moved.
    """
    graph.sort()
