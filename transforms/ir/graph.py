"""A graph: nodes that never change, an index that cannot go stale, and eight methods that edit.

The edits are `add`, `remove` and `replace` of the index, `redirect`, `prune` and `sort`, and two
that transforms build on: `absorb` puts one node in the place of several and loses nothing that was
waited for, `constant_beside` adds a constant where another node can read it, also in a loop.
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
    """What may be looked for in a graph, such as an `Op` of `pattern`."""

    @property
    def ops(self) -> Collection[str]:
        """The ops of the nodes that may be the root of a match."""

    def match(self, graph: "Graph", node: Node) -> Found | None:
        """Return the match whose root is `node`, or None."""


class Graph(NodeIndex, AsHtml):
    """Nodes by name, the graph's inputs and outputs (tensor names), versions and function library.

    `inputs` are fed when the graph runs, so nothing above them counts and none of them is constant;
    `outputs` are fetched, so they keep their names and values. `skipped` collects the reasons why
    transforms left matches alone. `about` is what users of the model know besides its nodes; a copy
    has it too. `report` is what the function that returned the graph found; a copy has none.
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

    # ------------------------------------------------------------------ reading

    def feeds_only(self, node: Node, consumer: Node) -> bool:
        """Say whether nobody else reads the node, and it is neither fed nor fetched."""
        if self._is_end(node.name):
            return False
        reads = self._consumers.get(node.name, {}).get(consumer.name, False)
        return self._reader_counts.get(node.name, 0) == reads

    def is_input(self, name: str) -> bool:
        """Say whether a node is fed when the graph runs."""
        return name in self._input_names

    def is_output(self, name: str) -> bool:
        """Say whether a node is fetched when the graph runs."""
        return name in self._output_names

    def constant(self, tensor: str) -> Node | None:
        """Return the Const that a tensor's value comes from, directly or through Identity nodes.

        It is shown with all that is waited for on the way to it as its control inputs: whoever puts
        another constant in its place hands these on.
        """
        waits: list[str] = []
        node = self.producer(tensor)
        while _names_again(node, tensor) and not self.is_input(node.name):
            waits += node.control_inputs
            tensor = node.inputs[0]
            node = self.producer(tensor)
        if node.op != "Const" or split(tensor)[1] or self.is_input(node.name):
            return None
        return node.with_control_inputs(*waits)

    def source(self, tensor: str) -> str:
        """Return the tensor whose value a tensor has, directly or through Identity nodes."""
        node = self.producer(tensor)
        while _names_again(node, tensor) and not self.is_input(node.name):
            tensor = node.inputs[0]
            node = self.producer(tensor)
        return tensor

    def match(self, pattern: Pattern[Found]) -> Iterator[Found]:
        """Yield the matches of a pattern, each in the graph as it is when it is asked for."""
        ops = pattern.ops
        if self.ops.isdisjoint(ops):
            return
        for name in tuple(self._nodes):
            node = self._nodes.get(name)
            if node is None or node.op not in ops:
                continue
            if (match := pattern.match(self, node)) is not None:
                yield match

    def skip(self, node: Node, reason: str) -> None:
        """Note that a match was left alone, and why."""
        logger.debug("node '%s' left alone: %s", node.name, reason)
        self.skipped.append(f"node '{node.name}': {reason}")

    # ------------------------------------------------------------------ editing

    def redirect(self, moves: Mapping[str, str | Iterable[str]]) -> None:
        """Let every consumer of a tensor (`a`, `a:1`, `^a`) read another, for each pair in `moves`.

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
        """Let one node do what several did, and lose nothing that was waited for; return it.

        `into` takes the place of the node whose name it bears, or is added. It waits for all that
        `nodes` waited for, and all that goes with them as nobody else needs it, such as constants
        that are folded; what acts upon the outside does not go. Who waited for one of `nodes` that
        goes waits for what that one needed.
        """
        waits = [wait for node in nodes for wait in node.control_inputs]
        dropped = [producer_name(tensor) for node in nodes for tensor in node.data_inputs]
        into = self.replace(into, into) if into.name in self._nodes else self.add(into)
        gone: set[str] = set()
        for node in reversed(nodes):
            name = node.name
            if name in self._nodes and name != into.name and not self._is_read(name):
                gone.add(f"^{name}")
                if self._consumers.get(name):
                    needed = [t if t[:1] == "^" else f"^{producer_name(t)}" for t in node.inputs]
                    retained = [wait for wait in needed if not self._orders_nothing(wait)]
                    self.redirect({f"^{name}": retained})
                self.remove(self._nodes[name])
        while dropped:
            lonely = self._nodes.get(dropped.pop())
            if lonely is None or self._is_needed(lonely.name):
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

    def _is_read(self, name: str) -> bool:
        """Say whether somebody needs the value of a node."""
        return self._is_end(name) or self._reader_counts.get(name, 0) > 0

    def _is_needed(self, name: str) -> bool:
        """Say whether somebody needs the value of a node, or waits for it."""
        return self._is_end(name) or self.has_consumers(name)

    def constant_beside(
        self, node: Node, array: Array, name: str = "", dtype: str | None = None
    ) -> Node:
        """Add a constant that can be read where a node is, in its loop or branch; return it.

        It is placed on the node's device and bears `name` or the first of `name_1`, ... that is
        free. Beside another Const it waits for what that one waits for, in a loop of TensorFlow 1
        for what the node reads; what a branch reads need not lie in it.
        """
        const = Node.constant(self.unique_name(name or f"{node.name}/const"), array, dtype)
        return self.add(replace(const, device=node.device, inputs=self.waits_beside(node)))

    def waits_beside(self, node: Node) -> tuple[str, ...]:
        """Return what a constant waits for that is to be read where a node is."""
        if not node.data_inputs:
            return node.control_inputs
        first = producer_name(node.data_inputs[0])
        return (f"^{first}",) if self._gives_into_a_loop(first) else ()

    def prune(self) -> int:
        """Drop what no output needs; return how many nodes went. Inputs stay.

        A control edge from a constant orders nothing, so it goes first: TensorFlow 2 leaves
        hundreds of them behind when it freezes, and each would keep dead weights alive. So does an
        edge that a node has that this one reads; a Conv2D and a BiasAdd that wait for the same
        nodes end the process under oneDNN, which fuses them and does not reckon with the edges.
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

    # ------------------------------------------------------------------ the whole graph

    def check(self) -> None:
        """Raise GraphError for an input that dangles, a missing output or input, or a cycle."""
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
        """Return a graph that shares the nodes, which never change, and what `about` says."""
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

        A node is the GraphDef's field 1, and what follows the nodes is one more piece of the same
        message, so no second copy of the graph is ever held.
        """
        for node in self._nodes.values():
            yield from delimited(1, node.serialized())
        rest = GraphDef(versions=self.versions, library=self.library)
        yield rest.SerializeToString(deterministic=True)

    def _forget_lost_colocations(self) -> None:
        """Drop `loc:@a` from `_class` where node a is gone; TensorFlow would not load the graph."""
        for node in tuple(self._nodes.values()):
            classes = node.attr("_class") if "_class" in node.attrs else None
            if isinstance(classes, list):
                lost = [c for c in classes if str(c)[:5] == "loc:@" and c[5:] not in self._nodes]
                if lost:
                    retained = [c for c in classes if c not in lost]
                    self.replace(node, node.with_attrs(_class=retained or None))

    def _waits_of_read(self, node: Node) -> set[str]:
        """Return what those nodes wait for that a node reads; a Merge does not read all."""
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
    """Let Python not look for circles: among millions of new nodes it takes twice the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _names_again(node: Node, tensor: str) -> bool:
    """Say whether a tensor is what an Identity reads."""
    return node.op == "Identity" and split(tensor)[1] == 0


def follow(tensor: str, moved: dict[str, list[str]]) -> list[str]:
    """Return where a tensor's readers end up, and shorten the way there for those that follow."""
    path = []
    while tensor in moved and len(moved[tensor]) == 1:
        path.append(tensor)
        tensor = moved[tensor][0]
        if len(path) > len(moved):
            raise GraphError("moves-circular", tensor=tensor)
    end = [tensor] if tensor not in moved else [n for t in moved[tensor] for n in moved.get(t, [t])]
    for passed in path:
        moved[passed] = end
    return end
