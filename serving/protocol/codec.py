"""TensorProto <-> NumPy array by the rules of TensorFlow's C++ `Tensor::FromProto`.

Unlike a graph's constants (transforms.core.tensors), a request is read as the real server reads it:
values beyond the shape are dropped, a shape without sizes is a scalar, strings may be packed.
"""

import functools
import math
from collections.abc import Mapping

import numpy as np

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.names import check_names
from deploykit.serving.protocol.protos import TensorProto
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.tensors import (
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

# What a shape may ask for beyond the values that were sent. Who means a large tensor sends it; one
# value that stands for many is a padded or empty field, and 32 MiB of those are 55 pictures of
# 224x224. With TensorFlow's own copy, a request of 51 bytes cannot take more than 64 MiB.
MAX_FILLED_BYTES = 32 << 20

INPUT_ALIAS = "an alias of the inputs"
"""Stands in what is said of one that is too long."""


def decode_all(
    protos: Mapping[str, TensorProto], max_bytes: int = MAX_DECLARED_BYTES
) -> dict[str, Array]:
    """Return the tensors of a request, which share what may be filled in.

    ServingError: as `decode`, or an alias is too long.
    """
    check_names(INPUT_ALIAS, protos)
    share = MAX_FILLED_BYTES // max(len(protos), 1)
    return {alias: decode(proto, alias, max_bytes, share) for alias, proto in protos.items()}


def decode(
    proto: TensorProto,
    alias: str,
    max_bytes: int = MAX_DECLARED_BYTES,
    max_filled: int = MAX_FILLED_BYTES,
) -> Array:
    """Return the value of a tensor that was sent; strings are an object array of bytes.

    Too few values: the last one is repeated, or zeros without any. Too many: dropped.
    ServingError: the shape, the type or the content is none, or asks for more than `max_bytes`,
    or for more than `max_filled` that were not sent.
    """
    try:
        field = value_field(proto.dtype)
    except GraphError:
        raise _refused(alias) from None
    dtype = numpy_type(type_name(proto.dtype))
    itemsize = STRING_BYTES if dtype.kind == "O" else dtype.itemsize
    shape = _shape(proto, alias, max_bytes // itemsize)
    count = math.prod(shape)
    content = proto.tensor_content
    if content and count:
        return _from_content(content, dtype, count, alias).reshape(shape)
    values = single_values(proto, field, dtype)[:count]
    missing = count - len(values)
    if missing * itemsize > max_filled:
        raise _refused(alias)
    if missing:
        last = values[-1] if len(values) else _nothing(dtype)
        values = np.concatenate([values, np.full(missing, last, dtype)])
    return values.reshape(shape)


def encode(array: Array, dtype: str = "", as_content: bool = False) -> TensorProto:
    """Return `array` as a TensorProto of TensorFlow type `dtype` (default: the array's own).

    Values are written to the typed field (`float_val`), as the real server answers, or as
    `tensor_content`; strings always to `string_val`, for TensorFlow's Python reads them only there.
    """
    name = dtype or type_of(array)
    number = type_number(name)
    field = value_field(number)
    if field == "string_val":
        proto = TensorProto.FromString(_head(number, array.shape, field, 0))
        items = array.reshape(-1).tolist()
        proto.string_val.extend(i if isinstance(i, bytes) else str(i).encode() for i in items)
        return proto
    flat = np.ascontiguousarray(array, numpy_type(name)).reshape(-1)
    packed = flat.view(np.uint8).data if as_content else _packed(flat, field)
    head = _head(number, array.shape, "tensor_content" if as_content else field, len(packed))
    # Appended to the field number by number, 110 kB would take 70 times as long.
    return TensorProto.FromString(b"".join([head, packed]))


def _refused(alias: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"tensor parsing error: {alias}")


def _shape(proto: TensorProto, alias: str, most: int) -> tuple[int, ...]:
    """Return the shape, of at most `most` elements; whether its rank is unknown plays no part."""
    dims = proto.tensor_shape.dim
    if len(dims) > MAX_RANK:
        raise _refused(alias)
    shape = tuple([dim.size for dim in dims])
    # An empty array of a huge shape is no array for NumPy, so sizes of 0 count as 1.
    if min(shape, default=0) < 0 or math.prod([size or 1 for size in shape]) > most:
        raise _refused(alias)
    return shape


def _from_content(content: bytes, dtype: np.dtype[np.generic], count: int, alias: str) -> Array:
    if dtype.kind == "O":
        return _strings(content, count, alias)
    if len(content) != count * dtype.itemsize:
        raise _refused(alias)
    array = np.frombuffer(content, dtype)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise _refused(alias)
    return array


def _strings(content: bytes, count: int, alias: str) -> Array:
    """Return strings packed as TensorFlow does: all lengths as varints, then all characters."""
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


def _nothing(dtype: np.dtype[np.generic]) -> object:
    return b"" if dtype.kind == "O" else 0


@functools.lru_cache
def _head(number: int, shape: tuple[int, ...], field: str, length: int) -> bytes:
    """Return a serialized TensorProto up to where `length` bytes of a field follow."""
    proto = TensorProto(dtype=number)
    for size in shape:
        proto.tensor_shape.dim.add().size = size
    head = bytearray(proto.SerializeToString())
    tag = TensorProto.DESCRIPTOR.fields_by_name[field].number << 3 | 2
    for rest in (tag, length) if length else ():
        while rest > 0x7F:
            head.append(rest & 0x7F | 0x80)
            rest >>= 7
        head.append(rest)
    return bytes(head)


def _packed(flat: Array, field: str) -> bytes | memoryview:
    """Return the bytes of a packed field that holds the numbers."""
    if field in ("int_val", "int64_val", "uint32_val", "uint64_val"):
        return _varints(flat)
    if field == "half_val":
        return _varints(flat.view(np.uint16))
    return flat.view(np.uint8).data  # of complex numbers, the parts in turn


def _varints(numbers: Array) -> bytes:
    """Return integers as varints: 7 bits a byte, lowest first; all but the last byte have bit 8."""
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
