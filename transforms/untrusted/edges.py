"""Checks of the edges of a graph, node by node: names, ports, dtypes, cycles and loops."""

import itertools
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.node import ENTER_OPS, EXIT_OPS, LOOP_EDGE_OPS, MERGE_OPS, Node, split
from deploykit.transforms.ir.protos import AttrValue, OpDef
from deploykit.transforms.ir.tensors import type_name

_REF = 100  # a reference type's number is its base type's plus this
_FEW = 64  # maximum number of tensors whose types are cached for the next node of the same kind
_KINDS = 4096  # maximum number of cached attribute sets per op


_NOTHING = AttrValue()


@dataclass(frozen=True, slots=True)
class Ports:
    """A sequence of tensors: their number, and the type of each."""

    count: int
    starts: Sequence[int] = ()
    runs: Sequence[int | Sequence[int]] = ()
    """For each start: one type for all ports from there on, or a list of types."""
    few: Sequence[int] | None = None
    """The type of each port, if there are only a few."""

    def type_of(self, port: int) -> int:
        """Return the type number of a port."""
        if self.few is not None:
            return self.few[port]
        place = bisect_right(self.starts, port) - 1
        run = self.runs[place]
        return run if isinstance(run, int) else run[port - self.starts[place]]

    def types(self) -> Sequence[int]:
        """Return the type of each port, in order; the list may be long."""
        if self.few is not None:
            return self.few
        ends = (*self.starts, self.count)[1:]
        return array(
            "i",
            itertools.chain.from_iterable(
                itertools.repeat(run, end - start) if isinstance(run, int) else run
                for run, start, end in zip(self.runs, self.starts, ends, strict=True)
            ),
        )


class OpPorts:
    """The inputs and outputs of an op, from its definition."""

    def __init__(self, op_def: OpDef) -> None:
        """Find the attributes that determine the number and the types of the tensors."""
        self._sides = op_def.input_arg, op_def.output_arg
        args = [*op_def.input_arg, *op_def.output_arg]
        said = [(arg.number_attr, arg.type_list_attr, arg.type_attr) for arg in args]
        self._shaping = tuple(dict.fromkeys(filter(None, itertools.chain.from_iterable(said))))
        self._defaults = {attr.name: attr.default_value for attr in op_def.attr}
        self._known: dict[tuple[object, ...], tuple[Ports, Ports]] = {}

    def ports(self, attrs: Mapping[str, AttrValue]) -> tuple[Ports, Ports]:
        """Return the inputs and outputs of a node with these attributes."""
        values = [attrs.get(n) or self._defaults.get(n, _NOTHING) for n in self._shaping]
        key = tuple([v.type or v.i or tuple(v.list.type[: _FEW + 1]) for v in values])
        if key in self._known:
            return self._known[key]
        given = dict(zip(self._shaping, values, strict=True))
        made = _ports(self._sides[0], given), _ports(self._sides[1], given)
        if made[0].few is not None and made[1].few is not None and len(self._known) < _KINDS:
            self._known[key] = made
        return made


def _ports(args: Iterable[OpDef.ArgDef], attrs: Mapping[str, AttrValue]) -> Ports:
    count, starts, runs = 0, list[int](), list[int | Sequence[int]]()
    single: array[int] | None = None
    for arg in args:
        type_ = arg.type or (attrs[arg.type_attr].type if arg.type_attr else 0)
        type_ += _REF if arg.is_ref else 0
        if not (arg.number_attr or arg.type_list_attr):
            if single is None:
                single = array("i")
                starts.append(count)
                runs.append(single)
            single.append(type_)
            count += 1
            continue
        single = None
        starts.append(count)
        if arg.number_attr:
            runs.append(type_)
            count += attrs[arg.number_attr].i
        else:
            runs.append(array("i", attrs[arg.type_list_attr].list.type))
            count += len(attrs[arg.type_list_attr].list.type)
    ports = Ports(count, starts, runs)
    return replace(ports, few=tuple(ports.types())) if 0 <= count <= _FEW else ports


class Edges:
    """The edges of a graph or of a function's body, which are checked as nodes are added."""

    def __init__(self, colocated: bool = True) -> None:
        """Create an empty index. `colocated`: whether colocated nodes must exist."""
        self._needs_colocated = colocated
        self._places: dict[str, int] = {}
        self._ops: list[str] = []
        self._made: list[Ports | None] = []
        self._producers = array("i")  # of each input, one node after the other
        self._ends = array("q")  # for each node: number of inputs up to it
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
        """Add a node; without ports, the number and types of its tensors are unknown.

        GraphError: its name is in use, or its inputs do not fit.
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
        expected: Sequence[int] = ()
        if ports is not None:
            self._check_count(node, ports[0])
            expected = ports[0].types()
        for tensor, type_ in zip(node.inputs, expected, strict=False):
            self._link(place, tensor, type_)
        for tensor in node.inputs[len(expected) :]:
            self._link(place, tensor, 0)
        self._ends.append(len(self._producers))

    def _check_count(self, node: Node, reads: Ports) -> None:
        count = len(node.data_inputs)
        if "^" in [tensor[:1] for tensor in node.inputs[:count]]:
            raise GraphError("data-input-after-control", node=node.name)
        if count != reads.count:
            raise GraphError(
                "input-count-wrong", node=node.name, op=node.op, count=count, expected=reads.count
            )

    def _link(self, reader: int, tensor: str, expected: int) -> None:
        name, port = split(tensor) if tensor[:1] == "^" or ":" in tensor else (tensor, 0)
        producer = self._places.get(name, -1)
        if producer < 0 or producer == reader:
            self._later.append((len(self._producers), reader, tensor, expected))
        else:
            self._check(reader, tensor, producer, port, expected)
        self._producers.append(producer)

    def _check(self, reader: int, tensor: str, producer: int, port: int, requested: int) -> None:
        made = self._made[producer]
        if port < 0 or made is None:
            return
        if port >= made.count:
            raise no_such_output(
                f"node '{self._name(reader)}' reads '{tensor}'",
                f"node '{self._name(producer)}' ({self._ops[producer]})",
                made.count,
            )
        if not requested:
            return
        held = made.type_of(port)
        if held - requested not in (0, _REF):  # a reference may be read as its base type
            expected, got = type_name(requested), type_name(held)
            raise GraphError(
                "input-type-differs",
                node=self._name(reader),
                tensor=tensor,
                expected=expected,
                got=got,
            )

    def _name(self, place: int) -> str:
        """Return the name of a node; it is slow, and only for errors."""
        return next(name for name, item in self._places.items() if item == place)

    def close(self) -> None:
        """Make the checks that need all nodes. GraphError: the graph is invalid."""
        for edge, reader, tensor, expected in self._later:
            name, port = split(tensor)
            producer = self._places.get(name, -1)
            if producer < 0:
                hint = nearest(name, tuple(self._places))
                raise GraphError(
                    "input-missing-in-graph", node=self._name(reader), tensor=tensor, hint=hint
                )
            self._check(reader, tensor, producer, port, expected)
            self._producers[edge] = producer
        for name, place in self._colocated.items():
            if name not in self._places:
                raise GraphError("colocation-missing", node=self._name(place), other=name)
        order = self._order() if self._later else range(len(self))
        if self._frames:
            self._check_frames(order)

    def _inputs(self, place: int) -> Iterable[int]:
        """Return the producers of a node; a loop's back edge does not count."""
        producer = self._producers[self._ends[place - 1] if place else 0 : self._ends[place]]
        if self._ops[place] in MERGE_OPS:
            return [p for p in producer if self._ops[p] not in LOOP_EDGE_OPS]
        return producer

    def _order(self) -> Sequence[int]:
        """Return the nodes in an execution order. GraphError: there is a cycle."""
        readers: dict[int, list[int]] = {}
        missing = array("i", bytes(4 * len(self)))
        for place in range(len(self)):
            for producer in self._inputs(place):
                readers.setdefault(producer, []).append(place)
                missing[place] += 1
        order = array("i", [place for place in range(len(self)) if not missing[place]])
        for place in order:  # the list grows in the loop
            for reader in readers.get(place, ()):
                missing[reader] -= 1
                if not missing[reader]:
                    order.append(reader)
        if len(order) < len(self):
            stuck = [name for name, place in self._places.items() if missing[place]]
            raise GraphError("cycle", count=len(stuck), nodes=stuck[:3])
        return order

    def _check_frames(self, order: Iterable[int]) -> None:
        """Raise GraphError for a node that reads from inside and outside of a loop."""
        parents = [0]
        frames: dict[tuple[int, bytes], int] = {}
        frame_of = array("i", bytes(4 * len(self)))
        for place in order:
            results = [
                parents[frame_of[p]] if self._ops[p] in EXIT_OPS else frame_of[p]
                for p in self._inputs(place)
            ]
            if len(set(results)) > 1:
                raise GraphError("loop-border", node=self._name(place))
            frame = results[0] if results else 0
            if place in self._frames:
                key = frame, self._frames[place]
                if key not in frames:
                    frames[key] = len(parents)
                    parents.append(frame)
                frame = frames[key]
            frame_of[place] = frame


def no_such_output(who: str, node: str, count: int) -> GraphError:
    """Return the error for a reference to a port that a node does not have."""
    return GraphError("output-number-missing", what=who, node=node, count=count)
