"""Tables of keys and values in order, as LevelDB and TensorFlow write them, read within bounds.

Format: tensorflow/core/lib/io/table_builder.cc. A block of entries has a checksum; a block that
lists those blocks stands behind them, and where that one lies is said in the last 48 bytes.
"""

import os
import struct
from collections.abc import Iterator

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import MOST_TEXT, read_bytes
from deploykit.transforms.core.tfrecord import masked_crc

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_TRAILER = 5  # bytes behind a block: how it is packed, and its checksum
_MOST_KEYS = 256 << 20  # bytes of all keys; one may stand for itself and the one before it


def read_table(path: str | os.PathLike[str], what: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in their order, no key twice.

    FileError: the file cannot be read. GraphError: it is no such table, or damaged.
    """
    content = memoryview(read_bytes(path, MOST_TEXT, what))
    last, keys = None, 0
    try:
        footer = content[-_FOOTER:]
        if len(footer) < _FOOTER or struct.unpack_from("<Q", footer, _FOOTER - 8)[0] != _MAGIC:
            raise ValueError("its last bytes are not those of such a file; it may be cut short")
        _, place = _handle(footer, 0)
        for _, handle in _entries(_block(content, *_handle(footer, place)[0])):
            for key, value in _entries(_block(content, *_handle(memoryview(handle), 0)[0])):
                keys += len(key)
                if last is not None and key <= last:
                    raise ValueError("its entries are not in order")
                if keys > _MOST_KEYS:
                    raise ValueError("its names take more than any names do")
                last = key
                yield key, value
    except (ValueError, IndexError, struct.error) as error:
        reason = str(error) if type(error) is ValueError else "it ends within an entry"
        raise GraphError("not-a", source=path, what=f"a sound {what}", reason=reason) from None


def _block(content: memoryview, offset: int, size: int) -> memoryview:
    """Return a block whose checksum is right."""
    whole = content[offset : offset + size + _TRAILER]
    if len(whole) != size + _TRAILER:
        raise ValueError("it says that a block lies where the file has ended")
    if struct.unpack_from("<I", whole, size + 1)[0] != masked_crc(bytes(whole[: size + 1])):
        raise ValueError("a checksum is wrong")
    if whole[size]:
        raise ValueError("a block is compressed, which TensorFlow does not do")
    return whole[:size]


def _entries(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block; its last bytes count the places to begin a search at."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise ValueError("a block is shorter than it says")
    place, key = 0, b""
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        length, place = _number(block, place)
        value = place + own
        if shared > len(key) or value + length > end:
            raise ValueError("an entry reaches beyond its block")
        key = key[:shared] + bytes(block[place:value])
        place = value + length
        yield key, bytes(block[value:place])


def _handle(content: memoryview, place: int) -> tuple[tuple[int, int], int]:
    """Return where a block lies and its size, and what is behind these numbers."""
    offset, place = _number(content, place)
    size, place = _number(content, place)
    return (offset, size), place


def _number(content: memoryview, place: int) -> tuple[int, int]:
    """Return a number, 7 bits a byte, lowest first, and what is behind it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a number has more than 10 bytes")
