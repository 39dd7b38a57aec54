"""Which nodes the parameters of a transform mean: those of some ops, or below some prefixes."""

from collections.abc import Iterable

from deploykit.transforms.core.errors import PipelineError, nearest
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.node import Node, producer_name, split
from deploykit.transforms.core.ops import op_defs

ANY = "*"  # as an op, it means every op


def select(graph: Graph, ops: Iterable[str] = (), prefixes: Iterable[str] = ()) -> list[Node]:
    """Return the nodes whose op is among `ops` and whose name starts with one of `prefixes`.

    None given means any. PipelineError: neither TensorFlow nor the graph has such an op.
    """
    ops, prefixes = frozenset(ops), tuple(prefixes)
    check_ops(graph, ops - {ANY})
    if ANY in ops:
        ops = frozenset()
    return [
        node
        for node in graph
        if (not ops or node.op in ops) and (not prefixes or node.name.startswith(prefixes))
    ]


def check_ops(graph: Graph, ops: Iterable[str]) -> None:
    """Raise PipelineError for an op that neither TensorFlow nor the graph has."""
    present = {node.op for node in graph}
    for op in ops:
        if op not in present and op not in op_defs():
            raise PipelineError(
                "missing", kind="op", name=op, hint=nearest(op, (*present, *op_defs()))
            )


def ports_read(graph: Graph, nodes: Iterable[Node]) -> dict[str, set[int]]:
    """Return the outputs of each of these nodes that somebody reads; -1: somebody waits for it."""
    ports: dict[str, set[int]] = {node.name: set() for node in nodes}
    for node in graph:
        for tensor in node.inputs:
            if (name := producer_name(tensor)) in ports:
                ports[name].add(split(tensor)[1])
    return ports
