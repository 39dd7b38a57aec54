"""Patterns that match nodes, such as `Op("Mul", Op("Conv2D|MatMul"), Any("scale"))`; also
selection of nodes by op or prefix.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from deploykit.transforms.common.errors import PipelineError, nearest
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name, split
from deploykit.transforms.ir.ops import op_defs

COMMUTATIVE = frozenset({"Add", "AddV2", "Mul"})


@dataclass(eq=False)
class Match:
    """The nodes and tensors that the named parts of a pattern matched."""

    root: Node
    """The node that the outermost Op matched."""
    nodes: dict[str, Node] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Node:
        """Return the node that an Op or Const of this name matched."""
        return self.nodes[name]

    def tensor(self, name: str) -> str:
        """Return the tensor that an Any of this name matched."""
        return self.tensors[name]


@dataclass(frozen=True)
class Any:
    """Any tensor; with a name, the match returns it."""

    name: str = ""

    def find(self, graph: Graph, tensor: str, match: Match) -> bool:
        """Match any tensor."""
        if self.name:
            match.tensors[self.name] = tensor
        return True


@dataclass(frozen=True)
class Const:
    """A Const that is not fed, read directly or through Identity; with a name, it is returned."""

    name: str = ""

    def find(self, graph: Graph, tensor: str, match: Match) -> bool:
        """Match the Const that the tensor's value comes from."""
        node = graph.constant(tensor)
        if node is not None and self.name:
            match.nodes[self.name] = node
        return node is not None


class Op:
    """A node with an op (`A|B` for either) and, if given, operands that match."""

    def __init__(self, ops: str, *operands: "Any | Const | Op", name: str = "") -> None:
        """Create a pattern; without operands, any data inputs match."""
        self.ops = frozenset(ops.split("|"))
        self.operands = operands
        self.name = name

    def match(self, graph: Graph, node: Node) -> Match | None:
        """Return the match whose root is `node`, or None."""
        match = Match(node)
        return match if node.op in self.ops and self._take(graph, node, match) else None

    def find(self, graph: Graph, tensor: str, match: Match) -> bool:
        """Match the node whose first output is the tensor."""
        node = graph.producer(tensor)
        return node.op in self.ops and split(tensor)[1] == 0 and self._take(graph, node, match)

    def _take(self, graph: Graph, node: Node, match: Match) -> bool:
        if self.name:
            match.nodes[self.name] = node
        if not self.operands:
            return True
        inputs = node.data_inputs
        if len(inputs) != len(self.operands):
            return False
        orders = [inputs, inputs[::-1]] if node.op in COMMUTATIVE else [inputs]
        return any(
            all(part.find(graph, t, match) for part, t in zip(self.operands, order, strict=True))
            for order in orders
        )


def needed_elsewhere(graph: Graph, chain: Sequence[Node]) -> str:
    """Return why the nodes of a chain cannot become one node, or an empty string.

    Other readers prevent it, as do nodes that wait for one, as it would no longer exist.
    """
    for node, reader in pairwise(chain):
        others = [other for other in graph.consumers(node.name) if other.name != reader.name]
        if others or not graph.feeds_only(node, reader) or reader.inputs.count(node.name) != 1:
            return f"'{node.name}' is needed by more than '{reader.name}'"
    return "it is fed" if graph.is_input(chain[-1].name) else ""


ANY = "*"  # in place of an op: every op


def select(graph: Graph, ops: Iterable[str] = (), prefixes: Iterable[str] = ()) -> list[Node]:
    """Return the nodes whose op is among `ops` and whose name starts with one of `prefixes`.

    An empty argument matches any. PipelineError: neither TensorFlow nor the graph has such an op.
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
    """Return the outputs of each of these nodes that have readers; -1: a node waits for it."""
    ports: dict[str, set[int]] = {node.name: set() for node in nodes}
    for node in graph:
        for tensor in node.inputs:
            if (name := producer_name(tensor)) in ports:
                ports[name].add(split(tensor)[1])
    return ports
