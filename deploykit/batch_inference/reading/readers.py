"""Readers of the parts of TFRecord, CSV, image and `.npz` files, by kind of data."""

import contextlib
import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import IO

import numpy as np

from deploykit.batch_inference.reading.data_parts import (
    DataPart,
    RowBatch,
    check_size,
    key_of,
)
from deploykit.batch_inference.tables.table_reader import TableReader
from deploykit.data.data import Data
from deploykit.data.reading import as_objects, row_values
from deploykit.storage import csv_files
from deploykit.storage.archives import DAMAGE, open_archive
from deploykit.storage.arrays import ArrayHeader, read_header, read_values
from deploykit.storage.image_files import read_image
from deploykit.storage.table_formats.table_format import CHANGED
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import DamagedRecord, read_all_records
from deploykit.transforms.untrusted.files import cannot_be_read, opened_text

Reader = Callable[[DataPart, int], Iterator[RowBatch]]
_PIECE = 1 << 22


def line_batches(data: Data, part: DataPart, size: int) -> Iterator[RowBatch]:
    """Yield the numbers of CSV rows in batches of `size`.

    FileError: the file cannot be read, or has changed since it was split.
    """
    records, names = _records(part) if part.rows else [], tuple(data.features)
    key = key_of(data, part.files[0])
    for start in range(0, len(records), size):
        group = records[start : start + size]
        batch = RowBatch([key] * len(group), [record.line for record in group])
        arrays, bad = row_values(data, group, names)
        yield replace(batch.without(bad), arrays=arrays)


def _records(part: DataPart) -> list[csv_files.Record]:
    """Return the rows of a part. FileError: they have changed since the file was split."""
    (file,) = part.files
    check_size(part)
    try:
        with opened_text(file) as stream:
            stream.seek(part.offset)
            text = stream.read(part.bytes)
    except OSError as error:
        raise cannot_be_read(file, error) from None
    records = csv_files.split(text, part.offset, part.start)
    if len(records) != part.rows or len(text) != part.bytes:
        what = "its lines have changed"
        raise FileError("data-changed", source=file, what=what, changed=CHANGED)
    return records


def photo_batches(data: Data, part: DataPart, size: int) -> Iterator[RowBatch]:
    """Yield encoded images in batches of `size`; a missing or empty file is an invalid row."""
    for start in range(0, len(part.files), size):
        files = part.files[start : start + size]
        contents, reasons = zip(*map(read_image, files), strict=True)
        bad = {n: reason for n, reason in enumerate(reasons) if reason}
        keys = [key_of(data, file) for file in files]
        yield RowBatch(keys, [0] * len(files), contents).without(bad)


class RecordReader:
    """Reads serialized Examples; damaged ones are invalid rows. Files stay open between parts."""

    def __init__(self, data: Data) -> None:
        """Store the compression of the files."""
        self._data = data
        self._file, self._next = "", 0
        self._records: Iterator[bytes | DamagedRecord] = iter(())

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the records of a part in batches of `size`.

        FileError: the file cannot be read, or has changed since it was split. VerificationError:
        its records differ from its index.
        """
        (file,) = part.files
        check_size(part)
        if self._file != file or self._next > part.start:
            self._file, self._next = file, 0
            compressed = bool(self._data.compression)
            self._records = read_all_records(file, compressed, part.file_rows)
        for _ in islice(self._records, part.start - self._next):
            pass
        self._next = part.start
        key = key_of(self._data, file)
        while group := list(islice(self._records, min(size, part.stop - self._next))):
            rows = range(self._next, self._next + len(group))
            self._next = rows.stop
            bad = {
                n: item.reason for n, item in enumerate(group) if isinstance(item, DamagedRecord)
            }
            yield RowBatch([key] * len(group), rows, group).without(bad)
        if part.stop == part.file_rows:
            for _ in self._records:  # checks that no record follows
                pass


class _Rows:
    """An array in an archive that is read by rows; it is fast for rows in ascending order.

    A Fortran-ordered array is unpacked once to an unnamed temporary file.
    """

    def __init__(self, file: IO[bytes], header: ArrayHeader, where: str) -> None:
        self._file, self._header, self._where = file, header, where
        self._unpacked: Array | None = None
        if header.by_column and len(header.shape) > 1 and header.size:
            with tempfile.TemporaryFile() as copy:
                file.seek(header.begin)
                shutil.copyfileobj(file, copy, _PIECE)
                if copy.tell() != header.size:
                    raise GraphError("file-truncated", what=where)
                copy.flush()
                self._unpacked = np.memmap(copy, header.dtype, "r", 0, header.shape, "F")

    def read(self, start: int, stop: int) -> Array:
        """Return a range of rows."""
        if self._unpacked is not None:
            return np.array(self._unpacked[start:stop], order="C", subok=False)
        header = self._header
        values = math.prod(header.shape[1:])
        result = np.empty((stop - start) * values, header.dtype)
        self._file.seek(header.begin + start * values * header.dtype.itemsize)
        read_values(self._file, result, self._where)
        return result.reshape(stop - start, *header.shape[1:])


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
            rows = range(start, min(start + size, part.stop))
            with _naming(file):
                arrays = {n: item.read(rows.start, rows.stop) for n, item in self._arrays.items()}
            bad: dict[int, str] = {}
            for name, array in arrays.items():
                reason = f"{name} contains an unpaired surrogate, which is not valid text"
                bad |= dict.fromkeys(_with_surrogates(array), reason)
            batch = RowBatch([key] * len(rows), rows, arrays=arrays).without(bad)
            yield replace(batch, arrays={n: _native(array) for n, array in batch.arrays.items()})

    def _begin(self, file: str, rows: int) -> None:
        """Open the arrays of a file."""
        self._open.close()
        self._file, self._arrays = "", {}
        with contextlib.ExitStack() as stack:
            archive = stack.enter_context(open_archive(file, ".npz file of plain arrays"))
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            for name in self._data.features:
                where = f"{file}: array '{name[:100]}'"
                if name not in entries:
                    raise FileError("data-changed", what=f"{where} is missing", changed=CHANGED)
                stream = stack.enter_context(archive.open(entries[name]))
                header = read_header(stream, entries[name].file_size, where)
                if header.shape[:1] != (rows,):
                    raise FileError("data-changed", what=f"{where} has changed", changed=CHANGED)
                self._arrays[name] = _Rows(stream, header, where)
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


def _with_surrogates(array: Array) -> Iterator[int]:
    """Yield the samples whose texts contain a surrogate, which UTF-8 cannot encode."""
    if array.dtype.kind == "U" and array.nbytes:
        unit = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        codes = array.reshape(len(array), -1).view(unit)
        yield from np.flatnonzero((codes >> 11 == 0xD800 >> 11).any(axis=1)).tolist()


def _native(array: Array) -> Array:
    """Return an array for TensorFlow: texts as bytes, numbers in native byte order."""
    return as_objects(array.astype(array.dtype.newbyteorder("="), copy=False))


_READERS: dict[str, Callable[[Data], Reader]] = {
    "records": lambda data: RecordReader(data).batches,
    "csv": lambda data: functools.partial(line_batches, data),
    "images": lambda data: functools.partial(photo_batches, data),
    "arrays": lambda data: ArrayReader(data).batches,
    "table": lambda data: TableReader(data).batches,
}


def reader_for(data: Data) -> Reader:
    """Return a function that yields the rows of a part in batches, including invalid rows.

    It takes the part and the batch size, only reads feature arrays, and is fast for parts in
    ascending order. The data may lack files, counts and labels, because each part names its file.
    FileError: a file cannot be read at all.
    """
    return _READERS[data.kind](data)
