"""Tensors of the Open Inference Protocol (KServe v2): datatypes, shapes and contents <-> arrays.

A tensor holds exactly the values that its shape asks for. This is checked before any is read.
https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
"""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.names import check_name
from deploykit.serving.protocol.signatures import Tensor
from deploykit.transforms.core.tensors import (
    MAX_DECLARED_BYTES,
    MAX_RANK,
    STRING_BYTES,
    Array,
    numpy_type,
    type_of,
)

TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "FP16": "float16",
    "BF16": "bfloat16", "FP32": "float32", "FP64": "float64", "BYTES": "string",
}  # fmt: skip
"""TensorFlow's type of each datatype."""
_DATATYPES = {type_: datatype for datatype, type_ in TYPES.items()}
_LENGTH = struct.Struct("<I")  # in front of each element of BYTES


def datatype_of(type_: str) -> str:
    """Return the datatype of a TensorFlow type; the type itself where the protocol has none."""
    return _DATATYPES.get(type_, type_)


def output_datatype(name: str, array: Array) -> str:
    """Return the datatype of an output. ServingError: the protocol has none for it."""
    type_ = type_of(array)
    if type_ not in _DATATYPES:
        raise ServingError("UNIMPLEMENTED", "output-without-datatype", name=name, type=type_)
    return _DATATYPES[type_]


def shape_of(tensor: Tensor) -> list[int]:
    """Return a shape as metadata has it: -1 for any size, and [-1] for any shape."""
    return [-1] if tensor.shape is None else [max(size, -1) for size in tensor.shape]


def value_count(name: str, datatype: str, shape: Sequence[int]) -> int:
    """Return how many values an input has. ServingError: it is no tensor, or far too large."""
    check_name("the name of an input", name)
    if datatype not in TYPES:
        raise refused("infer-datatype-unknown", name=name, got=datatype[:40], known=TYPES)
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        raise refused("infer-shape-invalid", name=name, shape=list(shape[:MAX_RANK]), most=MAX_RANK)
    itemsize = STRING_BYTES if datatype == "BYTES" else numpy_type(TYPES[datatype]).itemsize
    if math.prod([size or 1 for size in shape]) > MAX_DECLARED_BYTES // itemsize:
        raise refused(
            "infer-input-too-large",
            name=name,
            datatype=datatype,
            shape=shape,
            most=MAX_DECLARED_BYTES >> 30,
        )
    return math.prod(shape)


def from_raw(name: str, datatype: str, shape: Sequence[int], content: memoryview) -> Array:
    """Return the array that raw contents hold: row-major, little-endian; strings with lengths.

    The array is a view of `content`, except that strings are an object array of bytes.
    ServingError: the contents are not those of such a tensor.
    """
    count = value_count(name, datatype, shape)
    if datatype == "BYTES":
        return _strings(name, shape, count, content)
    dtype = numpy_type(TYPES[datatype])
    if len(content) != count * dtype.itemsize:
        raise refused(
            "infer-contents-size",
            name=name,
            datatype=datatype,
            shape=shape,
            count=len(content),
            what="bytes of raw contents",
            expected=count * dtype.itemsize,
        )
    array = np.frombuffer(content, dtype)
    if dtype.kind == "b" and count and array.view(np.uint8).max() > 1:
        raise refused("infer-bool-invalid", name=name)
    return array.reshape(shape)


def from_values(name: str, datatype: str, shape: Sequence[int], values: Sequence[Any]) -> Array:
    """Return the array of values in row-major order. ServingError: they do not fit."""
    count = value_count(name, datatype, shape)
    if len(values) != count:
        raise refused(
            "infer-contents-size",
            name=name,
            datatype=datatype,
            shape=shape,
            count=len(values),
            what="values",
            expected=count,
        )
    dtype = numpy_type(TYPES[datatype])
    if datatype == "BYTES":
        array = np.empty(count, object)
        array[:] = values
        return array.reshape(shape)
    try:  # protobuf hands its numbers on in one piece; those of 8 and 16 bits come as 32 bits
        wide = np.array(values, {"i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))
        fits = dtype.kind not in "iu" or not count or _fits(wide, np.iinfo(dtype))
    except OverflowError:
        fits = False
    if not fits:
        limits = np.iinfo(dtype)
        raise refused(
            "infer-value-range", name=name, datatype=datatype, min=limits.min, max=limits.max
        )
    return wide.astype(dtype, copy=False).reshape(shape)


def _fits(numbers: Array, limits: "np.iinfo[Any]") -> bool:
    return bool(limits.min <= numbers.min() and numbers.max() <= limits.max)


def to_raw(array: Array) -> bytes | memoryview:
    """Return the raw contents of an array, which may be its own bytes."""
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return b"".join(_with_lengths(strings(array)))


def strings(array: Array) -> list[bytes]:
    """Return the elements of an array of strings in row-major order."""
    items = array.reshape(-1).tolist()
    return [item if isinstance(item, bytes) else str(item).encode() for item in items]


def _with_lengths(items: Iterable[bytes]) -> Iterable[bytes]:
    for item in items:
        yield _LENGTH.pack(len(item))
        yield item


def _strings(name: str, shape: Sequence[int], count: int, content: memoryview) -> Array:
    found: list[bytes] = []
    place, stop = 0, len(content)
    whole = bytes(content)  # pieces of bytes take a quarter of the time of those of a view
    if count * _LENGTH.size <= stop:  # each has a length
        while place + _LENGTH.size <= stop and len(found) < count:
            (length,) = _LENGTH.unpack_from(whole, place)
            place += _LENGTH.size
            if length > stop - place:
                break
            found.append(whole[place : place + length])
            place += length
    if len(found) != count or place != stop:
        raise refused("infer-strings-invalid", name=name, shape=shape, size=stop, count=count)
    array = np.empty(count, object)
    array[:] = found
    return array.reshape(shape)
