"""The types of what a node reads and makes, without a list of as many as it may ask for."""

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.transforms.core.protos import AttrValue, OpDef

_REF = 100  # a reference type's number is its base type's plus this
_FEW = 64  # tensors, of which types are kept in a list for the next node of its kind
_KINDS = 4096  # of an op, by its attributes, that are kept


_NOTHING = AttrValue()


@dataclass(frozen=True, slots=True)
class Ports:
    """Tensors in a row: how many, and the type of each."""

    count: int
    starts: Sequence[int] = ()
    runs: Sequence[int | Sequence[int]] = ()
    """From each start on: one type for all, or a list of them."""
    few: Sequence[int] | None = None
    """The type of each port where there are not many."""

    def type_of(self, port: int) -> int:
        """Return the number of the type of a port."""
        if self.few is not None:
            return self.few[port]
        place = bisect_right(self.starts, port) - 1
        run = self.runs[place]
        return run if isinstance(run, int) else run[port - self.starts[place]]

    def types(self) -> Sequence[int]:
        """Return the type of each port, in order; it is a long list where there are many."""
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
    """What an op reads and makes, as its definition has it."""

    def __init__(self, op_def: OpDef) -> None:
        """Note which attributes say how many tensors there are, and of which types."""
        self._sides = op_def.input_arg, op_def.output_arg
        args = [*op_def.input_arg, *op_def.output_arg]
        said = [(arg.number_attr, arg.type_list_attr, arg.type_attr) for arg in args]
        self._shaping = tuple(dict.fromkeys(filter(None, itertools.chain.from_iterable(said))))
        self._defaults = {attr.name: attr.default_value for attr in op_def.attr}
        self._known: dict[tuple[object, ...], tuple[Ports, Ports]] = {}

    def ports(self, attrs: Mapping[str, AttrValue]) -> tuple[Ports, Ports]:
        """Return what a node with these attributes reads and makes."""
        values = [attrs.get(n) or self._defaults.get(n, _NOTHING) for n in self._shaping]
        key = tuple([v.type or v.i or tuple(v.list.type[: _FEW + 1]) for v in values])
        if key in self._known:
            return self._known[key]
        made = self._made(values)
        if made[0].few is not None and made[1].few is not None and len(self._known) < _KINDS:
            self._known[key] = made
        return made

    def _made(self, values: Sequence[AttrValue]) -> tuple[Ports, Ports]:
        given = dict(zip(self._shaping, values, strict=True))
        read, made = (_ports(side, given) for side in self._sides)
        return read, made


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
