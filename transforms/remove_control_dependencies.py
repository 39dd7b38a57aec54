"""Without control inputs a graph computes the same values, if nothing relied on their order."""

from deploykit.transforms.core.aliveness import read, when_nodes_run
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import ENTER_OPS, MERGE_OPS, SWITCH_OPS

_WAY_OUT = "remove_control_dependencies(force=true) does it anyway"


def remove_control_dependencies(graph: Graph, *, force: bool = False) -> None:
    """Remove every control input.

    This is safe for frozen inference graphs. It is not safe where control inputs do work: variables
    may then be read before they are assigned, and assertions are no longer waited for. Loops and
    branches of TensorFlow 1, whose constants are tied to them by a control input, would fail or
    answer with the wrong branch: such a graph is refused.

    Args:
        force: remove them although a loop or a branch needs them.
    """
    if not force and any(node.op in SWITCH_OPS | ENTER_OPS for node in graph):
        _check(graph)
    _remove(graph)


def _remove(graph: Graph) -> None:
    for node in graph:
        if node.control_inputs:
            graph.replace(node, node.without_control_inputs(*node.control_inputs))


def _check(graph: Graph) -> None:
    """Raise GraphError if a loop or a branch would lose a node that the outputs need."""
    after = graph.copy()
    _remove(after)
    if after.outputs:
        after.prune()
    was, now = when_nodes_run(graph), when_nodes_run(after)
    for name in after.order():
        if now[name].loops != was[name].loops:
            loop = was[name].loops[-1]
            raise GraphError(
                f"node '{name}' belongs to the loop '{loop}' by control inputs alone, which would "
                f"go; {_WAY_OUT}"
            )
    for node in after:
        if node.op not in MERGE_OPS or after.is_input(node.name):
            continue
        lost = {
            tensor: read(graph, was, tensor).ways - read(after, now, tensor).ways
            for tensor in node.data_inputs
        }
        shared = frozenset.intersection(*lost.values())  # it tells none from the others
        for tensor in lost:
            if lost[tensor] != shared:
                raise GraphError(
                    f"tensor '{tensor}' belongs to the branch or loop that '{node.name}' ends or "
                    f"repeats by control inputs alone, which would go; {_WAY_OUT}"
                )
