"""Without control inputs a graph computes the same values, if nothing relied on their order."""

from transforms.core.graph import Graph


def remove_control_dependencies(graph: Graph) -> None:
    """Remove every control input.

    This is safe for frozen inference graphs. It is not safe where control inputs do work: variables
    may then be read before they are assigned, assertions are no longer waited for, and branches and
    loops of TensorFlow 1, whose constants are tied to their branch by a control input, may fail to
    load or run.
    """
    for node in graph:
        if node.control_inputs:
            graph.replace(node, node.without_control_inputs(*node.control_inputs))
