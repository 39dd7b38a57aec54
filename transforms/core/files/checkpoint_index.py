"""The index of a checkpoint, judged before TensorFlow reads it.

TensorFlow ends the process where an index gives a tensor a negative size, and makes room for
whatever size it gives. An honest one gives what lies in the checkpoint's data files.
"""

import math
from collections import Counter

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import check_regular
from deploykit.transforms.core.files.sorted_tables import read_table
from deploykit.transforms.core.protos import BundleEntryProto, BundleHeaderProto
from deploykit.transforms.core.tensors import MAX_RANK, numpy_type, type_name

_WHAT = "index of a checkpoint"
_MOST_SHARDS = 99_999  # the names of data files have five digits
_OF_ANY_SIZE = ("string", "variant")


def check_index(prefix: str) -> None:
    """Raise GraphError for an index `prefix.index` that does not fit the data files beside it.

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
        except Exception:  # protobuf's two engines raise different ones
            raise GraphError("damaged-at-entry", what=where) from None
        size = _least_size(where, entry)
        if entry.slices:
            whole.append((where, size))
        else:
            data.take(where, entry, size)
    for where, size in whole:  # the values of its parts are in the data files
        if size > data.taken:
            raise GraphError("checkpoint-entry-parts", what=where, size=size)


def _header(path: str, first: tuple[bytes, bytes]) -> int:
    """Return how many data files there are."""
    key, value = first
    try:
        if key:
            raise ValueError
        shards = int(BundleHeaderProto.FromString(value).num_shards)
    except Exception:
        raise GraphError(
            "not-a", source=path, what=f"a sound {_WHAT}", reason="no header"
        ) from None
    if not 0 < shards <= _MOST_SHARDS:
        raise GraphError("checkpoint-shards", source=path, count=shards)
    return shards


def _least_size(where: str, entry: BundleEntryProto) -> int:
    """Return the bytes that a tensor takes in a file, of texts the least that it may take."""
    shape = [dim.size for dim in entry.shape.dim]
    try:
        name = type_name(entry.dtype)
        item: int = 1 if name in _OF_ANY_SIZE else numpy_type(name).itemsize
    except (GraphError, KeyError, TypeError):
        raise GraphError("checkpoint-entry-type", what=where, dtype=entry.dtype) from None
    if len(shape) > MAX_RANK or min(shape, default=0) < 0 or entry.shape.unknown_rank:
        raise GraphError("checkpoint-entry-shape", what=where, shape=str(shape)[:60])
    for part in entry.slices:
        ends = [(each.start, each.length) for each in part.extent]
        if len(ends) != len(shape) or any(
            start < 0 or length < 0 or start + length > size
            for (start, length), size in zip(ends, shape, strict=True)
        ):
            raise GraphError("checkpoint-entry-part-outside", what=where, shape=shape)
    size: int = math.prod(shape) * item
    return size


class _Data:
    """The data files of a checkpoint, and how much of them the entries take."""

    def __init__(self, prefix: str, shards: int) -> None:
        self._prefix = prefix
        self._shards = shards
        self._sizes: dict[int, int] = {}
        self._taken: Counter[int] = Counter()

    @property
    def taken(self) -> int:
        """The bytes that all entries take."""
        return self._taken.total()

    def take(self, where: str, entry: BundleEntryProto, least: int) -> None:
        """Count the bytes of a tensor. GraphError: they are not there, or not its own."""
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
        self._taken[shard] += entry.size
        if self._taken[shard] > self._sizes[shard]:
            raise GraphError("checkpoint-entry-overlaps", what=where)
