"""The interface of all formats of tables: the types of the columns, and the rows of a range."""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


class RowRange(Protocol):
    """Rows of one file: lines of its unpacked text, or rows by their numbers."""

    @property
    def start(self) -> int:
        """The number of the first row, from 0."""

    @property
    def stop(self) -> int:
        """The number after the last row."""

    @property
    def rows(self) -> int:
        """The number of rows, including invalid ones."""

    @property
    def offset(self) -> int:
        """The offset of the first line in bytes."""

    @property
    def bytes(self) -> int:
        """The size of the lines."""

    @property
    def file_rows(self) -> int:
        """The rows of the whole file; 0 for lines."""

    @property
    def file_bytes(self) -> int:
        """The size of the file when it was split."""


class RowReader(Protocol):
    """Reads columns of a table; fast for ranges in ascending order."""

    def read(self, file: str, part: RowRange) -> tuple[Any, Bad]:
        """Return the rows of a range as an Arrow table, and the invalid ones, which are null.

        FileError: the file has other rows than before. Arrow's exceptions: it is damaged.
        """


class TableFormat(Protocol):
    """A format of tables."""

    def schema(
        self,
        path: str,
        files: Sequence[str],
        used: Collection[str] = (),
        in_folders: Collection[str] = (),
        rule: HeaderRule = "auto",
    ) -> TableSchema:
        """Return the columns of some files.

        Args:
            path: the path that the user gave, for messages about all files.
            files: the files, in order.
            used: the columns that are needed, so that all files must have them.
            in_folders: those of them that folders state, if no file has them.
            rule: the rule for the header of CSV files.

        FileError: a file cannot be read. GraphError: it is damaged, or the files differ.
        """

    def reader(
        self,
        schema: TableSchema,
        columns: Sequence[str],
        dtypes: Mapping[str, str],
        copied: Collection[str] = (),
    ) -> RowReader:
        """Return a reader of some columns.

        `dtypes` are those that the values of columns become, if they are known; `copied` columns
        keep their values as they are. The cells of CSV are bytes.
        """


class TypedFormat(TableFormat, Protocol):
    """A format whose values have types."""

    def columns(self, path: str) -> Iterable[tuple[str, Any]]:
        """Return the columns of a whole file, of Arrow or as lists of values.

        FileError: it cannot be read. GraphError: it is damaged, or pyarrow is missing.
        """


@contextlib.contextmanager
def naming_damage(file: str, what: str) -> Iterator[None]:
    """Convert exceptions of Arrow about a file into errors that name it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, UnicodeDecodeError):
            reason = "its header is not UTF-8"
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
