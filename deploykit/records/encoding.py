"""Values -> the bytes of a tf.train.Example, features in the order of their names.

Written by hand: protobuf takes 75 us for a list of 1024 floats and 690 us for an array of them,
an array's own bytes take one. The tests hold it equal to what tf.train.Example serialises.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deploykit.records.features import Feature

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
        return _delimited(_BYTES_LIST, b"".join(_delimited(_FIRST, each) for each in strings))
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
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
