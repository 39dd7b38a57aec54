"""Who reads what in a graph whose nodes come one by one: names, ports, types, cycles and loops.

Of each node its name, its ports and the places of its producers are kept, and no more.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence

from deploykit.transforms.core.checks.ports import Ports
from deploykit.transforms.core.errors import GraphError, nearest
from deploykit.transforms.core.node import (
    ENTER_OPS,
    EXIT_OPS,
    LOOP_EDGE_OPS,
    MERGE_OPS,
    Node,
    split,
)
from deploykit.transforms.core.tensors import type_name

_REF = 100  # a reference type's number is its base type's plus this


class Edges:
    """The edges of a graph or of a function's body, which are checked as its nodes are added."""

    def __init__(self, colocated: bool = True) -> None:
        """Start without nodes. `colocated`: those beside which nodes are placed must be there."""
        self._needs_colocated = colocated
        self._places: dict[str, int] = {}
        self._ops: list[str] = []
        self._made: list[Ports | None] = []
        self._producers = array("i")  # of each input, after each other
        self._ends = array("q")  # of each node: how many inputs there are up to it
        self._later: list[tuple[int, int, str, int]] = []
        """Inputs from nodes that come after their readers: number, reader, tensor, type."""
        self._frames: dict[int, bytes] = {}
        """The names of loops, by the nodes that enter them."""
        self._colocated: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._made)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    @property
    def names(self) -> Iterable[str]:
        """The names of the nodes."""
        return self._places

    def add(self, node: Node, ports: tuple[Ports, Ports] | None) -> None:
        """Add a node; of one without ports, no number and no type of its tensors is known.

        GraphError: its name is taken, or what it reads does not fit.
        """
        if node.name in self._places:
            raise GraphError("node-twice", node=node.name)
        place = len(self._made)
        self._places[node.name] = place
        self._ops.append(sys.intern(node.op))
        self._made.append(None if ports is None else ports[1])
        if node.op in ENTER_OPS and "frame_name" in node.attrs:
            self._frames[place] = node.attrs["frame_name"].s
        if self._needs_colocated and "_class" in node.attrs:
            for text in node.attrs["_class"].list.s:
                if text[:5] == b"loc:@":
                    self._colocated.setdefault(text[5:].decode(errors="replace"), place)
        wanted: Sequence[int] = ()
        if ports is not None:
            self._check_count(node, ports[0])
            wanted = ports[0].types()
        for tensor, type_ in zip(node.inputs, wanted, strict=False):
            self._link(place, tensor, type_)
        for tensor in node.inputs[len(wanted) :]:
            self._link(place, tensor, 0)
        self._ends.append(len(self._producers))

    def _check_count(self, node: Node, reads: Ports) -> None:
        """Raise GraphError for a node that has more or fewer data inputs than its op reads."""
        count = len(node.data_inputs)
        if "^" in [tensor[:1] for tensor in node.inputs[:count]]:
            raise GraphError("data-input-after-control", node=node.name)
        if count != reads.count:
            raise GraphError(
                "input-count-wrong", node=node.name, op=node.op, count=count, expected=reads.count
            )

    def _link(self, reader: int, tensor: str, wanted: int) -> None:
        name, port = split(tensor) if tensor[:1] == "^" or ":" in tensor else (tensor, 0)
        producer = self._places.get(name, -1)
        if producer < 0 or producer == reader:
            self._later.append((len(self._producers), reader, tensor, wanted))
        else:
            self._check(reader, tensor, producer, port, wanted)
        self._producers.append(producer)

    def _check(self, reader: int, tensor: str, producer: int, port: int, wanted: int) -> None:
        made = self._made[producer]
        if port < 0 or made is None:
            return
        if port >= made.count:
            raise no_such_output(
                f"node '{self._name(reader)}' reads '{tensor}'",
                f"node '{self._name(producer)}' ({self._ops[producer]})",
                made.count,
            )
        if not wanted:
            return
        held = made.type_of(port)
        if held not in (wanted, wanted + _REF):  # a reference may be read as what it refers to
            raise GraphError(
                "input-type-differs",
                node=self._name(reader),
                tensor=tensor,
                expected=type_name(wanted),
                got=type_name(held),
            )

    def _name(self, place: int) -> str:
        """Return the name of a node; this is slow, and for errors alone."""
        return next(name for name, each in self._places.items() if each == place)

    def close(self) -> None:
        """Check what could not be checked before. GraphError: what is wrong."""
        for edge, reader, tensor, wanted in self._later:
            name, port = split(tensor)
            producer = self._places.get(name, -1)
            if producer < 0:
                hint = nearest(name, tuple(self._places))
                raise GraphError(
                    "input-missing-in-graph", node=self._name(reader), tensor=tensor, hint=hint
                )
            self._check(reader, tensor, producer, port, wanted)
            self._producers[edge] = producer
        for name, place in self._colocated.items():
            if name not in self._places:
                raise GraphError("colocation-missing", node=self._name(place), other=name)
        order = self._order() if self._later else range(len(self))
        if self._frames:
            self._check_frames(order)

    def _inputs(self, place: int) -> Iterable[int]:
        """Return the producers of a node; a loop's edge back does not count."""
        found = self._producers[self._ends[place - 1] if place else 0 : self._ends[place]]
        if self._ops[place] in MERGE_OPS:
            return [p for p in found if self._ops[p] not in LOOP_EDGE_OPS]
        return found

    def _order(self) -> Sequence[int]:
        """Return the nodes in an order in which they can run. GraphError: there is a cycle."""
        readers: dict[int, list[int]] = {}
        missing = array("i", bytes(4 * len(self)))
        for place in range(len(self)):
            for producer in self._inputs(place):
                readers.setdefault(producer, []).append(place)
                missing[place] += 1
        order = array("i", [place for place in range(len(self)) if not missing[place]])
        for place in order:  # which grows meanwhile
            for reader in readers.get(place, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    order.append(reader)
        if len(order) < len(self):
            stuck = [name for name, place in self._places.items() if missing[place]]
            raise GraphError("cycle", count=len(stuck), nodes=stuck[:3])
        return order

    def _check_frames(self, order: Iterable[int]) -> None:
        """Raise GraphError for a node that reads from a loop and from outside of it."""
        parents = [0]
        frames: dict[tuple[int, bytes], int] = {}
        frame_of = array("i", bytes(4 * len(self)))
        for place in order:
            found = [
                parents[frame_of[p]] if self._ops[p] in EXIT_OPS else frame_of[p]
                for p in self._inputs(place)
            ]
            if len(set(found)) > 1:
                raise GraphError("loop-border", node=self._name(place))
            frame = found[0] if found else 0
            if place in self._frames:
                key = frame, self._frames[place]
                if key not in frames:
                    frames[key] = len(parents)
                    parents.append(frame)
                frame = frames[key]
            frame_of[place] = frame


def no_such_output(who: str, node: str, count: int) -> GraphError:
    """Return the error of somebody who names a port that a node does not have."""
    return GraphError("output-number-missing", what=who, node=node, count=count)
