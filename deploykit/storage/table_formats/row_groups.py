"""Formats whose files state the types of their columns, and the rows of each group of rows."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deploykit.storage.archives import check_room
from deploykit.storage.csv_files import HeaderRule, check_names
from deploykit.storage.table_formats.arrow_types import stored_type
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.storage.table_formats.table_format import (
    Bad,
    RowRange,
    RowReader,
    TableSchema,
    check_rows,
    naming_damage,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import read_bytes

logger = logging.getLogger("deploykit")


class GroupFile(Protocol):
    """An open file of a table."""

    schema: Any
    """The Arrow schema."""
    rows: Sequence[int]
    """The number of rows of each group."""
    size: int
    """The approximate size in bytes of all rows in memory."""

    def batches(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield some columns of a group as record batches."""


@dataclass(frozen=True)
class GroupFormat:
    """A format of this kind."""

    title: str
    """The name of the format in messages."""
    open: Callable[[Any], GroupFile]
    """Opens a file object. Arrow's exceptions: it is damaged."""

    def schema(
        self,
        path: str,
        files: Sequence[str],
        used: Collection[str] = (),
        in_folders: Collection[str] = (),
        rule: HeaderRule = "auto",
    ) -> TableSchema:
        """Return the columns that all files have, and the rows of each file.

        A column of nulls has any type. GraphError: the files have different types of a `used` one.
        """
        pa = arrow("reading a table")
        types: dict[str, Any] = {}
        counts = []
        differing: dict[str, str] = {}
        for file in files:
            with opened_table(file) as stream, naming_damage(file, f"{self.title.lower()} file"):
                found = self.open(stream)
            counts.append(sum(found.rows))
            check_names(file, found.schema.names)
            own = _types(found)
            types = types or own
            for name in {**types, **own}:
                type_, expected = own.get(name), types.get(name)
                if type_ is not None and expected is not None:
                    if pa.types.is_null(expected):
                        types[name] = type_
                        continue
                    if type_ == expected or pa.types.is_null(type_):
                        continue
                differing.setdefault(name, file)
                if name in used:
                    raise GraphError(
                        "column-differs", source=file, name=name, got=_type_text(type_),
                        expected=_type_text(expected), other=files[0],
                    )  # fmt: skip
        for name, file in differing.items():
            logger.warning("column '%s' is ignored: %s has another type, or lacks it", name, file)
        types = {name: type_ for name, type_ in types.items() if name not in differing}
        return TableSchema(types, tuple(counts))

    def reader(
        self,
        schema: TableSchema,
        columns: Sequence[str],
        dtypes: Mapping[str, str],
        copied: Collection[str] = (),
    ) -> RowReader:
        """Return a reader of some columns, in the types of the schema."""
        return _Rows(self, {name: schema.types[name] for name in columns})

    def columns(self, path: str) -> Iterable[tuple[str, Any]]:
        """Return the columns of a whole file as Arrow columns. FileError, GraphError."""
        content = read_bytes(path)
        if not content:
            raise GraphError("parquet-empty", source=path, what=self.title)
        what = f"{self.title} file"
        pa = arrow(f"reading a {what}", path, "give a .npz or CSV file")
        with naming_damage(path, what):
            file = self.open(pa.BufferReader(content))
            check_names(path, file.schema.names)
            check_room(2 * file.size, f"{path}: the table")
            pieces = [
                batch
                for group in range(len(file.rows))
                for batch in file.batches(group, file.schema.names)
            ]
            table = pa.Table.from_batches(pieces) if pieces else file.schema.empty_table()
            return _in_types(table, _types(file)).items()


class _Rows:
    """Rows of files, of which one is open; a range behind the last one continues it."""

    def __init__(self, format_: GroupFormat, types: Mapping[str, Any]) -> None:
        self._format, self._types = format_, types
        self._file = ""
        self._starts: list[int] = []
        self._open: Any = None
        self._rest: Any = None
        self._next = 0
        self._batches: Iterator[Any] = iter(())

    def read(self, file: str, part: RowRange) -> tuple[Any, Bad]:
        """Return the rows of a range, all of which are valid."""
        import pyarrow as pa

        if self._file != file:
            self._file, self._open = file, self._format.open(opened_table(file))
            self._starts = [0, *np.cumsum(self._open.rows).tolist()]
            self._next = self._starts[-1] + 1
        check_rows(file, part, part.rows if self._starts[-1] == part.file_rows else -1)
        group = int(np.searchsorted(self._starts, part.start, "right")) - 1
        if self._next > part.start or self._next < self._starts[group]:
            self._next, self._rest = self._starts[group], None
            self._batches = self._of_groups(range(group, len(self._starts) - 1))
        pieces = []
        while self._next < part.stop:
            piece = self._rest if self._rest is not None else next(self._batches)
            begin = max(0, part.start - self._next)
            end = min(len(piece), part.stop - self._next)
            self._rest = piece.slice(end) if end < len(piece) else None
            self._next += end
            if end > begin:
                pieces.append(piece.slice(begin, end - begin))
        return pa.table(_in_types(pa.Table.from_batches(pieces), self._types)), {}

    def _of_groups(self, groups: Iterable[int]) -> Iterator[Any]:
        for group in groups:
            yield from self._open.batches(group, list(self._types))


def _types(file: GroupFile) -> dict[str, Any]:
    return {field.name: stored_type(field.type) for field in file.schema}


def _in_types(table: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns in the types of `stored_type`; those of nulls in a type of other files."""
    return {name: _stored(table[name], type_) for name, type_ in types.items()}


def _stored(column: Any, type_: Any) -> Any:
    import pyarrow as pa

    if type_ == column.type:
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], type_)
    return column.cast(type_)


def _type_text(type_: Any) -> str:
    return "missing" if type_ is None else str(type_)
