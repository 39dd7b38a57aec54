"""Encodes records as tf.train.Example, and describes their features: dtype, shape, content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.transforms.common.documents import IfSet
from deploykit.transforms.common.errors import GraphError

LISTS = ("float32", "int64", "string")  # native types of an Example
RAW = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float64", "bool",
       "int64", "float32")  # result types of decode_raw  # fmt: skip


@dataclass(frozen=True)
class Feature:
    """The type of a value in every record; a size that differs between records is None.

    `content` describes a string: "image" is an encoded file, "raw" the little-endian bytes of an
    array of this dtype and shape, and "" the value itself.
    """

    dtype: str
    shape: tuple[Annotated[int, Meta(ge=0)] | None, ...] = ()
    content: IfSet[Annotated[str, Meta(pattern=r"\A(image|raw)?\Z")]] = ""

    def check(self, name: str) -> None:
        """Raise GraphError for a dtype that is not allowed with this content."""
        image = ("string",) if self.content == "image" else LISTS
        known = RAW if self.content == "raw" else image
        if self.dtype not in known:
            raise GraphError(
                "not-one-of", what=f"the type of feature '{name}'", known=known, got=self.dtype
            )

    def sized(self, shape: tuple[int, ...] | None) -> "Feature":
        """Return the feature with the sizes of an input where its own are open.

        The `shape` has the batch axis in front; a negative size is open. None: it is unknown.
        """
        if shape is None or len(shape) - 1 != len(self.shape):
            return self
        pairs = zip(self.shape, shape[1:], strict=True)
        return replace(
            self, shape=tuple(size if own is None and size >= 0 else own for own, size in pairs)
        )

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]{f', {self.content}' if self.content else ''}"


_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"  # fields 1 to 3 of Feature
_FIRST, _SECOND = b"\x0a", b"\x12"  # tags of length-delimited fields


def example(features: Mapping[str, Feature], values: Mapping[str, Any]) -> bytes:
    """Return a serialized Example.

    Args:
        features: the features of the record.
        values: an array or a number for numbers and `raw`, bytes or a list of bytes for strings.
    """
    entries = []
    for name in sorted(features):
        feature = _feature(features[name], values[name])
        entries.append(_delimited(_FIRST, _key(name) + _delimited(_SECOND, feature)))
    return _delimited(_FIRST, b"".join(entries))


def _feature(feature: Feature, value: Any) -> bytes:
    if feature.content == "raw":
        array = np.asarray(value, np.dtype(feature.dtype).newbyteorder("<"))
        return _delimited(_BYTES_LIST, _delimited(_FIRST, array.tobytes()))
    if feature.dtype == "string":
        strings: Sequence[bytes] = [value] if isinstance(value, bytes) else value
        return _delimited(_BYTES_LIST, b"".join(_delimited(_FIRST, string) for string in strings))
    if feature.dtype == "float32":
        packed = np.asarray(value, "<f4").tobytes()
        return _delimited(_FLOAT_LIST, _delimited(_FIRST, packed) if packed else b"")
    numbers = [value] if type(value) is int else np.asarray(value, np.int64).ravel().tolist()
    packed = b"".join(map(_varint, numbers))
    return _delimited(_INT64_LIST, _delimited(_FIRST, packed) if packed else b"")


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    return _delimited(_FIRST, name.encode())


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


@lru_cache(maxsize=65536)
def _varint(number: int) -> bytes:
    """Return the varint encoding of a number: 7 bits per byte, lowest first."""
    number &= 0xFFFFFFFFFFFFFFFF
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)
