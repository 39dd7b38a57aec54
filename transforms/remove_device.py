"""Without device names, TensorFlow chooses the device of each node."""

from dataclasses import replace

from deploykit.transforms.ir.graph import Graph


def remove_device(graph: Graph) -> None:
    """Remove the device from every node."""
    for node in graph:
        if node.device:
            graph.replace(node, replace(node, device=""))
