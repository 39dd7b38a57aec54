"""Parts of a dataset, the rows read from them, their locations, and invalid rows."""

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import numpy as np

from deploykit.data.data import Data
from deploykit.records.index import index_path
from deploykit.records.record_source import facts_of
from deploykit.storage.data_files import is_packed
from deploykit.storage.table_formats.table_files import is_remote, size_of, without_options
from deploykit.storage.table_formats.table_format import CHANGED, RowRange
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import FileError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import read_bytes


@dataclass(frozen=True)
class DataPart:
    """Rows whose results are written to one file. Any process can read a part independently.

    A part consists of image files, or of the rows `start` to `stop` of one file (records, samples
    of arrays, or lines). Parts only depend on the data and the model.
    """

    number: int
    files: tuple[str, ...]
    """The paths of the files."""
    start: int = 0
    """The number of the first row in its file, from 0 (lines: from 1; images: among all images)."""
    stop: int = 0
    """The number after the last row."""
    offset: int = 0
    """For lines: the byte offset of the first line in the file."""
    bytes: int = 0
    """The approximate size of the rows in the file; exact for lines, 0 for images."""
    file_rows: int = 0
    """The number of rows in the whole file; 0 if not needed."""
    file_bytes: int = 0
    """The size of the file when it was split; 0 for images."""

    other_lines: int = 0
    """For lines: how many between `start` and `stop` begin no row, as they are empty, or quoted."""

    @property
    def rows(self) -> int:
        """The number of rows, including damaged ones."""
        return self.stop - self.start - self.other_lines

    @property
    def range(self) -> RowRange:
        """The rows for a reader of tables."""
        return RowRange(
            self.start, self.stop, self.rows, self.offset, bytes=self.bytes,
            file_rows=self.file_rows, file_bytes=self.file_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class BadRow:
    """An invalid row: its file, its number in that file, and the reason."""

    file: str
    """The path relative to the data's folder, as `key_of` returns it."""
    row: int
    """The number in the file, as in `DataPart.start`; 0 for an image."""
    reason: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a part, in order: valid rows and invalid ones."""

    files: Sequence[str]
    """The file of each valid row, as in `BadRow.file`."""
    rows: Sequence[int]
    """The number of each valid row in its file."""
    contents: Sequence[Any] = ()
    """The content of each valid row: a serialized Example or an image file, as bytes."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """For arrays instead: the values of the valid rows by feature; the first axis is the rows."""
    bad: tuple[BadRow, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)
    """The columns to copy to the results, as Arrow arrays of the valid rows."""

    def without(self, bad: Mapping[int, str]) -> "RowBatch":
        """Return the batch with some valid rows, by their indices, as invalid ones for a reason."""
        if not bad:
            return self
        good = [n for n in range(len(self.rows)) if n not in bad]
        return RowBatch(
            [self.files[n] for n in good],
            [self.rows[n] for n in good],
            [self.contents[n] for n in good] if self.contents else (),
            {name: array[good] for name, array in self.arrays.items()},
            (*self.bad, *(BadRow(self.files[n], self.rows[n], bad[n]) for n in sorted(bad))),
            {name: column.take(np.array(good, np.int64)) for name, column in self.kept.items()},
        )


_ROWS = {"records": "record", "csv": "line", "arrays": "sample", "table": "row"}
_LONGEST = 120  # maximum bytes of a name, to which file names add numbers and an extension
_OTHER = re.compile(r"[^\w.-]+")


def key_of(data: Data, file: str) -> str:
    r"""Return the path of a file relative to the data's folder, or the file name of a single file.

    Bytes that are not UTF-8 are written as `\xff`, so that every format supports the name.
    """
    folder = str(PurePath(data.path))
    if is_remote(data.path):
        file, folder = (unquote(without_options(uri)) for uri in (file, data.path))
        folder = folder.rstrip("/")
    if file in (data.path, folder):
        name = os.path.basename(file)
    else:
        name = file.removeprefix(folder if folder.endswith(os.sep) else folder + os.sep)
    try:
        name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name


def place_of(kind: str, key: str, row: int) -> str:
    """Return the location of a row as text: `train-00000-of-00003.tfrecord: record 7`."""
    word = _ROWS.get(kind)
    return key if word is None else f"{key}: {word} {row}"


def source_name(data: Data) -> str:
    """Return the default name of the results: that of the records, the folder or the file.

    It consists of letters, digits, `.`, `_` and `-`, and starts with a letter or a digit.
    """
    place = PurePath(os.path.abspath(data.path))
    if is_remote(data.path):
        place = PurePath(without_options(data.path))
    is_file = data.kind == "arrays" or [*data.files] == [data.path]
    stem = PurePath(place.stem).stem if is_packed(place) else place.stem
    whole = data.name or (stem if is_file else place.name)
    name = _OTHER.sub("_", whole).lstrip("._-")
    while len(name.encode()) > _LONGEST:
        name = name[:-1]
    return name or "data"


def fingerprint(data: Data) -> str:
    """Return a digest of the relative names, sizes and modification times of the data's files.

    It only reads the index of records, not the files. It includes everything that affects the rows,
    such as the columns of each feature and the classes of images.
    """
    result = hashlib.sha256()
    facts = getattr(data, "facts", None) or facts_of(data.files).values()
    for file, (size, changed) in zip(data.files, facts, strict=True):
        result.update(f"{key_of(data, file)}\0{size}\0{changed}\n".encode())
    columns = sorted(data.columns.items())
    features = sorted((name, document(item)) for name, item in data.features.items())
    header = data.kind == "csv" and data.header
    properties = (data.kind, data.counts, data.compression, header, columns, features)
    if getattr(data, "format", "") == "csv" and not data.header:
        result.update(b"no header")  # tables had one before
    if data.separator != ",":
        result.update(data.separator.encode())
    result.update(repr((*properties, data.labels, data.classes)).encode())
    if data.name:
        result.update(read_bytes(index_path(data.path, data.name)))
    return result.hexdigest()


def check_size(part: DataPart) -> None:
    """Raise FileError for a file whose size has changed since it was split into parts."""
    (file,) = part.files
    size = size_of(file)
    if size != part.file_bytes:
        raise FileError(
            "file-size-changed", file=file, size=size, bytes=part.file_bytes, changed=CHANGED
        )
