"""A graph of immutable nodes, with an index that every edit keeps up to date.

The edits are `add`, `remove` and `replace` of the index, `redirect`, `prune` and `sort`, and two
for transforms. `absorb` replaces several nodes by one and keeps all control dependencies;
`constant_beside` adds a constant that another node can read, also in a loop.
"""

import contextlib
import gc
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from deploykit.transforms.common.documents import AsHtml
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.node import MERGE_OPS, Node, delimited, normal, producer_name, split
from deploykit.transforms.ir.node_index import NodeIndex
from deploykit.transforms.ir.ops import acts
from deploykit.transforms.ir.protos import FunctionDefLibrary, GraphDef, VersionDef
from deploykit.transforms.ir.tensors import Array

logger = logging.getLogger("deploykit")

Found = TypeVar("Found", covariant=True)


class Pattern(Protocol[Found]):
    """A pattern to find in a graph, such as an `Op` of `pattern`."""

    @property
    def ops(self) -> Collection[str]:
        """The ops of the nodes that may be the root of a match."""

    def match(self, graph: "Graph", node: Node) -> Found | None:
        """Return the match whose root is `node`, or None."""


class Graph(NodeIndex, AsHtml):
    """Nodes by name, the graph's inputs and outputs (tensor names), versions and function library.

    `inputs` are fed when the graph runs, so nodes before them do not count and none of them is
    constant; `outputs` are fetched, so they keep their names and values. `skipped` collects the
    reasons why transforms skipped matches. `about` contains metadata of the model besides its
    nodes, also in a copy. `report` is the report of the function that returned the graph; a copy
    has none.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        inputs: Iterable[str] = (),
        outputs: Iterable[str] = (),
        versions: VersionDef | None = None,
        library: FunctionDefLibrary | None = None,
    ) -> None:
        """Build the index. GraphError: a name occurs twice."""
        super().__init__()
        self._pruned_at = self._checked_at = -1
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.versions: VersionDef = versions or VersionDef()
        self.library: FunctionDefLibrary = library or FunctionDefLibrary()
        self.skipped: list[str] = []
        self.about: Any = None
        self.report: Any = None
        for node in nodes:
            self.add(node)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that are fed when the graph runs."""
        return self._inputs

    @inputs.setter
    def inputs(self, tensors: Iterable[str]) -> None:
        self._inputs = tuple(map(normal, tensors))
        self._input_names = frozenset(map(producer_name, self._inputs))
        self._edits += 1

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that are fetched when the graph runs."""
        return self._outputs

    @outputs.setter
    def outputs(self, tensors: Iterable[str]) -> None:
        self._outputs = tuple(map(normal, tensors))
        self._output_names = frozenset(map(producer_name, self._outputs))
        self._edits += 1

    def feeds_only(self, node: Node, consumer: Node) -> bool:
        """Return whether `consumer` is a node's only reader, and it is neither fed nor fetched."""
        if self._is_end(node.name):
            return False
        reads = self._consumers.get(node.name, {}).get(consumer.name, False)
        return self._reader_counts.get(node.name, 0) == reads

    def is_input(self, name: str) -> bool:
        """Return whether a node is fed when the graph runs."""
        return name in self._input_names

    def is_output(self, name: str) -> bool:
        """Return whether a node is fetched when the graph runs."""
        return name in self._output_names

    def constant(self, tensor: str) -> Node | None:
        """Return the Const that a tensor's value comes from, directly or through Identity nodes.

        Its control inputs include all those on the path to it; a constant that replaces it must
        have them too.
        """
        waits: list[str] = []
        while self._repeats(node := self.producer(tensor), tensor):
            waits += node.control_inputs
            tensor = node.inputs[0]
        if node.op != "Const" or split(tensor)[1] or self.is_input(node.name):
            return None
        return node.with_control_inputs(*waits)

    def source(self, tensor: str) -> str:
        """Return the tensor whose value a tensor has, directly or through Identity nodes."""
        while self._repeats(node := self.producer(tensor), tensor):
            tensor = node.inputs[0]
        return tensor

    def _repeats(self, node: Node, tensor: str) -> bool:
        """Return whether a tensor of a node has the value of the node's input."""
        return node.op == "Identity" and not split(tensor)[1] and not self.is_input(node.name)

    def match(self, pattern: Pattern[Found]) -> Iterator[Found]:
        """Yield the matches of a pattern, each in the graph at the time of its iteration."""
        ops = pattern.ops
        if self.ops.isdisjoint(ops):
            return
        for name in tuple(self._nodes):
            node = self._nodes.get(name)
            if node is None or node.op not in ops:
                continue
            if (match := pattern.match(self, node)) is not None:
                yield match

    def skip(self, node: Node, reason: str | None) -> bool:
        """Record that a match was skipped, and why; return whether a reason is given."""
        if reason:
            logger.debug("node '%s' skipped: %s", node.name, reason)
            self.skipped.append(f"node '{node.name}': {reason}")
        return bool(reason)

    def redirect(self, moves: Mapping[str, str | Iterable[str]]) -> None:
        """Make all consumers of a tensor (`a`, `a:1`, `^a`) read another, for each pair in `moves`.

        Chains are followed: with {b: a, c: b}, readers of c read a. A control input may become
        several or none. Each consumer is rewritten once. Outputs of the graph are not renamed.
        """
        moved = {
            normal(old): [normal(n) for n in ((new,) if isinstance(new, str) else new)]
            for old, new in moves.items()
        }
        touched = dict.fromkeys(
            consumer for old in moved for consumer in self._consumers.get(producer_name(old), ())
        )
        for consumer in touched:
            node = self._nodes[consumer]
            if any(tensor in moved for tensor in node.inputs):
                self.replace(node, node.rewired(lambda tensor: follow(tensor, moved)))

    def absorb(self, nodes: Sequence[Node], into: Node) -> Node:
        """Replace several nodes by one, keep all control dependencies, and return the new node.

        `into` replaces the node of its name, or is added. It gets the control inputs of `nodes` and
        of all nodes that are removed with them because no other node needs them, such as folded
        constants; nodes with side effects are kept. Nodes that waited for a removed one of `nodes`
        wait for its inputs instead.
        """
        waits = [wait for node in nodes for wait in node.control_inputs]
        dropped = [producer_name(tensor) for node in nodes for tensor in node.data_inputs]
        into = self.replace(into, into) if into.name in self._nodes else self.add(into)
        gone: set[str] = set()
        for node in reversed(nodes):
            name = node.name
            is_read = self._is_end(name) or self._reader_counts.get(name, 0) > 0
            if name in self._nodes and name != into.name and not is_read:
                gone.add(f"^{name}")
                if self._consumers.get(name):
                    needed = [t if t[:1] == "^" else f"^{producer_name(t)}" for t in node.inputs]
                    retained = [wait for wait in needed if not self._orders_nothing(wait)]
                    self.redirect({f"^{name}": retained})
                self.remove(self._nodes[name])
        while dropped:
            lonely = self._nodes.get(dropped.pop())
            if lonely is None or self._is_end(lonely.name) or self.has_consumers(lonely.name):
                continue
            if acts(lonely.op):
                waits.append(f"^{lonely.name}")
            else:
                waits += lonely.control_inputs
                dropped += map(producer_name, lonely.data_inputs)
                self.remove(lonely)
        into = self._nodes[into.name]
        known = {f"^{name}" for name in (into.name, *map(producer_name, into.data_inputs))} | gone
        return self.replace(into, into.with_control_inputs(*(w for w in waits if w not in known)))

    def _is_end(self, name: str) -> bool:
        return self.is_input(name) or self.is_output(name)

    def put(
        self, name: str, op: str, /, *inputs: str, like: Node | None = None, **attrs: Any
    ) -> str:
        """Add a node under the first free name, on the device of `like`; return its name."""
        node = Node(self.unique_name(name), op, inputs, {}, "" if like is None else like.device)
        return self.add(node.with_attrs(**attrs)).name

    def add_copy(self, node: Node, name: str) -> Node:
        """Add a node like another one under the first free name."""
        return self.add(node.with_name(self.unique_name(name)))

    def supersede(self, moves: Mapping[str, str]) -> None:
        """Make all nodes that read or wait for a node use another one, and remove the first."""
        self.redirect({**moves, **{f"^{old}": f"^{new}" for old, new in moves.items()}})
        for name in moves:
            self.remove(self[name])

    def constant_beside(
        self, node: Node, array: Array, name: str = "", dtype: str | None = None
    ) -> Node:
        """Add a constant that a node can read, in the same loop or branch; return the constant.

        It has the node's device, and `name` or the first free one of `name_1`, ... as its name.
        Next to another Const it waits for the same nodes, and in a loop of TensorFlow 1 for an
        input of the node; in a branch it does not need to wait.
        """
        const = Node.constant(self.unique_name(name or f"{node.name}/const"), array, dtype)
        return self.add(replace(const, device=node.device, inputs=self.waits_beside(node)))

    def waits_beside(self, node: Node) -> tuple[str, ...]:
        """Return the control inputs of a constant that a node reads."""
        if not node.data_inputs:
            return node.control_inputs
        first = producer_name(node.data_inputs[0])
        return (f"^{first}",) if self._gives_into_a_loop(first) else ()

    def prune(self) -> int:
        """Remove nodes that no output needs; return their number. Inputs are kept.

        Control edges from constants order nothing, so they are removed first: TensorFlow 2 leaves
        hundreds of them when it freezes, and each would keep dead weights. The same holds for a
        control input that an input of the node has too: oneDNN fuses a Conv2D and a BiasAdd without
        regard to such edges, and the process crashes.
        """
        if self._pruned_at == self._edits:
            return 0
        for node in tuple(self._nodes.values()):
            if node.control_inputs:
                waits_of_read = self._waits_of_read(node)
                idle = [
                    wait
                    for wait in node.control_inputs
                    if wait in waits_of_read or self._orders_nothing(wait)
                ]
                if idle:
                    self.replace(node, node.without_control_inputs(*idle))
        roots = [producer_name(tensor) for tensor in (*self.outputs, *self.inputs)]
        live = self.ancestors(name for name in roots if name in self._nodes)
        dead = [name for name in self._nodes if name not in live]
        for name in dead:
            self._unlink(self._nodes.pop(name))
        for name in dead:
            self._consumers.pop(name, None)
            self._reader_counts.pop(name, None)
        self._forget_lost_colocations()
        self._pruned_at = self._edits
        return len(dead)

    def sort(self) -> None:
        """Put the nodes into execution order. GraphError: a cycle outside a while loop."""
        self._nodes = {name: self._nodes[name] for name in self.order()}

    def check(self) -> None:
        """Raise GraphError for a dangling edge, a missing output or input, or a cycle."""
        if self._checked_at == self._edits:
            return
        for name, node in self._nodes.items():
            for tensor in node.inputs:
                if producer_name(tensor) not in self._nodes:
                    hint = nearest(producer_name(tensor), tuple(self._nodes))
                    raise GraphError("input-missing-in-graph", node=name, tensor=tensor, hint=hint)
        for role, tensors in (("input", self.inputs), ("output", self.outputs)):
            for tensor in tensors:
                name, _ = split(tensor)
                if name not in self._nodes:
                    hint = nearest(name, tuple(self._nodes))
                    raise GraphError("graph-node-missing", name=name, role=role, hint=hint)
        self.order()
        self._checked_at = self._edits

    def copy(self) -> "Graph":
        """Return a graph that shares the immutable nodes and the metadata in `about`."""
        result = Graph((), self.inputs, self.outputs)
        result.versions.CopyFrom(self.versions)
        result.library.CopyFrom(self.library)
        result._edits, result._order = self._edits, self._order
        result._shapes_hold = self._shapes_hold
        result._pruned_at, result._checked_at = self._pruned_at, self._checked_at
        result._nodes = dict(self._nodes)
        result._consumers = dict(self._consumers)
        self._own_consumers, result._own_consumers = set(), set()
        result._reader_counts = dict(self._reader_counts)
        result.about = self.about
        return result

    @classmethod
    def from_graph_def(
        cls, graph_def: GraphDef, inputs: Iterable[str] = (), outputs: Iterable[str] = ()
    ) -> "Graph":
        """Read a GraphDef. GraphError: a node's name occurs twice."""
        versions, library = VersionDef(), FunctionDefLibrary()
        versions.CopyFrom(graph_def.versions)
        library.CopyFrom(graph_def.library)
        with no_collection():
            return cls(map(Node.from_proto, graph_def.node), inputs, outputs, versions, library)

    def to_graph_def(self) -> GraphDef:
        """Write a GraphDef, with versions and function library."""
        graph_def = GraphDef(versions=self.versions, library=self.library)
        for node in self._nodes.values():
            node.to_proto(into=graph_def.node.add())
        return graph_def

    def serialized(self) -> Iterator[bytes]:
        """Yield the GraphDef's bytes in pieces, the same for the same graph.

        A node is field 1 of the GraphDef. The remaining fields are one more piece of the same
        message, so memory never contains a second copy of the graph.
        """
        for node in self._nodes.values():
            yield from delimited(1, node.serialized())
        rest = GraphDef(versions=self.versions, library=self.library)
        yield rest.SerializeToString(deterministic=True)

    def _forget_lost_colocations(self) -> None:
        """Drop `loc:@a` from `_class` if node a was removed; TensorFlow would refuse the graph."""
        for node in tuple(self._nodes.values()):
            classes = node.attr("_class") if "_class" in node.attrs else None
            if isinstance(classes, list):
                lost = [c for c in classes if str(c)[:5] == "loc:@" and c[5:] not in self._nodes]
                if lost:
                    retained = [c for c in classes if c not in lost]
                    self.replace(node, node.with_attrs(_class=retained or None))

    def _waits_of_read(self, node: Node) -> set[str]:
        """Return the control inputs of the nodes that a node reads; a Merge does not read all."""
        if node.op in MERGE_OPS:
            return set()
        names = {producer_name(t) for t in node.data_inputs} - self._input_names
        read = [self._nodes[name] for name in names if name in self._nodes]
        return {wait for item in read for wait in item.control_inputs}

    def _orders_nothing(self, tensor: str) -> bool:
        node = self._nodes.get(tensor[1:]) if tensor[:1] == "^" else None
        return node is not None and node.op == "Const" and not node.inputs


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Disable Python's garbage collector: millions of new nodes would take twice the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def follow(tensor: str, moved: dict[str, list[str]]) -> list[str]:
    """Return the final replacement of a tensor, and shorten the chain for later calls."""
    path = []
    while tensor in moved and len(moved[tensor]) == 1:
        path.append(tensor)
        (tensor,) = moved[tensor]
        if len(path) > len(moved):
            raise GraphError("moves-circular", tensor=tensor)
    end = [tensor] if tensor not in moved else [n for t in moved[tensor] for n in moved.get(t, [t])]
    for passed in path:
        moved[passed] = end
    return end
