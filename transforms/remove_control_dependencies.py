"""Control inputs change values only where nodes depend on the execution order."""

from collections import Counter
from collections.abc import Mapping

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.liveness import read, when_nodes_run
from deploykit.transforms.ir.node import ENTER_OPS, MERGE_OPS, SWITCH_OPS
from deploykit.transforms.ir.stateful_ops import StateOrder, state_order

_WAY_OUT = "remove_control_dependencies(force=true) does it anyway"


def remove_control_dependencies(graph: Graph, *, force: bool = False) -> None:
    """Remove the control inputs that no value depends on.

    In a frozen inference graph these are all. Nodes no longer wait for assertions and prints, so
    these may not run. Where a node changes state, the control inputs that order the change and
    other uses of the state are kept. So are those without which the change would not run. State is
    the contents of variables, tables, queues, stacks, TensorArrays, barriers, accumulators,
    readers, iterators, staging areas, random generators and files, also if a function uses it. The
    report names one node of each op with such an order. Loops and branches of TensorFlow 1 tie
    their constants to them by a control input. Without it they would fail or take the wrong branch,
    so deploykit refuses such a graph.

    Args:
        force: remove all control inputs, even if state, a loop or a branch needs them.
    """
    order = StateOrder() if force else state_order(graph)
    retained = order.control_inputs
    if not force and any(node.op in SWITCH_OPS | ENTER_OPS for node in graph):
        _check(graph, retained)
    _remove(graph, retained)
    counts = Counter(graph[name].op for name in order.uses)
    for op, name in {graph[name].op: name for name in reversed(order.uses)}.items():
        others = f", and for {counts[op] - 1} more {op} nodes" if counts[op] > 1 else ""
        graph.skip(graph[name], f"the control inputs that order this {op} are kept{others}")


def _remove(graph: Graph, retained: Mapping[str, tuple[str, ...]]) -> None:
    for node in graph:
        removed = set(node.control_inputs).difference(retained.get(node.name, ()))
        if removed:
            graph.replace(node, node.without_control_inputs(*removed))


def _check(graph: Graph, retained: Mapping[str, tuple[str, ...]]) -> None:
    """Raise GraphError if a loop or a branch would lose a node that the outputs need."""
    after = graph.copy()
    _remove(after, retained)
    if after.outputs:
        after.prune()
    was, now = when_nodes_run(graph), when_nodes_run(after)
    for name in after.order():
        if now[name].loops != was[name].loops:
            loop = was[name].loops[-1]
            raise GraphError("loop-by-control-only", node=name, loop=loop, advice=_WAY_OUT)
    for node in after:
        if node.op not in MERGE_OPS or after.is_input(node.name):
            continue
        lost = {
            tensor: read(graph, was, tensor).ways - read(after, now, tensor).ways
            for tensor in node.data_inputs
        }
        shared = frozenset.intersection(*lost.values())  # lost by all inputs, so harmless
        for tensor in lost:
            if lost[tensor] != shared:
                raise GraphError(
                    "branch-by-control-only", tensor=tensor, node=node.name, advice=_WAY_OUT
                )
