"""Conversion between TensorProto and NumPy arrays, and the types of TensorFlow by name."""

import functools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import TensorProto

Array = npt.NDArray[Any]


class DType(str):
    """The name of a TensorFlow type as `tf.DType.name` spells it, such as `float32` or `qint8`."""

    __slots__ = ()


# Field of TensorProto with single values: the types that it holds, by enumeration number.
_FIELDS: dict[str, dict[int, str]] = {
    "float_val": {1: "float32"},
    "double_val": {2: "float64"},
    "int_val": {3: "int32", 4: "uint8", 5: "int16", 6: "int8", 11: "qint8", 12: "quint8",
                13: "qint32", 15: "qint16", 16: "quint16", 17: "uint16"},
    "string_val": {7: "string"},
    "scomplex_val": {8: "complex64"},
    "int64_val": {9: "int64"},
    "bool_val": {10: "bool"},
    "half_val": {14: "bfloat16", 19: "float16"},
    "dcomplex_val": {18: "complex128"},
    "uint32_val": {22: "uint32"},
    "uint64_val": {23: "uint64"},
    "float8_val": {24: "float8_e5m2", 25: "float8_e4m3fn"},
    "": {20: "resource", 21: "variant"},
}  # fmt: skip
# Enumeration number: (name, NumPy type of its values, field).
_TYPES = {
    number: (name, "object" if name == "string" else name.removeprefix("q") if field else "", field)
    for field, names in _FIELDS.items()
    for number, name in sorted(names.items())
}
_REF = 100  # a reference type's number is its base type's plus this
_ENUMERATION = TensorProto.DESCRIPTOR.fields_by_name["dtype"].enum_type.values_by_number
_NUMBERS = {name: number for number, (name, _, _) in sorted(_TYPES.items())}
_ALIASES = {"float": "float32", "double": "float64", "half": "float16"}

# A Const may declare a huge shape with a single value; allocations above this are refused.
MAX_DECLARED_BYTES = 2 << 30
MAX_RANK = 64  # NumPy's limit
STRING_BYTES = 24  # memory of TensorFlow for each string in addition to its characters


def is_type(number: int) -> bool:
    """Return whether a tensor may have the type with this number; reference types may not."""
    return 0 < number < _REF and number in _ENUMERATION


@functools.lru_cache
def type_name(number: int) -> DType:
    """Return the name of a type's enumeration number; reference types end in `_ref`."""
    base, suffix = (number - _REF, "_ref") if number > _REF else (number, "")
    return DType((_TYPES[base][0] if base in _TYPES else f"type{base}") + suffix)


@functools.lru_cache
def type_number(name: str) -> int:
    """Return the enumeration number of a type's name; GTT's `float`, `double`, `half` are known."""
    base = name.removesuffix("_ref")
    base = _ALIASES.get(base, base)
    number = _NUMBERS.get(base)
    if number is None and base.startswith("type") and base[4:].isdigit():
        number = int(base[4:])
    if number is None:
        raise GraphError("type-unknown", name=name, known=_NUMBERS)
    return number + (_REF if name.endswith("_ref") else 0)


@functools.lru_cache
def numpy_type(name: str) -> np.dtype[Any]:
    """Return the NumPy type for values of a TensorFlow type (`qint8` -> int8)."""
    number = type_number(name.removesuffix("_ref"))
    held_as = _TYPES[number][1] if number in _TYPES else ""
    if not held_as:
        raise GraphError("type-not-readable", name=name)
    if "bfloat" in held_as or "float8" in held_as:
        import ml_dtypes

        held_as = getattr(ml_dtypes, held_as)
    return np.dtype(held_as)


def value_field(number: int) -> str:
    """Return the field of TensorProto with a type's single values; GraphError: it has none."""
    if number not in _TYPES or not _TYPES[number][2]:
        raise GraphError("tensor-without-value", type=type_name(number))
    return _TYPES[number][2]


def declared_shape(tensor: TensorProto) -> tuple[int, ...]:
    """Return a TensorProto's shape. GraphError: the shape is unknown or too large."""
    shape = tuple(d.size for d in tensor.tensor_shape.dim)
    if tensor.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise GraphError("tensor-shape-open", shape=list(shape[:8]))
    if len(shape) > MAX_RANK:
        raise GraphError(
            "too-many", what="the tensor", count=len(shape), unit="dimensions", most=MAX_RANK
        )
    return shape


def check_size(tensor: TensorProto, content: bytes | None = None) -> tuple[int, ...]:
    """Return the shape of a TensorProto whose content fits it, without decoding it.

    Pass `content` if it was read already: reading it from the proto copies it.

    GraphError: a type without values, a content that does not fit the shape, or a shape that needs
    more than MAX_DECLARED_BYTES.
    """
    shape = declared_shape(tensor)
    field = value_field(tensor.dtype)
    name = type_name(tensor.dtype)
    itemsize = STRING_BYTES if name == "string" else numpy_type(name).itemsize
    # NumPy cannot represent an empty array of a huge shape, so sizes of 0 count as 1.
    declared = math.prod(max(size, 1) for size in shape) * itemsize
    if declared > MAX_DECLARED_BYTES:
        raise GraphError("tensor-too-many-bytes", shape=shape, type=name, size=declared)
    count = math.prod(shape)
    length = len(tensor.tensor_content if content is None else content)
    if length and (name == "string" or length != count * itemsize):
        needed = "needs string values" if name == "string" else f"needs {count * itemsize}"
        raise GraphError("tensor-size", size=length, shape=shape, type=name, needed=needed)
    values = len(getattr(tensor, field))
    if field in ("scomplex_val", "dcomplex_val"):
        if values % 2:
            raise GraphError("tensor-real-only")
        values //= 2
    if not length and (values > count or (not values and count and name == "string")):
        raise GraphError("tensor-values-count", got=values, shape=shape, count=count)
    return shape


def decode(tensor: TensorProto) -> Array:
    """Return the value of a TensorProto as a read-only array.

    A single value that is repeated becomes a broadcast view, whatever size the shape declares.
    GraphError: as in `check_size`.
    """
    content = tensor.tensor_content
    shape = check_size(tensor, content)
    name, _, field = _TYPES[tensor.dtype]
    dtype = numpy_type(name)
    if content:
        return np.frombuffer(content, dtype).reshape(shape)
    count = math.prod(shape)
    values = single_values(tensor, field, dtype)
    if len(values) == count:
        result = values.reshape(shape)
    elif not len(values):
        result = np.broadcast_to(np.zeros((), dtype), shape)
    elif len(values) == 1:
        result = np.broadcast_to(values[0], shape)
    else:  # TensorFlow repeats the last value up to the end
        result = np.full(count, values[-1], dtype)
        result[: len(values)] = values
        result = result.reshape(shape)
    result.flags.writeable = False
    return result


def single_values(tensor: TensorProto, field: str, dtype: np.dtype[Any]) -> Array:
    """Return all values of one of a TensorProto's repeated fields."""
    if field == "float8_val":
        return np.frombuffer(tensor.float8_val, dtype)
    values = getattr(tensor, field)
    if field == "string_val":
        result = np.empty(len(values), object)
        result[:] = values
        return result
    values = np.array(values)  # one copy; a list of the numbers takes 100 times as long
    if field == "half_val":  # only the low 16 bits are used
        return values.astype(np.uint16).view(dtype)
    if field in ("scomplex_val", "dcomplex_val"):
        return values[: len(values) // 2 * 2].view(dtype)
    return values.astype(dtype, copy=False)


def held_bytes(array: Array) -> int:
    """Return the bytes of an array's values as a tensor, including the characters of strings."""
    if array.dtype.kind != "O":
        return array.nbytes
    size = array.size * STRING_BYTES
    if size > MAX_DECLARED_BYTES:  # it may be a view of any size: do not visit its elements
        return size
    return size + sum(map(len, array.reshape(-1).tolist()))


def encode(array: Array, dtype: str | None = None, into: TensorProto | None = None) -> TensorProto:
    """Return `array` as a TensorProto of TensorFlow type `dtype` (default: the array's own).

    The result is a new proto, or the empty one given, so that weights are copied once. An array
    whose elements all have the same bits is written as one element, exactly.
    """
    array = np.asarray(array)
    name = dtype or type_of(array)
    number = type_number(name)
    field = _TYPES[number][2]
    proto = TensorProto() if into is None else into
    proto.dtype = number
    for size in array.shape:
        proto.tensor_shape.dim.add().size = size
    if name == "string":
        for item in array.reshape(-1).tolist():
            proto.string_val.append(item if isinstance(item, bytes) else str(item).encode())
        return proto
    array = np.ascontiguousarray(array, numpy_type(name)).reshape(-1)
    if array.size and field.endswith(
        ("float_val", "double_val", "int_val", "int64_val", "bool_val")
    ):
        bits = array.view(f"u{array.itemsize}")
        if bits[0] == bits[-1] and not (bits != bits[0]).any():
            getattr(proto, field).append(array[0].item())
            return proto
    proto.tensor_content = array.tobytes()
    return proto


def type_of(array: Array) -> DType:
    """Return the TensorFlow type of an array's dtype."""
    return _held_by(array.dtype)


@functools.lru_cache
def _held_by(dtype: np.dtype[Any]) -> DType:
    return DType("string" if dtype.kind in "OSU" else dtype.name)
