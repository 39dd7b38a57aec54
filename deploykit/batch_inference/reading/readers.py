"""Readers of TFRecord, CSV and image files, by kind of data."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from deploykit.batch_inference.reading.array_reader import ArrayReader
from deploykit.batch_inference.reading.data_parts import (
    CHANGED,
    BadRow,
    DataPart,
    PartReader,
    RowBatch,
    check_size,
    key_of,
    reason_of,
)
from deploykit.batch_inference.tables.table_reader import TableReader
from deploykit.data.data import Data
from deploykit.data.reading import line_values
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tfrecord import DamagedRecord, read_all_records
from deploykit.transforms.untrusted.files import cannot_be_read, opened, read_bytes


class LineReader:
    """Reads the numbers of CSV lines. Blank lines are invalid rows."""

    def __init__(self, data: Data) -> None:
        """Store which columns are features."""
        self._data = data

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the lines of a part in batches of `size`.

        FileError: the file cannot be read, or has changed since it was split.
        """
        (file,) = part.files
        key, number = key_of(self._data, file), part.start
        lines = iter(_lines(part, file))
        while group := [line.rstrip(b"\r\n") for line in islice(lines, size)]:
            yield self._batch(key, number, group)
            number += len(group)

    def _batch(self, key: str, number: int, lines: Sequence[bytes]) -> RowBatch:
        rows = list(range(number, number + len(lines)))
        names, columns = tuple(self._data.features), self._data.columns
        with contextlib.suppress(ValueError):  # UnicodeDecodeError is one
            texts = [line.decode() for line in lines]
            numbers = np.loadtxt(texts, delimiter=",", comments=None, ndmin=2)
            if numbers.shape == (len(lines), self._data.width):
                arrays = {
                    name: numbers[:, at if isinstance(at := columns[name], int) else slice(*at)]
                    for name in names
                }
                arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
                return RowBatch([key] * len(rows), rows, arrays=arrays)
        values, bad = {}, []
        for row, line in zip(rows, lines, strict=True):
            try:
                values[row] = line_values(self._data, "", line, names)
            except GraphError as error:
                bad.append(BadRow(key, row, str(error).lstrip(": ")))
        arrays = {
            name: np.array([value[name] for value in values.values()], np.float32) for name in names
        }
        return RowBatch([key] * len(values), list(values), arrays=arrays, bad=tuple(bad))


def _lines(part: DataPart, file: str) -> list[bytes]:
    """Return the lines of a part. FileError: they have changed since the file was split."""
    check_size(part)
    try:
        with opened(file) as stream:
            stream.seek(part.offset)
            text = stream.read(part.bytes)
    except OSError as error:
        raise cannot_be_read(file, error) from None
    lines = text.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    if len(lines) != part.rows or len(text) != part.bytes:
        what = "its lines have changed"
        raise FileError("data-changed", source=file, what=what, changed=CHANGED)
    return lines


class PhotoReader:
    """Reads encoded image files; a missing or empty file is an invalid row."""

    def __init__(self, data: Data) -> None:
        """Store the data of the images."""
        self._data = data

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the images of a part in batches of `size`."""
        for start in range(0, len(part.files), size):
            files, contents, bad = [], [], []
            for file in part.files[start : start + size]:
                key = key_of(self._data, file)
                try:
                    content = read_bytes(file)
                except FileError as error:
                    bad.append(BadRow(key, 0, reason_of(error, file)))
                    continue
                if content:
                    files.append(key)
                    contents.append(content)
                else:
                    bad.append(BadRow(key, 0, "the file is empty"))
            yield RowBatch(files, [0] * len(files), contents, bad=tuple(bad))


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
            yield _batch(key, rows, group)
        if part.stop == part.file_rows:
            for _ in self._records:  # checks that no record follows
                pass


def _batch(key: str, rows: range, group: Sequence[bytes | DamagedRecord]) -> RowBatch:
    sound = {row: item for row, item in zip(rows, group, strict=True) if isinstance(item, bytes)}
    bad = tuple(
        BadRow(key, row, item.reason)
        for row, item in zip(rows, group, strict=True)
        if isinstance(item, DamagedRecord)
    )
    return RowBatch([key] * len(sound), list(sound), list(sound.values()), bad=bad)


_READERS: dict[str, Callable[[Data], PartReader]] = {
    "records": RecordReader,
    "csv": LineReader,
    "images": PhotoReader,
    "arrays": ArrayReader,
    "table": TableReader,
}


def reader_for(data: Data) -> PartReader:
    """Return a reader for parts of data; only feature arrays are read.

    The data may lack files, counts and labels, because each part names its file.
    """
    return _READERS[data.kind](data)
