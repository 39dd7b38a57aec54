"""Checkpoints written as plainly as possible: a table of one block, and the file of values."""

import struct
from collections.abc import Mapping

from deploykit.transforms.ir.tfrecord import masked_crc
from tests.hostile.wire import block, number, varint

_MAGIC = 0xDB4775248B80FB57


def entry(
    dtype: int, sizes: tuple[int, ...], offset: int, size: int, content: bytes | None = None
) -> bytes:
    """Return what the index says of a variable; without its content, no checksum."""
    shape = b"".join(block(2, number(1, each & (1 << 64) - 1)) for each in sizes)
    made = number(1, dtype) + block(2, shape) + number(4, offset) + number(5, size)
    if content is None:
        return made
    return made + varint(6 << 3 | 5) + struct.pack("<I", masked_crc(content))


def index(entries: Mapping[str, bytes], shards: int = 1) -> bytes:
    """Return the bytes of a `.index` file."""
    header = number(1, shards) + block(3, number(1, 1))
    pairs = [(b"", header), *sorted((k.encode(), v) for k, v in entries.items())]
    data = _block(pairs)
    meta = _block([])
    at = [(0, len(data) - 5), (len(data), len(meta) - 5)]
    top = _block([(b"\x7f", varint(at[0][0]) + varint(at[0][1]))])
    handles = b"".join(
        varint(place) + varint(size)
        for place, size in (at[1], (len(data) + len(meta), len(top) - 5))
    )
    return data + meta + top + handles.ljust(40, b"\0") + struct.pack("<Q", _MAGIC)


def _block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(
        varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in pairs
    )
    body += struct.pack("<II", 0, 1)
    return body + b"\0" + struct.pack("<I", masked_crc(body + b"\0"))
