"""A part of a dataset, the rows read from it, where they come from, and rows that cannot be
read.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Protocol

from deploykit.data.data import Data
from deploykit.records.index import index_path
from deploykit.records.record_source import facts_of
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import Error, FileError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import check_regular, read_bytes


@dataclass(frozen=True)
class DataPart:
    """Rows that are computed together and written to one file. Any process can read them alone.

    They are whole files, of photos, or the rows `start` to `stop` of one file: records, samples of
    arrays, lines. Parts depend on nothing but the data and the model.
    """

    number: int
    files: tuple[str, ...]
    """As they are opened."""
    start: int = 0
    """The number of its first row in its file, from 0; of lines, from 1; of a photo, among all."""
    stop: int = 0
    """The number behind its last row."""
    offset: int = 0
    """Of lines: where in the file the first one begins, in bytes."""
    bytes: int = 0
    """That its rows take in the file, about; of lines, exactly; 0 of photos."""
    file_rows: int = 0
    """How many rows its file has, with those of other parts; 0 where that does not matter."""
    file_bytes: int = 0
    """How large its file was when it was cut; 0 of photos."""

    @property
    def rows(self) -> int:
        """How many rows it has, damaged ones included."""
        return self.stop - self.start


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: its file, its place there, and the reason in words."""

    file: str
    """Below the folder of the data, as `sources.key_of` returns it."""
    row: int
    """Its number in the file, as in `DataPart.start`; 0 of a photo."""
    reason: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a part in their order: those that could be read, and those that could not."""

    files: Sequence[str]
    """The file of each row that could be read, as in `BadRow.file`."""
    rows: Sequence[int]
    """The number of each such row in its file."""
    contents: Sequence[bytes] = ()
    """Of each such row: a serialized Example, a file of a photo, or a line without its end."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Of arrays, instead: the values of these rows, by feature, rows first."""
    bad: tuple[BadRow, ...] = ()


class PartReader(Protocol):
    """What reads parts in a worker; it is quick where parts come in the order of their numbers."""

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the rows of a part, so many at once, bad ones counted.

        FileError: a file cannot be read at all.
        """
        ...


CHANGED = "the data have changed since the run began; leave them as they are until it ends"

_ROWS = {"records": "record", "csv": "line", "arrays": "sample"}
_LONGEST = 120  # bytes of a name, which has numbers and an end in the names of files
_OTHER = re.compile(r"[^\w.-]+")


def key_of(data: Data, file: str) -> str:
    r"""Return the name of a file below the folder of the data, or its own where it is the data.

    Bytes that are no UTF-8 are written as `\xff`, so that every format can hold the name.
    """
    folder = str(PurePath(data.path))
    if file in (data.path, folder):
        name = os.path.basename(file)
    else:
        name = file.removeprefix(folder if folder.endswith(os.sep) else folder + os.sep)
    try:
        name.encode()
    except UnicodeEncodeError:
        return os.fsencode(name).decode("utf-8", "backslashreplace")
    return name


def place_of(data: Data, key: str, row: int) -> str:
    """Return in words where a row lies: `train-00000-of-00003.tfrecord: record 7`."""
    return place_in(data.kind, key, row)


def place_in(kind: str, key: str, row: int) -> str:
    """Return in words where a row of data of a kind lies."""
    word = _ROWS.get(kind)
    return key if word is None else f"{key}: {word} {row}"


def source_name(data: Data) -> str:
    """Return what the files of results are called unless someone says: as records, folder or file.

    It is made of letters, digits, `.`, `_` and `-`, and begins with a letter or a digit.
    """
    place = PurePath(os.path.abspath(data.path))
    whole = data.name or (place.stem if data.kind == "arrays" or _is_file(data) else place.name)
    name = _OTHER.sub("_", whole).lstrip("._-")
    while len(name.encode()) > _LONGEST:
        name = name[:-1]
    return name or "data"


def fingerprint(data: Data) -> str:
    """Return a digest that other data do not share: of names below the folder, sizes and times.

    Of the files, no more is read than the index of records. What decides the rows counts as well:
    which columns are which feature, and the classes of photos.
    """
    result = hashlib.sha256()
    for file, (size, changed) in facts_of(data.files).items():
        result.update(f"{key_of(data, file)}\0{size}\0{changed}\n".encode())
    columns = sorted(data.columns.items())
    features = sorted((name, document(item)) for name, item in data.features.items())
    said = (data.kind, data.counts, data.compression, data.header, columns, features)
    result.update(repr((*said, data.labels, data.classes)).encode())
    if data.name:
        result.update(read_bytes(index_path(data.path, data.name)))
    return result.hexdigest()


def _is_file(data: Data) -> bool:
    """Say whether data are one CSV file, and no folder with one."""
    return data.kind == "csv" and data.files == (str(PurePath(data.path)),)


def reason_of(error: Error, file: str) -> str:
    """Return what an error says of a file, without its name in front."""
    return str(error).removeprefix(f"{file:.300}: ")


def check_size(part: DataPart) -> None:
    """Raise FileError for a file that is not as large as when its parts were cut."""
    (file,) = part.files
    size = check_regular(file).st_size
    if size != part.file_bytes:
        raise FileError(
            "file-size-changed", file=file, size=size, bytes=part.file_bytes, changed=CHANGED
        )
