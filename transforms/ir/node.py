"""A node of a graph. It is immutable: an edit creates another node."""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir import tensors
from deploykit.transforms.ir.protos import AttrValue, NodeDef, TensorProto
from deploykit.transforms.ir.tensors import Array, DType

T = TypeVar("T")

# TensorFlow 1 control flow: a Switch passes its input on to one of its outputs, nodes after it may
# be dead, and a Merge passes on the input that is alive. Nodes between Enter and Exit run in a
# loop, whose back edge is a NextIteration.
SWITCH_OPS = frozenset({"Switch", "RefSwitch", "_SwitchN"})
MERGE_OPS = frozenset({"Merge", "RefMerge"})
ENTER_OPS = frozenset({"Enter", "RefEnter"})
EXIT_OPS = frozenset({"Exit", "RefExit"})
_SHARED_AT_MOST, _SHARED_BYTES = 4, 64  # attributes of a node, and the bytes of their values
_KINDS = 4096  # maximum number of shared attribute sets
_shared_attrs: dict[tuple[tuple[str, bytes], ...], dict[str, AttrValue]] = {}
LOOP_EDGE_OPS = frozenset({"NextIteration", "RefNextIteration"})


def split(tensor: str) -> tuple[str, int]:
    """Return the node and the port of a tensor's name: `a` and `a:0` -> (a, 0), `^a` -> (a, -1)."""
    if tensor.startswith("^"):
        return tensor[1:], -1
    name, colon, port = tensor.rpartition(":")
    is_port = colon and port.isascii() and port.isdigit() and len(port) < 10
    return (name, int(port)) if is_port else (tensor, 0)


def producer_name(tensor: str) -> str:
    """Return the name of the node of a tensor or a control input."""
    return split(tensor)[0] if ":" in tensor or tensor[:1] == "^" else tensor


def tensor_name(name: str, port: int) -> str:
    """Return a tensor's normal name: `a`, `a:1`, and `^a` for port -1."""
    return name if port == 0 else f"{name}:{port}" if port > 0 else f"^{name}"


def normal(tensor: str) -> str:
    """Return a tensor's name in the normal form, which omits port 0."""
    return tensor_name(*split(tensor)) if ":" in tensor else tensor


@dataclass(frozen=True, slots=True)
class Node:
    """A name, an op, its inputs (`a`, `a:1`, control inputs `^a` last), attributes and a device."""

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    device: str = ""

    @classmethod
    def from_proto(cls, proto: NodeDef) -> "Node":
        """Read a NodeDef."""
        inputs = tuple([normal(i) if ":" in i else i for i in proto.input])
        return cls(proto.name, sys.intern(proto.op), inputs, _attrs(proto), proto.device)

    def to_proto(self, into: NodeDef | None = None) -> NodeDef:
        """Write a new NodeDef, or fill the empty one `into`, so that weights are copied once."""
        proto = NodeDef() if into is None else into
        proto.name, proto.op, proto.device = self.name, self.op, self.device
        proto.input.extend(self.inputs)
        for name, value in self.attrs.items():
            proto.attr[name].CopyFrom(value)
        return proto

    def serialized(self) -> list[bytes]:
        """Return the NodeDef's bytes in pieces, always the same; a weight is copied once.

        Attributes are the NodeDef's map, field 5, sorted by name, as a deterministic protobuf
        writer does (https://protobuf.dev/programming-guides/encoding/#maps).
        """
        if self.op != "Const":
            return [self.to_proto().SerializeToString(deterministic=True)]
        pieces = [replace(self, attrs={}).to_proto().SerializeToString()]
        for name, value in sorted(self.attrs.items()):
            content = value.SerializeToString(deterministic=True)
            entry = [*delimited(1, [name.encode()]), *delimited(2, [content])]
            pieces += delimited(5, entry)
        return pieces

    @classmethod
    def constant(
        cls, name: str, array: Array, dtype: str | None = None, device: str = ""
    ) -> "Node":
        """Create a Const with the value `array`, as TensorFlow type `dtype` (default: its own)."""
        array = np.asarray(array)
        if array.nbytes <= _SHARED_BYTES and array.dtype.kind not in "OSU":
            attrs = _small_constant(array.tobytes(), array.dtype, array.shape, dtype)
        else:
            attrs = _constant_attrs(array, dtype)
        return cls(name, "Const", (), attrs, device)

    @property
    def data_inputs(self) -> tuple[str, ...]:
        """The tensors that the node reads, in order."""
        count = len(self.inputs)
        while count and self.inputs[count - 1][:1] == "^":  # control inputs are last
            count -= 1
        return self.inputs[:count]  # no copy if there are no control inputs

    @property
    def control_inputs(self) -> tuple[str, ...]:
        """The nodes that must run before this one, each with its `^`."""
        if not self.inputs or self.inputs[-1][:1] != "^":  # control inputs are last
            return ()
        return tuple([i for i in self.inputs if i[:1] == "^"])

    @property
    def value(self) -> Array:
        """The value of a Const as a read-only array, without a second copy of the weights.

        GraphError: the content is invalid.
        """
        return self._read(tensors.decode)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a Const's value, without reading the value. GraphError: it has none."""
        return self._read(tensors.declared_shape)

    def _read(self, read: Callable[[TensorProto], T]) -> T:
        if self.op != "Const" or "value" not in self.attrs:
            raise GraphError("node-without-value", node=self.name, op=self.op)
        try:
            return read(self.attrs["value"].tensor)
        except GraphError as error:
            raise error.within(f"node '{self.name}'") from None

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute as a plain value, or `default` if the node does not have it.

        int, float, bool, str (bytes if it is not text), DType, a shape as a tuple with -1 for an
        unknown size (None for an unknown rank), an array, a list of these, or a function's name.
        """
        value = self.attrs.get(name)
        return default if value is None else _plain(value)

    def attr_text(self, name: str) -> str:
        """Return an attribute as readable text; for more than four values, their type and shape."""
        value = self.attr(name)
        if isinstance(value, np.ndarray):
            kind = tensors.type_name(self.attrs[name].tensor.dtype)
            value = f"{kind}{list(value.shape)}" if value.size > 4 else value.tolist()
        return str(value)

    def with_name(self, name: str) -> "Node":
        """Return the node under another name."""
        return Node(name, self.op, self.inputs, self.attrs, self.device)

    def with_data_inputs(self, *tensors: str) -> "Node":
        """Return the node with these data inputs; its control inputs are kept."""
        return Node(self.name, self.op, (*tensors, *self.control_inputs), self.attrs, self.device)

    def reading(self, moves: Mapping[str, str]) -> "Node":
        """Return the node with some data inputs replaced by others."""
        return self.with_data_inputs(*[moves.get(tensor, tensor) for tensor in self.data_inputs])

    def with_control_inputs(self, *control_inputs: str) -> "Node":
        """Return the node with more control inputs (`^a`), each once, after the data inputs."""
        if not control_inputs:
            return self
        waits = dict.fromkeys((*self.control_inputs, *control_inputs))
        return Node(self.name, self.op, (*self.data_inputs, *waits), self.attrs, self.device)

    def without_control_inputs(self, *control_inputs: str) -> "Node":
        """Return the node without these control inputs (`^a`)."""
        gone = set(control_inputs)
        retained = [tensor for tensor in self.inputs if tensor not in gone]
        return Node(self.name, self.op, tuple(retained), self.attrs, self.device)

    def rewired(self, move: Callable[[str], Iterable[str]]) -> "Node":
        """Return the node with each input, `^a` included, replaced by the result of `move`.

        A control input may become several or none.
        """
        moved = [new for tensor in self.inputs for new in move(tensor)]
        data = [tensor for tensor in moved if tensor[:1] != "^"]
        waits = dict.fromkeys([tensor for tensor in moved if tensor[:1] == "^"])
        return Node(self.name, self.op, (*data, *waits), self.attrs, self.device)

    def with_value(self, array: Array) -> "Node":
        """Return a Const with another value, of its own type."""
        new = Node.constant(self.name, array, self.attr("dtype"), self.device)
        return new.with_control_inputs(*self.control_inputs)

    def with_attrs(self, **values: Any) -> "Node":
        """Return the node with these attributes set; a value of None removes one.

        A tuple is a shape, a DType a type, an array a tensor; an AttrValue is used unchanged.
        """
        attrs = dict(self.attrs)
        for name, value in values.items():
            if value is None:
                attrs.pop(name, None)
            else:
                attrs[name] = value if isinstance(value, AttrValue) else _attr_value(value)
        return Node(self.name, self.op, self.inputs, attrs, self.device)

    def __reduce__(self) -> tuple[Callable[[bytes], "Node"], tuple[bytes]]:
        """Pickle the NodeDef's bytes: a pickled message would import all of TensorFlow."""
        return _of_bytes, (b"".join(self.serialized()),)

    def __str__(self) -> str:
        """Return the node in one line: `name = Op(inputs) {attrs}`."""
        shown = [f"{name}={self.attr_text(name)}" for name in sorted(self.attrs)]
        device = f" @{self.device}" if self.device else ""
        attrs = f" {{{', '.join(shown)}}}" if shown else ""
        return f"{self.name} = {self.op}({', '.join(self.inputs)}){attrs}{device}"


def _of_bytes(content: bytes) -> Node:
    return Node.from_proto(NodeDef.FromString(content))


def delimited(field_number: int, pieces: Sequence[bytes]) -> list[bytes]:
    """Return the pieces as one length-delimited field of a protobuf message (wire type 2)."""
    length = sum(map(len, pieces))
    header = bytearray([field_number << 3 | 2])
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return [bytes(header), *pieces]


def _attrs(proto: NodeDef) -> Mapping[str, AttrValue]:
    """Return the attributes of a node. Nodes with the same few ones share them to save memory."""
    attrs = dict(proto.attr)
    if len(attrs) > _SHARED_AT_MOST or proto.op == "Const":
        return attrs
    key = tuple([(name, value.SerializeToString()) for name, value in attrs.items()])
    shared_attr = _shared_attrs.get(key)
    if shared_attr is None:
        if len(_shared_attrs) >= _KINDS or sum(len(text) for _, text in key) > _SHARED_BYTES:
            return attrs
        shared_attr = _shared_attrs[key] = {name: AttrValue.FromString(text) for name, text in key}
    return shared_attr


def _constant_attrs(array: Array, dtype: str | None) -> Mapping[str, AttrValue]:
    value = AttrValue()
    type_ = AttrValue(type=tensors.encode(array, dtype, into=value.tensor).dtype)
    return {"dtype": type_, "value": value}


@functools.lru_cache(_KINDS)
def _small_constant(
    content: bytes, numpy_type: np.dtype[Any], shape: tuple[int, ...], dtype: str | None
) -> Mapping[str, AttrValue]:
    """Return the attributes of a small Const, shared by all with this value."""
    return _constant_attrs(np.frombuffer(content, numpy_type).reshape(shape), dtype)


def _plain(value: AttrValue) -> Any:
    kind = value.WhichOneof("value")
    if kind != "list":
        return None if kind is None else _PLAIN_VALUES.get(kind, _same)(getattr(value, kind))
    for field_, items in value.list.ListFields():
        plain = _same if field_.name == "tensor" else _PLAIN_VALUES.get(field_.name, _same)
        return [plain(item) for item in items]
    return []


def _same(value: Any) -> Any:
    return value


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(d.size for d in shape.dim)


_PLAIN_VALUES: dict[str, Callable[[Any], Any]] = {
    "s": _text,
    "type": tensors.type_name,
    "shape": _shape,
    "tensor": tensors.decode,
    "func": lambda function: function.name,
}


def _attr_value(value: Any) -> AttrValue:
    result = AttrValue()
    if isinstance(value, DType):
        result.type = tensors.type_number(value)
    elif isinstance(value, bool):
        result.b = value
    elif isinstance(value, int):
        result.i = value
    elif isinstance(value, float):
        result.f = value
    elif isinstance(value, str | bytes):
        result.s = value.encode() if isinstance(value, str) else value
    elif isinstance(value, np.ndarray):
        tensors.encode(value, into=result.tensor)
    elif isinstance(value, tuple):
        result.shape.SetInParent()
        for size in value:
            result.shape.dim.add(size=size)
    elif isinstance(value, Sequence):
        result.list.SetInParent()
        for item in map(_attr_value, value):
            kind = item.WhichOneof("value")
            getattr(result.list, kind).append(getattr(item, kind))
    else:
        raise TypeError(f"an attribute cannot be {value!r}")
    return result
