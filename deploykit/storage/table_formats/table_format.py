"""The interface of all formats of tables: the types of the columns, and the rows of a range."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploykit.storage.csv_files import HeaderRule
from deploykit.storage.table_formats.table_files import opened_table
from deploykit.transforms.common.errors import FileError, GraphError

Bad = dict[int, str]
"""The reason for each invalid row, by its number in the range."""

CHANGED = "the data has changed since the run started; do not change it during the run"


@dataclass(frozen=True)
class TableSchema:
    """What the files of a table have in common."""

    types: Mapping[str, Any]
    """The Arrow type of each column. Those of CSV and JSON Lines are inferred from the start."""
    counts: tuple[int, ...] = ()
    """The rows of each file; empty: they are lines, which have to be counted."""
    mixed: tuple[str, ...] = ()
    """The text columns of CSV of which some values are numbers."""
    header: bool = False
    """Whether CSV files have a header."""
    separator: str = ","
    """The separator of the cells of CSV."""


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, and what is needed of them."""

    path: str
    """The path that the user gave, for messages about all files."""
    files: Sequence[str]
    used: Collection[str] = ()
    """The columns that all files must have with one type."""
    in_folders: Collection[str] = ()
    """Those of them that folders state if no file has them."""
    rule: HeaderRule = "auto"
    """The rule for the header of CSV files."""
    every: bool = False
    """Whether to read every line for the types, and to refuse files whose columns differ."""


@dataclass(frozen=True)
class RowRange:
    """Rows of one file: lines of its unpacked text, or rows by their numbers."""

    start: int
    """The number of the first row, from 0."""
    stop: int
    rows: int
    """The number of rows, including invalid ones."""
    offset: int = 0
    """The offset of the first line in bytes."""
    bytes: int = 0
    """The size of the lines."""
    file_rows: int = 0
    """The rows of the whole file; 0 for lines."""
    file_bytes: int = 0
    """The size of the file when it was split."""


RowReader = Callable[[str, RowRange], tuple[Any, Bad]]
"""Returns rows of a file as an Arrow table, and the invalid ones, which are null.

It is fast for ranges in ascending order. FileError: the file has other rows than before. Arrow's
exceptions: it is damaged.
"""


class TableFormat(Protocol):
    """A format of tables."""

    def schema(self, given: TableFiles) -> TableSchema:
        """Return the columns of some files.

        FileError: a file cannot be read. GraphError: it is damaged, or the files differ.
        """

    def reader(self, schema: TableSchema, columns: Mapping[str, str]) -> RowReader:
        """Return a reader of some columns, each with the dtype that its values become.

        Without a dtype, its values are copied as they are. The cells of CSV are bytes.
        """


@contextlib.contextmanager
def naming_damage(file: str, what: str) -> Iterator[None]:
    """Convert exceptions of Arrow about a file into errors that name it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, UnicodeError):
            reason = "a name of its columns is not UTF-8"
        raise GraphError("damaged-or-not", source=file, what=what, reason=reason) from None


def check_rows(file: str, part: RowRange, rows: int) -> None:
    """Raise FileError if a file has not the rows that it had."""
    if rows != part.rows:
        raise FileError("table-rows-differ", source=file, changed=CHANGED)


class TextFile:
    """An open file of text; a compressed one is unpacked once for ranges in ascending order."""

    def __init__(self) -> None:
        """Start without a file."""
        self._file, self._size = "", 0
        self._open: Any = None

    def read(self, file: str, part: RowRange) -> bytes:
        """Return the text of a range."""
        if (self._file, self._size) != (file, part.file_bytes):
            if self._open is not None:
                self._open.close()
            self._open = opened_table(file)
            self._file, self._size = file, part.file_bytes
        self._open.seek(part.offset)
        return bytes(self._open.read(part.bytes))
