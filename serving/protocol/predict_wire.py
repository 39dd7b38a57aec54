"""Parses PredictRequest and writes PredictResponse without copies of large tensors.

protobuf copies a tensor twice on parsing. This module parses the encoding that clients commonly
write, and leaves all else to protobuf, so that protobuf's rules are not implemented twice.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from deploykit.serving.protocol.codec import Sent, encoded, sent, varint
from deploykit.serving.protocol.errors import refused
from deploykit.serving.protocol.protos import ModelSpec, PredictRequest, TensorProto
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array, value_field

_MAX_FIELDS = 64  # per message; protobuf is faster for many small ones
_MAX_INPUTS = 4096  # Python's objects of an empty one take over a kilobyte
_MAX_KEPT = 512  # bytes of a part that is cached

_SPEC, _INPUT, _FILTER = 0x0A, 0x12, 0x1A  # number << 3 | 2: length-delimited
_KEY, _VALUE = 0x0A, 0x12
_DTYPE, _SHAPE, _VERSION, _CONTENT = 0x08, 0x12, 0x18, 0x22
_STRINGS = 0x42
_WIDTHS = {0x2A: 4, 0x32: 8, 0x4A: 4, 0x62: 8, 0x92: 1}  # float, double, complex, float8
_VARINTS = (0x3A, 0x52, 0x5A, 0x82, 0x8A)  # int, int64, bool, uint32, uint64


class ParsedRequest(NamedTuple):
    """The contents of a PredictRequest."""

    spec: ModelSpec | None
    tensors: Mapping[str, Sent]
    outputs: Sequence[str]


class _UncommonError(Exception):
    """The encoding is uncommon: protobuf must parse it."""


def parse_request(request: PredictRequest) -> ParsedRequest:
    """Return the contents of a request that protobuf has parsed. ServingError: too many inputs."""
    if len(request.inputs) > _MAX_INPUTS:
        count = len(request.inputs)
        raise refused("too-many", what="the request", count=count, unit="inputs", most=_MAX_INPUTS)
    spec = request.model_spec if request.HasField("model_spec") else None
    tensors = {alias: sent(proto) for alias, proto in request.inputs.items()}
    return ParsedRequest(spec, tensors, request.output_filter)


def walked(request: bytes) -> ParsedRequest | None:
    """Return the contents of a serialized request, or None if its encoding is uncommon.

    The tensors' values are views of these bytes.
    """
    try:
        return _walked(request)
    except (_UncommonError, IndexError, UnicodeDecodeError):
        return None


def written(spec: bytes, outputs: Mapping[str, Array], as_content: bool) -> bytes:
    """Return the bytes of a PredictResponse, with each array in the format of `encode`."""
    parts: list[bytes | memoryview] = []
    for alias, array in outputs.items():
        head, values = encoded(array, as_content=as_content)
        parts += (_entry(alias, head, len(values)), values)
    return b"".join([*parts, spec])


@functools.lru_cache
def answered_by(name: str, version: int, signature: str) -> bytes:
    """Return the serialized ModelSpec field of a response."""
    spec = ModelSpec(name=name, signature_name=signature)
    spec.version.value = version
    content = spec.SerializeToString()
    return b"\x12" + varint(len(content)) + bytes(content)


@functools.lru_cache
def _entry(alias: str, head: bytes, length: int) -> bytes:
    """Return an entry of the outputs up to its `length` bytes of values, which follow."""
    key = alias.encode()
    inner = b"\x0a" + varint(len(key)) + key + b"\x12" + varint(len(head) + length) + head
    return b"\x0a" + varint(len(inner) + length) + inner


def _walked(request: bytes) -> ParsedRequest:
    spec: ModelSpec | None = None
    tensors: dict[str, Sent] = {}
    outputs: list[str] = []
    view = memoryview(request)
    for tag, start, end in _fields(request, 0, len(request)):
        if tag == _INPUT:
            alias, first, last = _pair(request, start, end)
            if alias in tensors:
                raise _UncommonError
            tensors[alias] = _tensor(request, view, first, last)
        elif tag == _SPEC and spec is None and end - start <= _MAX_KEPT:
            spec = _spec(request[start:end])
        elif tag == _FILTER:
            outputs.append(request[start:end].decode())
        else:
            raise _UncommonError
    return ParsedRequest(spec, tensors, outputs)


def _pair(request: bytes, start: int, end: int) -> tuple[str, int, int]:
    """Return an alias, and start and end of its tensor."""
    fields = list(_fields(request, start, end))
    if [tag for tag, _, _ in fields] != [_KEY, _VALUE]:
        raise _UncommonError
    (_, first, last), (_, begin, stop) = fields
    return request[first:last].decode(), begin, stop


def _tensor(request: bytes, view: memoryview, start: int, end: int) -> Sent:
    spans: dict[int, tuple[int, int]] = {}
    strings: list[tuple[int, int]] = []
    for tag, first, last in _fields(request, start, end):
        if tag == _STRINGS:
            strings.append((first, last))
        elif tag in spans:
            raise _UncommonError
        spans[tag] = first, last
    dtype, _ = spans.pop(_DTYPE, (0, 0))
    spans.pop(_VERSION, None)
    first, last = spans.pop(_SHAPE, (0, 0))
    if last - first > _MAX_KEPT or len(spans) > 1:
        raise _UncommonError
    shape = _sizes(request[first:last])
    for tag, (first, last) in spans.items():
        if tag == _CONTENT:
            return Sent(dtype, shape, view[first:last], _no_values)
        if tag != _tag_of(dtype):
            raise _UncommonError
        if tag == _STRINGS:
            return Sent(dtype, shape, b"", functools.partial(_strings, request, strings))
        return Sent(
            dtype, shape, b"", functools.partial(_numbers, tag, _checked(tag, view[first:last]))
        )
    return Sent(dtype, shape, b"", _no_values)


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield tag, start and end of each field; for a number, the tag, the number and 0."""
    left = _MAX_FIELDS
    while position < end:
        tag, position = _number(data, position)
        first, position = _number(data, position)
        left -= 1
        if tag & 7 == 2:
            first, position = position, position + first
        elif tag & 7:
            raise _UncommonError
        if position > end or left < 0:
            raise _UncommonError
        yield (tag, first, position) if tag & 7 else (tag, first, 0)


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint below 2**28, and the position after it."""
    result = data[position]
    if result < 0x80:
        return result, position + 1
    result &= 0x7F
    for shift in (7, 14, 21):
        position += 1
        byte = data[position]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position + 1
    raise _UncommonError


@functools.lru_cache
def _spec(content: bytes) -> ModelSpec:
    """Return a ModelSpec that many requests share."""
    try:
        return ModelSpec.FromString(content)
    except DecodeError:
        raise _UncommonError from None


@functools.lru_cache
def _sizes(content: bytes) -> tuple[int, ...]:
    """Return the sizes of a shape."""
    try:
        proto = TensorProto.FromString(b"\x12" + varint(len(content)) + content)
    except DecodeError:
        raise _UncommonError from None
    return sent(proto).shape


@functools.lru_cache
def _tag_of(dtype: int) -> int:
    """Return the tag of the typed field for a dtype."""
    try:
        return int(TensorProto.DESCRIPTOR.fields_by_name[value_field(dtype)].number) << 3 | 2
    except GraphError:
        raise _UncommonError from None


def _checked(tag: int, values: memoryview) -> memoryview:
    """Return the packed numbers of a field. _UncommonError: they are incomplete or above 127."""
    if tag in _VARINTS:
        if len(values) and np.frombuffer(values, np.uint8).max() > 0x7F:
            raise _UncommonError
    elif tag not in _WIDTHS or len(values) % _WIDTHS[tag]:
        raise _UncommonError
    return values


def _numbers(tag: int, values: memoryview, dtype: np.dtype[Any], most: int) -> Array:
    if tag in _VARINTS:
        return np.frombuffer(values, np.uint8)[:most].astype(dtype)
    return np.frombuffer(values[: len(values) // dtype.itemsize * dtype.itemsize], dtype)[:most]


def _strings(
    request: bytes, places: Sequence[tuple[int, int]], _: np.dtype[Any], most: int
) -> Array:
    result = np.empty(min(len(places), most), object)
    result[:] = [request[first:last] for first, last in places[:most]]
    return result


def _no_values(dtype: np.dtype[Any], _: int) -> Array:
    return np.empty(0, dtype)
