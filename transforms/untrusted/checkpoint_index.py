"""The index of a checkpoint, a sorted LevelDB table, read before TensorFlow and within limits."""

import math
import os
import struct
from collections import Counter
from collections.abc import Iterator

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import BundleEntryProto, BundleHeaderProto
from deploykit.transforms.ir.tensors import MAX_RANK, numpy_type, type_name
from deploykit.transforms.ir.tfrecord import masked_crc
from deploykit.transforms.untrusted.files import MAX_TEXT, check_regular, read_bytes

_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_TRAILER = 5  # bytes after a block: its compression type and its checksum
_MAX_KEYS = 256 << 20  # bytes of all keys; a key may share a prefix with the previous one


def read_table(path: str | os.PathLike[str], what: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table in their order, without duplicate keys.

    FileError: the file cannot be read. GraphError: it is not such a table, or damaged.
    """
    content = memoryview(read_bytes(path, MAX_TEXT, what))
    last, keys = None, 0
    try:
        footer = content[-_FOOTER:]
        if len(footer) < _FOOTER or struct.unpack_from("<Q", footer, _FOOTER - 8)[0] != _MAGIC:
            raise ValueError("its last bytes are not those of such a file; it may be truncated")
        _, place = _handle(footer, 0)
        for _, handle in _entries(_block(content, *_handle(footer, place)[0])):
            for key, value in _entries(_block(content, *_handle(memoryview(handle), 0)[0])):
                keys += len(key)
                if last is not None and key <= last:
                    raise ValueError("its entries are not in order")
                if keys > _MAX_KEYS:
                    raise ValueError("its names take more than any names do")
                last = key
                yield key, value
    except (ValueError, IndexError, struct.error) as error:
        reason = str(error) if type(error) is ValueError else "it ends within an entry"
        raise GraphError("not-a", source=path, what=f"a valid {what}", reason=reason) from None


def _block(content: memoryview, offset: int, size: int) -> memoryview:
    """Return a block with a correct checksum."""
    whole = content[offset : offset + size + _TRAILER]
    if len(whole) != size + _TRAILER:
        raise ValueError("a block is beyond the end of the file")
    if struct.unpack_from("<I", whole, size + 1)[0] != masked_crc(bytes(whole[: size + 1])):
        raise ValueError("a checksum is wrong")
    if whole[size]:
        raise ValueError("a block is compressed, which TensorFlow does not do")
    return whole[:size]


def _entries(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a block; its last bytes contain the number of restart points."""
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise ValueError("a block is shorter than it states")
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
    """Return the offset and size of a block, and the position after these numbers."""
    offset, place = _number(content, place)
    size, place = _number(content, place)
    return (offset, size), place


def _number(content: memoryview, place: int) -> tuple[int, int]:
    """Return a varint (7 bits per byte, lowest first), and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
    raise ValueError("a number has more than 10 bytes")


_WHAT = "index of a checkpoint"
_MAX_SHARDS = 99_999  # the names of data files have five digits
_OF_ANY_SIZE = ("string", "variant")


def check_index(prefix: str) -> None:
    """Raise GraphError if the index `prefix.index` does not fit its data files.

    FileError: a file cannot be read.
    """
    path = f"{prefix}.index"
    entries = read_table(path, _WHAT)
    data = _Data(prefix, _header(path, next(entries, (b"\0", b""))))
    whole: list[tuple[str, int]] = []
    for key, value in entries:
        where = f"{path}: the entry '{key.decode(errors='replace'):.200}'"
        try:
            entry = BundleEntryProto.FromString(value)
        except Exception:  # the protobuf backends raise different types
            raise GraphError("damaged-at-entry", what=where) from None
        size = _least_size(where, entry)
        if entry.slices:
            whole.append((where, size))
        else:
            data.take(where, entry, size)
    for where, size in whole:  # the values of its slices are in the data files
        if size > data.used:
            raise GraphError("checkpoint-entry-parts", what=where, size=size)


def _header(path: str, first: tuple[bytes, bytes]) -> int:
    """Return the number of data files."""
    key, value = first
    try:
        if key:
            raise ValueError
        shards = int(BundleHeaderProto.FromString(value).num_shards)
    except Exception:
        raise GraphError(
            "not-a", source=path, what=f"a valid {_WHAT}", reason="no header"
        ) from None
    if not 0 < shards <= _MAX_SHARDS:
        raise GraphError("checkpoint-shards", source=path, count=shards)
    return shards


def _least_size(where: str, entry: BundleEntryProto) -> int:
    """Return the bytes of a tensor in a file; for strings, the minimum."""
    shape = [dim.size for dim in entry.shape.dim]
    try:
        name = type_name(entry.dtype)
        item: int = 1 if name in _OF_ANY_SIZE else numpy_type(name).itemsize
    except (GraphError, KeyError, TypeError):
        raise GraphError("checkpoint-entry-type", what=where, dtype=entry.dtype) from None
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or entry.shape.unknown_rank:
        raise GraphError("checkpoint-entry-shape", what=where, shape=str(shape)[:60])
    for part in entry.slices:
        ends = [(item.start, item.length) for item in part.extent]
        if len(ends) != len(shape) or any(
            start < 0 or length < 0 or start + length > size
            for (start, length), size in zip(ends, shape, strict=True)
        ):
            raise GraphError("checkpoint-entry-part-outside", what=where, shape=shape)
    size: int = math.prod(shape) * item
    return size


class _Data:
    """The data files of a checkpoint, and the bytes of them that the entries use."""

    def __init__(self, prefix: str, shards: int) -> None:
        self._prefix = prefix
        self._shards = shards
        self._sizes: dict[int, int] = {}
        self._used: Counter[int] = Counter()

    @property
    def used(self) -> int:
        """Number of bytes that all entries use."""
        return self._used.total()

    def take(self, where: str, entry: BundleEntryProto, least: int) -> None:
        """Count the bytes of a tensor. GraphError: they are out of range, or used already."""
        shard = entry.shard_id
        file = f"{self._prefix}.data-{shard:05}-of-{self._shards:05}"
        if not 0 <= shard < self._shards:
            raise GraphError("checkpoint-entry-file", what=where, shard=shard, count=self._shards)
        if shard not in self._sizes:
            self._sizes[shard] = check_regular(file).st_size
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > self._sizes[shard]:
            raise GraphError(
                "checkpoint-entry-outside",
                what=where,
                offset=entry.offset,
                size=entry.size,
                file_size=self._sizes[shard],
            )
        is_open = type_name(entry.dtype) in _OF_ANY_SIZE
        if entry.size < least or (entry.size > least and not is_open):
            raise GraphError("checkpoint-entry-size", what=where, size=entry.size, expected=least)
        self._used[shard] += entry.size
        if self._used[shard] > self._sizes[shard]:
            raise GraphError("checkpoint-entry-overlaps", what=where)
