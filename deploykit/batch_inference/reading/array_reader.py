"""Reads samples of the arrays in a `.npz` file, loading only the requested rows."""

import contextlib
import math
import tempfile
from collections.abc import Iterator
from typing import IO, Protocol

import numpy as np

from deploykit.batch_inference.reading.data_parts import (
    CHANGED,
    BadRow,
    DataPart,
    RowBatch,
    check_size,
    key_of,
)
from deploykit.data.data import Data
from deploykit.data.reading import as_objects
from deploykit.storage.archives import DAMAGE, open_archive
from deploykit.storage.arrays import ArrayHeader, read_header, read_values
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import cannot_be_read

_PIECE = 1 << 22


class _Rows(Protocol):
    """An array in a file that can be read by rows."""

    def read(self, start: int, stop: int) -> Array:
        """Return a range of rows."""
        ...


class _InOrder:
    """Rows that are contiguous in the file; skipping forward reads the bytes in between."""

    def __init__(self, file: IO[bytes], header: ArrayHeader, where: str) -> None:
        self._file, self._header, self._where = file, header, where

    def read(self, start: int, stop: int) -> Array:
        header = self._header
        values = math.prod(header.shape[1:])
        result = np.empty((stop - start) * values, header.dtype)
        self._file.seek(header.begin + start * values * header.dtype.itemsize)
        read_values(self._file, result, self._where)
        return result.reshape(stop - start, *header.shape[1:])


class _ByColumn:
    """Rows of a Fortran-ordered array, which is unpacked once to an unnamed temporary file."""

    def __init__(self, file: IO[bytes], header: ArrayHeader, where: str) -> None:
        self._array: Array = np.empty(header.shape, header.dtype)
        if header.size:
            with tempfile.TemporaryFile() as copy:
                file.seek(header.begin)
                while piece := file.read(_PIECE):
                    copy.write(piece)
                copy.flush()
                if copy.tell() != header.size:
                    raise GraphError("file-truncated", what=where)
                self._array = np.memmap(copy, header.dtype, "r", 0, header.shape, "F")

    def read(self, start: int, stop: int) -> Array:
        return np.array(self._array[start:stop], order="C", subok=False)


class ArrayReader:
    """Reads samples of the feature arrays; it is fast for parts in ascending order."""

    def __init__(self, data: Data) -> None:
        """Store which arrays are features."""
        self._data = data
        self._open = contextlib.ExitStack()
        self._file = ""
        self._arrays: dict[str, _Rows] = {}

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the samples of a part in batches of `size`; texts are bytes.

        FileError: the file cannot be read, or has changed since it was split. GraphError: it is
        damaged.
        """
        (file,) = part.files
        check_size(part)
        if self._file != file:
            self._begin(file, part.file_rows)
        key = key_of(self._data, file)
        for start in range(part.start, part.stop, size):
            stop = min(start + size, part.stop)
            with _naming(file):
                results = {name: item.read(start, stop) for name, item in self._arrays.items()}
            yield _batch(key, start, results)

    def _begin(self, file: str, rows: int) -> None:
        """Open the arrays of a file."""
        self._open.close()
        self._file, self._arrays = "", {}
        with _naming(file), contextlib.ExitStack() as stack:
            archive = stack.enter_context(open_archive(file, ".npz file of plain arrays"))
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            for name in self._data.features:
                where = f"{file}: array '{name[:100]}'"
                if name not in entries:
                    raise FileError("data-changed", what=f"{where} is missing", changed=CHANGED)
                stream = stack.enter_context(archive.open(entries[name]))
                header = read_header(stream, entries[name].file_size, where)
                if header.shape[:1] != (rows,):
                    raise FileError(
                        "data-changed",
                        what=f"{where} has changed",
                        changed=CHANGED,
                    )
                by_column = header.by_column and len(header.shape) > 1
                self._arrays[name] = (_ByColumn if by_column else _InOrder)(stream, header, where)
            self._open = stack.pop_all()
        self._file = file


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    """Convert exceptions of a damaged archive into errors that name the file."""
    try:
        yield
    except OSError as error:
        raise cannot_be_read(file, error) from None
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise GraphError("damaged", source=file, what="the file", reason=reason) from None


def _batch(key: str, start: int, result: dict[str, Array]) -> RowBatch:
    """Return some samples; a row is bad if its text cannot be encoded as UTF-8."""
    count = len(next(iter(result.values())))
    bad: dict[int, str] = {}
    for name, array in result.items():
        reason = f"{name} contains an unpaired surrogate, which is not valid text"
        bad |= dict.fromkeys(_halves(array), reason)
    retained = [n for n in range(count) if n not in bad]
    return RowBatch(
        [key] * len(retained),
        [start + n for n in retained],
        arrays={name: _native(array[retained] if bad else array) for name, array in result.items()},
        bad=tuple(BadRow(key, start + n, bad[n]) for n in sorted(bad)),
    )


def _halves(array: Array) -> Iterator[int]:
    """Yield the samples whose texts contain a surrogate, which UTF-8 cannot encode."""
    if array.dtype.kind == "U" and array.nbytes:
        unit = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        codes = array.reshape(len(array), -1).view(unit)
        yield from np.flatnonzero((codes >> 11 == 0xD800 >> 11).any(axis=1)).tolist()


def _native(array: Array) -> Array:
    """Return an array for TensorFlow: texts as bytes, numbers in native byte order."""
    return as_objects(array.astype(array.dtype.newbyteorder("="), copy=False))
