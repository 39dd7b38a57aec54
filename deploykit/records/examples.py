"""Records as bytes of tf.train.Example, and their features: dtype, shape and meaning."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.transforms.common.documents import IfSet
from deploykit.transforms.common.errors import GraphError

LISTS = ("float32", "int64", "string")  # what an Example holds as it is
RAW = ("uint8", "int8", "uint16", "int16", "int32", "float16", "float64", "bool",
       "int64", "float32")  # what decode_raw makes of bytes  # fmt: skip


@dataclass(frozen=True)
class Feature:
    """One value of every record; a size that differs from record to record is None.

    `content` says what a string holds: "image", an encoded file; "raw", the little-endian bytes of
    an array of this dtype and shape; "", the value itself.
    """

    dtype: str
    shape: tuple[Annotated[int, Meta(ge=0)] | None, ...] = ()
    content: IfSet[Annotated[str, Meta(pattern=r"\A(image|raw)?\Z")]] = ""

    def check(self, name: str) -> None:
        """Raise GraphError for a type that records of this content cannot hold."""
        image = ("string",) if self.content == "image" else LISTS
        known = RAW if self.content == "raw" else image
        if self.dtype not in known:
            raise GraphError(
                "not-one-of", what=f"the type of feature '{name}'", known=known, got=self.dtype
            )

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]{f', {self.content}' if self.content else ''}"


_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = b"\x0a", b"\x12", b"\x1a"  # fields 1 to 3 of Feature
_FIRST, _SECOND = b"\x0a", b"\x12"  # fields that have a length


def example(features: Mapping[str, Feature], values: Mapping[str, Any]) -> bytes:
    """Return an Example.

    Args:
        features: what the record holds.
        values: an array or a number for numbers and `raw`, bytes or a list of them for strings.
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
    packed = _varints(np.asarray(value, np.int64).ravel().tolist())
    return _delimited(_INT64_LIST, _delimited(_FIRST, packed) if packed else b"")


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    return _delimited(_FIRST, name.encode())


def _delimited(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varints(numbers: Iterable[int]) -> bytes:
    return b"".join(map(_varint, numbers))


@lru_cache(maxsize=65536)
def _varint(number: int) -> bytes:
    """Return seven bits a byte, the lowest first; a negative number as 64 bits."""
    number &= 0xFFFFFFFFFFFFFFFF
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)
