"""Converts TensorProto to NumPy arrays and back by TensorFlow's rules, and encodes varints."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.protos import TensorProto
from deploykit.serving.protocol.versions import check_names
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import (
    MAX_DECLARED_BYTES,
    MAX_RANK,
    STRING_BYTES,
    Array,
    numpy_type,
    single_values,
    type_name,
    type_number,
    type_of,
    value_field,
)


def varint(number: int) -> bytes:
    """Return the varint of a non-negative number."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def varints(numbers: Array) -> bytes:
    """Return the varints of an array; negative numbers take ten bytes."""
    bits = numbers.astype(np.int64).view(np.uint64)
    largest = int(bits.max(initial=0))
    bits = bits.astype(np.min_scalar_type(largest))
    width = -(-largest.bit_length() // 7)
    if width <= 1:
        return bits.tobytes()
    rest = bits[:, np.newaxis] >> np.arange(0, 7 * width, 7, dtype=bits.dtype)
    used = rest > 0
    written = (rest & 0x7F).astype(np.uint8)
    written[:, :-1] |= used[:, 1:].view(np.uint8) << 7
    used[:, 0] = True
    return written[used].tobytes()


# Limit of memory for elements that a shape declares but that were not sent. Clients send large
# tensors in full; one repeated value is padding, and 32 MiB of it are 55 images of 224x224. With
# TensorFlow's copy, a request of 51 bytes cannot take more than 64 MiB.
MAX_FILLED_BYTES = 32 << 20

MAX_STRINGS = 1 << 20
"""Limit for the strings of a request: Python takes about 2 microseconds for each, with the GIL."""

INPUT_ALIAS = "an alias of the inputs"
"""The name of an alias in the error for one that is too long."""


_STRING = type_number("string")


class Sent(NamedTuple):
    """A tensor as it was sent: not validated yet, and without copies of large contents."""

    dtype: int
    shape: tuple[int, ...]
    content: bytes | memoryview
    values: Callable[[np.dtype[np.generic], int], Array]
    """Returns the values of the typed field of a dtype, at most the given number."""


def sent(proto: TensorProto) -> Sent:
    """Return the contents of a TensorProto; a shape is truncated just above the maximum rank."""

    def values(dtype: np.dtype[np.generic], most: int) -> Array:
        return single_values(proto, value_field(proto.dtype), dtype)[:most]

    shape = tuple([dim.size for dim in proto.tensor_shape.dim[: MAX_RANK + 1]])
    return Sent(proto.dtype, shape, proto.tensor_content, values)


def check_strings(count: int) -> None:
    """Raise ServingError if a request has more strings than the limit."""
    if count > MAX_STRINGS:
        raise refused("strings-too-many", count=count, most=MAX_STRINGS)


def decode_all(
    tensors: Mapping[str, Sent], max_bytes: int = MAX_DECLARED_BYTES
) -> dict[str, Array]:
    """Return the tensors of a request, which share the limit of missing values.

    ServingError: as in `decode`, an alias is too long, or there are too many strings.
    """
    check_names(INPUT_ALIAS, tensors)
    strings = (item.shape for item in tensors.values() if item.dtype == _STRING)
    check_strings(sum(max(math.prod(shape), 0) for shape in strings))
    share = MAX_FILLED_BYTES // max(len(tensors), 1)
    return {alias: decoded(item, alias, max_bytes, share) for alias, item in tensors.items()}


def decode(
    proto: TensorProto,
    alias: str,
    max_bytes: int = MAX_DECLARED_BYTES,
    max_filled: int = MAX_FILLED_BYTES,
) -> Array:
    """Return the array of a TensorProto. ServingError: as in `decoded`."""
    return decoded(sent(proto), alias, max_bytes, max_filled)


def decoded(tensor: Sent, alias: str, max_bytes: int, max_filled: int) -> Array:
    """Return the array of a tensor that was sent; strings are an object array of bytes.

    If values are missing, the last one is repeated, or zeros are used without any; extra values are
    dropped. ServingError: shape, dtype or content are invalid, or need more than `max_bytes`, or
    more than `max_filled` bytes for missing values.
    """
    try:
        value_field(tensor.dtype)
    except GraphError:
        raise _refused(alias) from None
    dtype = numpy_type(type_name(tensor.dtype))
    itemsize = STRING_BYTES if dtype.kind == "O" else dtype.itemsize
    _check_shape(tensor.shape, alias, max_bytes // itemsize)
    count = math.prod(tensor.shape)
    if len(tensor.content) and count:
        return _from_content(tensor.content, dtype, count, alias).reshape(tensor.shape)
    values = tensor.values(dtype, count)
    missing = count - len(values)
    if missing * itemsize > max_filled:
        raise _refused(alias)
    if missing:
        last = values[-1] if len(values) else b"" if dtype.kind == "O" else 0
        values = np.concatenate([values, np.full(missing, last, dtype)])
    return values.reshape(tensor.shape)


def encode(array: Array, dtype: str = "", as_content: bool = False) -> TensorProto:
    """Return `array` as a TensorProto of TensorFlow type `dtype` (default: the array's own).

    Values are written to the typed field (`float_val`), as TensorFlow Serving does, or to
    `tensor_content`. Strings are always in `string_val`, as TensorFlow's Python reads only that.
    """
    # Appending number by number would take 70 times as long for 110 kB.
    return TensorProto.FromString(b"".join(encoded(array, dtype, as_content)))


def encoded(
    array: Array, dtype: str = "", as_content: bool = False
) -> tuple[bytes, bytes | memoryview]:
    """Return the bytes of `encode` in two parts; the second may be a view of the array."""
    name = dtype or type_of(array)
    number = type_number(name)
    field = value_field(number)
    if field == "string_val":
        items = array.reshape(-1).tolist()
        texts = (i if isinstance(i, bytes) else str(i).encode() for i in items)
        return _head(number, array.shape, field, 0), TensorProto(
            string_val=texts
        ).SerializeToString()
    flat = np.ascontiguousarray(array, numpy_type(name)).reshape(-1)
    packed = flat.view(np.uint8).data if as_content else _packed(flat, field)
    head = _head(number, array.shape, "tensor_content" if as_content else field, len(packed))
    return head, packed


def _refused(alias: str) -> ServingError:
    return refused("tensor-not-parsed", name=alias)


def _check_shape(shape: tuple[int, ...], alias: str, most: int) -> None:
    """Raise ServingError for a shape that is invalid or has more than `most` elements."""
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise _refused(alias)
    # NumPy rejects an empty array of a huge shape, so sizes of 0 count as 1.
    if math.prod([size or 1 for size in shape]) > most:
        raise _refused(alias)


def _from_content(
    content: bytes | memoryview, dtype: np.dtype[np.generic], count: int, alias: str
) -> Array:
    if dtype.kind == "O":
        return _strings(bytes(content), count, alias)
    if len(content) != count * dtype.itemsize:
        raise _refused(alias)
    array = np.frombuffer(content, dtype)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise _refused(alias)
    return array


def _strings(content: bytes, count: int, alias: str) -> Array:
    """Return strings in TensorFlow's encoding: all lengths as varints, then all characters."""
    lengths: list[int] = []
    length = shift = position = 0
    while len(lengths) < count:
        if position == len(content) or shift > 28:  # a length has 32 bits
            raise _refused(alias)
        length |= (content[position] & 0x7F) << shift
        shift += 7
        if content[position] < 0x80:
            lengths.append(length)
            length = shift = 0
        position += 1
    if position + sum(lengths) != len(content):
        raise _refused(alias)
    strings = np.empty(count, object)
    for index, length in enumerate(lengths):
        strings[index] = content[position : position + length]
        position += length
    return strings


@functools.lru_cache
def _head(number: int, shape: tuple[int, ...], field: str, length: int) -> bytes:
    """Return a serialized TensorProto up to the `length` bytes of a field, which follow."""
    proto = TensorProto(dtype=number)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    tag = TensorProto.DESCRIPTOR.fields_by_name[field].number << 3 | 2
    return bytes(proto.SerializeToString() + (varint(tag) + varint(length) if length else b""))


def _packed(flat: Array, field: str) -> bytes | memoryview:
    """Return the bytes of a packed numeric field."""
    if field in ("int_val", "int64_val", "uint32_val", "uint64_val"):
        return varints(flat)
    if field == "half_val":
        return varints(flat.view(np.uint16))
    return flat.view(np.uint8).data  # complex numbers as real, imaginary
