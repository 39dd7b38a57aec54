"""Nodes by name, their readers and execution order, in an index that each edit updates."""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Mapping
from typing import TypeVar

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.node import (
    ENTER_OPS,
    EXIT_OPS,
    LOOP_EDGE_OPS,
    SWITCH_OPS,
    Node,
    producer_name,
)

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> KeysView[T]:
    """Return the starts and all items that follow them; `following` is called once per item."""
    result = dict.fromkeys(starts)
    waiting = list(result)
    while waiting:
        new = [item for item in dict.fromkeys(following(waiting.pop())) if item not in result]
        result.update(dict.fromkeys(new))
        waiting += new
    return result.keys()


def _is_ordered(nodes: Mapping[str, Node]) -> bool:
    seen: set[str] = set()
    for name, node in nodes.items():
        for tensor in node.inputs:
            producer = producer_name(tensor)
            if producer not in seen and nodes[producer].op not in LOOP_EDGE_OPS:
                return False
        seen.add(name)
    return True


def _sorted(nodes: Mapping[str, Node], consumers: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    names = tuple(nodes)
    places = {name: place for place, name in enumerate(names)}
    missing: dict[str, int] = {}
    ready: list[int] = []
    for name, node in nodes.items():
        producers = set(map(producer_name, node.inputs))
        missing[name] = sum(nodes[p].op not in LOOP_EDGE_OPS for p in producers)
        if not missing[name]:
            ready.append(places[name])
    result = []
    while ready:
        name = names[heapq.heappop(ready)]
        result.append(name)
        if nodes[name].op in LOOP_EDGE_OPS:
            continue
        for consumer in consumers.get(name, ()):
            missing[consumer] -= 1
            if not missing[consumer]:
                heapq.heappush(ready, places[consumer])
    if len(result) < len(nodes):
        stuck = [name for name, count in missing.items() if count > 0]
        raise GraphError("cycle", count=len(stuck), nodes=stuck[:3])
    return tuple(result)


SHAPES = "_output_shapes"


class NodeIndex:
    """Nodes by name, in their stored order, with their consumers."""

    def __init__(self) -> None:
        """Create an empty index."""
        self._edits = 0  # number of changes: results cached at this number are valid
        self._nodes: dict[str, Node] = {}
        self._consumers: dict[str, dict[str, bool]] = {}  # True: reads data, False: only waits
        self._own_consumers: set[str] | None = None  # whose entries no copy shares; None: all
        self._reader_counts: dict[str, int] = {}
        self._numbers: dict[str, int] = {}  # of `name`: the last number that made a unique name
        self._depths: dict[str, int] | None = None  # loops around each node, computed lazily
        self._order: tuple[str, ...] | None = None
        self._ops: tuple[int, frozenset[str]] = 0, frozenset()  # of all nodes, at this edit count
        self._shapes_hold = True  # whether the `_output_shapes` attributes are valid

    def __getitem__(self, name: str) -> Node:
        """Return a node by name. GraphError: it does not exist; the message suggests names."""
        try:
            return self._nodes[name]
        except KeyError:
            hint = nearest(name, tuple(self._nodes))
            raise GraphError("missing", kind="node", name=name, hint=hint) from None

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the current nodes; edits during the iteration have no effect on it."""
        return iter(tuple(self._nodes.values()))

    def __str__(self) -> str:
        """Return one line per node, in order."""
        return "".join(f"{node}\n" for node in self._nodes.values())

    @property
    def ops(self) -> frozenset[str]:
        """The ops of the current nodes."""
        if self._ops[0] != self._edits:
            self._ops = self._edits, frozenset([node.op for node in self._nodes.values()])
        return self._ops[1]

    def producer(self, tensor: str) -> Node:
        """Return the node of a tensor or a control input."""
        return self[producer_name(tensor)]

    def consumers(self, name: str) -> list[Node]:
        """Return the nodes that read any output of a node or wait for it, each once."""
        return [self._nodes[consumer] for consumer in self._consumers.get(name, ())]

    def has_consumers(self, name: str) -> bool:
        """Return whether a node reads any output of this one or waits for it."""
        return bool(self._consumers.get(name))

    def readers(self, name: str) -> list[Node]:
        """Return the consumers that read data of a node; control edges do not count."""
        consumers = self._consumers.get(name, {})
        return [self._nodes[consumer] for consumer, reads in consumers.items() if reads]

    def unique_name(self, name: str) -> str:
        """Return `name`, or the first of `name_1`, `name_2`, ... that is not in use."""
        if name not in self._nodes:
            return name
        number = self._numbers.get(name, 0) + 1
        while f"{name}_{number}" in self._nodes:
            number += 1
        self._numbers[name] = number - 1  # the caller may not use the name
        return f"{name}_{number}"

    def conditional_names(self) -> set[str]:
        """Return the nodes after a Switch or an Enter: they may be dead, or run in a loop."""
        return self.descendants(n.name for n in self if n.op in SWITCH_OPS | ENTER_OPS)

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """Return the names of these nodes and of all nodes that they need."""
        results = set(names)
        waiting = list(results)
        while waiting:
            for name in self._nodes[waiting.pop()].inputs:
                if name not in self._nodes:  # a tensor name or a control input
                    name = producer_name(name)
                if name not in results and name in self._nodes:
                    results.add(name)
                    waiting.append(name)
        return results

    def descendants(self, names: Iterable[str], control: bool = True) -> set[str]:
        """Return the names of these nodes and of all that read them or, with `control`, wait."""
        results = set(names)
        waiting = list(results)
        while waiting:
            for consumer, reads in self._consumers.get(waiting.pop(), {}).items():
                if consumer not in results and (reads or control):
                    results.add(consumer)
                    waiting.append(consumer)
        return results

    def order(self) -> tuple[str, ...]:
        """Return the names in execution order, ties in the current order. GraphError: a cycle.

        The first of the possible next nodes comes next, so a valid order is not changed. A loop's
        back edge does not count.
        """
        if self._order is None:
            nodes = self._nodes
            self._order = tuple(nodes) if _is_ordered(nodes) else _sorted(nodes, self._consumers)
        return self._order

    def add(self, node: Node) -> Node:
        """Add a node. GraphError: its name is in use."""
        if node.name in self._nodes:
            raise GraphError("node-twice", node=node.name)
        if not self._shapes_hold and SHAPES in node.attrs and node.data_inputs:
            node = node.with_attrs(**{SHAPES: None})
        self._nodes[node.name] = node
        self._link(node)
        return node

    def remove(self, node: Node) -> None:
        """Remove a node without consumers. GraphError: it has consumers."""
        if self._consumers.get(node.name):
            reader = next(iter(self._consumers[node.name]))
            raise GraphError("node-in-use", node=node.name, reader=reader)
        self._unlink(self._nodes.pop(node.name))
        self._consumers.pop(node.name, None)
        self._reader_counts.pop(node.name, None)

    def replace(self, old: Node, new: Node) -> Node:
        """Replace `old` by `new` under the name of `old`; return the new node.

        An edit that may change a shape drops the `_output_shapes` of all computed nodes, which
        TensorFlow's importer compares with its inferred shapes.
        """
        if new.name != old.name:
            new = new.with_name(old.name)
        before = self[old.name]
        if (self._shapes_hold or SHAPES in new.attrs) and _may_change_shapes(before, new):
            self._forget_shapes()
            is_same = before.op == new.op and before.data_inputs == new.data_inputs
            is_stated = is_same and before.attrs.get(SHAPES) != new.attrs.get(SHAPES)
            if SHAPES in new.attrs and not is_stated:
                new = new.with_attrs(**{SHAPES: None})
        self._unlink(before)
        self._nodes[old.name] = new
        self._link(new)
        return new

    def _forget_shapes(self) -> None:
        if self._shapes_hold:
            self._shapes_hold = False
            for name, node in self._nodes.items():
                if SHAPES in node.attrs and node.data_inputs:
                    self._nodes[name] = node.with_attrs(**{SHAPES: None})

    def _link(self, node: Node) -> None:
        self._order = None
        self._edits += 1
        producers: dict[str, bool] = {}
        for tensor in node.inputs:
            name = producer_name(tensor)
            producers[name] = producers.get(name, False) or tensor[:1] != "^"
        for name, reads in producers.items():
            self._changeable_consumers(name)[node.name] = reads
            if reads:
                self._reader_counts[name] = self._reader_counts.get(name, 0) + 1
        if self._depths is not None:
            depth = self._depth(node, self._depths)
            if depth < 0 or (depth != self._depths.get(node.name) and self.consumers(node.name)):
                self._depths = None
            else:
                self._depths[node.name] = depth

    def _unlink(self, node: Node) -> None:
        self._order = None
        self._edits += 1
        for name in dict.fromkeys(map(producer_name, node.inputs)):
            if name in self._consumers and self._changeable_consumers(name).pop(node.name, False):
                self._reader_counts[name] -= 1

    def _changeable_consumers(self, name: str) -> dict[str, bool]:
        """Return the consumers of a node, in a dict that no copy of the graph shares."""
        consumer = self._consumers.get(name)
        if consumer is None or not (self._own_consumers is None or name in self._own_consumers):
            consumer = self._consumers[name] = dict(consumer or {})
            if self._own_consumers is not None:
                self._own_consumers.add(name)
        return consumer

    def _gives_into_a_loop(self, name: str) -> bool:
        """Return whether readers of a node run in a loop of TensorFlow 1."""
        if self._depths is None:
            self._depths = {}
            for item in self.order():
                self._depths[item] = self._depth(self._nodes[item], self._depths)
        return self._depths[name] > (self._nodes[name].op in EXIT_OPS)

    def _depth(self, node: Node, depths: Mapping[str, int]) -> int:
        """Return the number of loops around a node; -1: that of all its inputs is unknown."""
        if not node.inputs:
            return 0
        results = [
            depths.get(name, -1) - (name in self._nodes and self._nodes[name].op in EXIT_OPS)
            for name in map(producer_name, node.inputs)
        ]
        return max(results) + (node.op in ENTER_OPS)


def _may_change_shapes(old: Node, new: Node) -> bool:
    if old.op != new.op or old.data_inputs != new.data_inputs:
        return True
    if old.attrs is new.attrs:
        return False
    names = {name for name in (*old.attrs, *new.attrs) if name[:1] != "_"}
    return any(old.attrs.get(name) != new.attrs.get(name) for name in names)
