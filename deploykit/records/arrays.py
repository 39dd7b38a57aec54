"""Sources of records from arrays and IDX files (MNIST), whose first axis is the samples."""

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from deploykit.records.examples import RAW, Feature
from deploykit.records.record_source import Batch, SourcePart, facts_of, numbered, split_items
from deploykit.storage.archives import check_unpacked
from deploykit.storage.arrays import MAX_AXES, load_data
from deploykit.transforms.common.errors import FileError, GraphError, naming, unknown_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import is_gzip
from deploykit.transforms.untrusted.files import opened, read_up_to


class Arrays:
    """Samples in memory, which the worker processes share."""

    def __init__(
        self, arrays: Mapping[str, Array], files: Sequence[Path], classes: Sequence[str] = ()
    ) -> None:
        """Store arrays by feature. GraphError: lengths differ, or a dtype is not supported."""
        where = ", ".join(map(str, files))
        counts = {name: len(item) if item.ndim else None for name, item in arrays.items()}
        if not counts or None in counts.values() or len(set(counts.values())) > 1:
            shown = [f"{name} {list(item.shape)}" for name, item in arrays.items()]
            raise GraphError("arrays-expected", source=where, got=shown)
        self.files = facts_of(map(str, files))
        self.classes = tuple(classes)
        self._arrays = {}
        self.features: dict[str, Feature] = {}
        for name, array in arrays.items():
            try:
                self._arrays[name], self.features[name] = _stored(array)
            except GraphError as error:
                raise error.within(f"{where}: array '{name}'") from None

    def parts(self) -> list[SourcePart]:
        """Return ranges of samples."""
        count = len(next(iter(self._arrays.values())))
        size = sum(array.nbytes // max(count, 1) + 16 for array in self._arrays.values())
        return split_items(size for _ in range(count))

    def read(self, part: SourcePart) -> Batch:
        """Return some samples."""
        return Batch({name: array[part.start : part.stop] for name, array in self._arrays.items()})


def _stored(array: Array) -> tuple[Array, Feature]:
    """Return an array in the dtype of the records, and its feature; no value is rounded."""
    shape = array.shape[1:]
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.kind in "US":
        strings = np.empty(array.size, object)
        strings[:] = [_encoded(item) for item in array.ravel().tolist()]
        width = (int(np.prod(shape)),) if shape else ()
        return strings.reshape(len(array), *width), Feature("string", shape)
    if array.dtype in (np.float32, np.int64):
        return array, Feature(array.dtype.name, shape)
    if array.dtype.kind in "biu" and (not shape or array.dtype.name not in RAW):
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise GraphError("array-not-int64", got=array.max())
        return array, Feature("int64", shape)  # not converted: eight times the memory of bytes
    if array.dtype.name not in RAW:
        raise GraphError("array-type-not-storable", dtype=array.dtype)
    return array, Feature(array.dtype.name, shape, "raw")


def _encoded(value: str | bytes) -> bytes:
    """Return a text as UTF-8. GraphError: it has half a character."""
    try:
        return value if isinstance(value, bytes) else value.encode()
    except UnicodeEncodeError:
        raise GraphError("array-text-surrogate", got=ascii(value)[:80]) from None


def npz(path: Path, label: str | None) -> Arrays:
    """Return the arrays of a `.npz` file; `label` is the name of the label array.

    Default: `label` or `labels`, if it exists. Class names become numbers.
    """
    arrays: dict[str, Array] = load_data(path)
    if label is not None and label not in arrays:
        raise unknown_name("array", label, arrays).within(path)
    chosen = label or next((name for name in ("label", "labels") if name in arrays), None)
    classes: tuple[str, ...] = ()
    if chosen is not None:
        labels = arrays.pop(chosen)
        if labels.dtype.kind in "US" and labels.ndim == 1:
            with naming(path):
                numbers, classes = numbered([_encoded(item).decode() for item in labels.tolist()])
            labels = np.array(numbers, np.int64)
        arrays = {**arrays, "label": labels}
    return Arrays(arrays, [path], classes)


TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def idx(files: Sequence[Path]) -> Arrays:
    """Return samples and labels; the file with one dimension contains the labels.

    Grayscale images get a channel axis. GraphError: there are several files of one kind, or
    only labels.
    """
    arrays: dict[str, Array] = {}
    for path in files:
        array = read_idx(path)
        name = "label" if array.ndim == 1 else "pixels" if array.dtype == np.uint8 else "x"
        if name in arrays:
            raise GraphError("idx-several-files", source=path, name=name)
        arrays[name] = array[..., np.newaxis] if name == "pixels" and array.ndim == 3 else array
    if list(arrays) == ["label"]:
        raise GraphError("idx-labels-alone", source=files[0])
    return Arrays(arrays, files)


def read_idx(path: Path) -> Array:
    """Return the array of an IDX file. FileError: it cannot be read. GraphError: it is damaged."""
    try:
        with opened(path) as raw:
            file = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if is_gzip(path) else raw)
            magic = file.read(4)
            if (
                len(magic) < 4
                or magic[:2] != b"\0\0"
                or magic[2] not in TYPES
                or not 0 < magic[3] <= MAX_AXES
            ):
                raise GraphError(
                    "not-a",
                    source=path,
                    what="an IDX file",
                    reason=f"it begins with {magic.hex(' ')}",
                )
            sizes = file.read(4 * magic[3])
            if len(sizes) < 4 * magic[3]:
                raise GraphError("idx-header-truncated", source=path)
            shape = struct.unpack(f">{magic[3]}I", sizes)
            dtype = np.dtype(TYPES[magic[2]])
            expected = dtype.itemsize
            for size in shape:
                expected *= size
            if file is not raw:
                check_unpacked(expected, path.stat().st_size, str(path))
            content = read_up_to(file, expected + 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise GraphError("not-a", source=path, what="a gzip file", reason=error) from None
    except OSError as error:
        raise FileError("file-error", source=path, reason=error.strerror or error) from None
    if len(content) != expected:
        more = "more" if len(content) > expected else f"{len(content)}"
        raise GraphError("idx-size", source=path, size=more, shape=shape, expected=expected)
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
