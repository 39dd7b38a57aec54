"""Readers of TFRecord, CSV and image files, by kind of data."""

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
from deploykit.data.data import Data
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import DamagedRecord, read_all_records
from deploykit.transforms.untrusted.files import (
    BOM,
    LONGEST_LINE,
    cannot_be_read,
    opened,
    read_bytes,
    readable_size,
)

_BLOCK = 4 << 20
_FEED = 10


def line_offsets(path: str) -> Iterator[Array]:
    """Yield arrays with the start offsets of lines; the last offset is the end of the last line.

    Only a line feed ends a line. A byte-order mark is not part of the first line.
    FileError: the file cannot be read. GraphError: it is not text.
    """
    with opened(path) as file:
        try:
            begin = place = len(BOM) if file.read(len(BOM)) == BOM else 0
            file.seek(begin)
            yield np.array([begin])
            number = 1
            while block := file.read(_BLOCK):
                result = np.flatnonzero(np.frombuffer(block, np.uint8) == _FEED) + (place + 1)
                place += len(block)
                ends = np.append(result, place)
                if (lengths := np.diff(ends, prepend=begin)).max() > LONGEST_LINE:
                    number += int(np.argmax(lengths > LONGEST_LINE))
                    raise GraphError(
                        "line-too-long",
                        source=path,
                        number=number,
                        longest=readable_size(LONGEST_LINE),
                        what="CSV file",
                    )
                if len(result):
                    begin = int(result[-1])
                    number += len(result)
                    yield result
            if place > begin:
                yield np.array([place])
        except OSError as error:
            raise cannot_be_read(path, error) from None


class LineReader:
    """Reads lines without line ends. Blank lines are included, as invalid rows."""

    def __init__(self, data: Data) -> None:
        """Store the data of the lines."""
        self._data = data

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the lines of a part in batches of `size`.

        FileError: the file cannot be read, or has changed since it was split.
        """
        (file,) = part.files
        key, number = key_of(self._data, file), part.start
        lines = iter(_lines(part, file))
        while group := [line.rstrip(b"\r\n") for line in islice(lines, size)]:
            rows = range(number, number + len(group))
            number += len(group)
            yield RowBatch([key] * len(group), rows, group)


def _lines(part: DataPart, file: str) -> list[bytes]:
    """Return the lines of a part."""
    try:
        with opened(file) as stream:
            check_size(part)
            stream.seek(max(0, part.offset - 1))
            before = stream.read(1) if part.offset else b"\n"
            text = stream.read(part.bytes)
            behind = stream.read(1)
    except OSError as error:
        raise cannot_be_read(file, error) from None
    lines = text.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    begins = before == b"\n" or part.offset == 3  # 3: after a byte-order mark
    ends = text.endswith(b"\n") or not behind
    if len(lines) != part.rows or len(text) != part.bytes or not (begins and ends):
        raise FileError(
            "data-changed",
            source=file,
            what="its lines have changed",
            changed=CHANGED,
        )
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
}


def reader_for(data: Data) -> PartReader:
    """Return a reader for parts of data; only feature arrays are read.

    The data may lack files, counts and labels, because each part names its file.
    """
    return _READERS[data.kind](data)
