"""When a node runs: in which TensorFlow 1 loop, and after which outputs of which Switches.

The inputs and control inputs of a node decide both. A constant has no data inputs, so in
TensorFlow 1 it waits for the pivot of its loop or branch.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import (
    ENTER_OPS,
    EXIT_OPS,
    LOOP_EDGE_OPS,
    MERGE_OPS,
    SWITCH_OPS,
    split,
)

Way = tuple[str, int, int]  # the condition, the port of the Switch, and the number of loops around


@dataclass(frozen=True)
class When:
    """The loops around a node, outermost first, and the Switch outputs that must all be alive."""

    loops: tuple[str, ...] = ()
    ways: frozenset[Way] = frozenset()


def when_nodes_run(graph: Graph) -> dict[str, When]:
    """Return for each node when it runs, in one pass in execution order."""
    results: dict[str, When] = {}
    for name in graph.order():
        node = graph[name]
        if graph.is_input(name):
            results[name] = When()
        elif node.op in MERGE_OPS:
            forward = (t for t in node.data_inputs if graph.producer(t).op not in LOOP_EDGE_OPS)
            results[name] = _either(read(graph, results, tensor) for tensor in forward)
        elif node.op == "ControlTrigger":
            results[name] = When(_all(read(graph, results, t) for t in node.inputs).loops)
        else:
            when = _all(read(graph, results, tensor) for tensor in node.inputs)
            if node.op in ENTER_OPS:
                when = When((*when.loops, str(node.attr("frame_name"))), when.ways)
            elif node.op in EXIT_OPS:
                loops = when.loops[:-1]
                when = When(loops, frozenset(way for way in when.ways if way[2] <= len(loops)))
            results[name] = when
    return results


def read(graph: Graph, results: dict[str, When], tensor: str) -> When:
    """Return when a tensor is computed, or when the node of a control input runs."""
    node, port = graph.producer(tensor), split(tensor)[1]
    when = results[node.name]
    if node.op not in SWITCH_OPS or port < 0 or graph.is_input(node.name):
        return when
    way = (_decider(graph, node.data_inputs[1]), port, len(when.loops))
    return When(when.loops, when.ways | {way})


def _decider(graph: Graph, condition: str) -> str:
    """Return the tensor that a condition only passes on."""
    node = graph.producer(condition)
    while node.op in ("Identity", "RefIdentity") and not graph.is_input(node.name):
        condition = node.data_inputs[0]
        node = graph.producer(condition)
    return condition


def _all(inputs: Iterable[When]) -> When:
    """Return when a node runs that needs all these inputs."""
    loops: tuple[str, ...] = ()
    ways: frozenset[Way] = frozenset()
    for input_ in inputs:
        loops = max(loops, input_.loops, key=len)
        ways = ways | input_.ways if input_.ways else ways
    return When(loops, ways)


def _either(inputs: Iterable[When]) -> When:
    """Return when a Merge runs that needs one of these inputs: under their common conditions."""
    known = list(inputs) or [When()]
    loops = max((item.loops for item in known), key=len)
    return When(loops, frozenset.intersection(*(item.ways for item in known)))
