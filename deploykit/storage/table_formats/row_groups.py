"""Formats whose files state the types of their columns, and the rows of each group of rows."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deploykit.storage.archives import check_room
from deploykit.storage.csv_files import check_names
from deploykit.storage.table_formats.arrow_types import stored_type
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.storage.table_formats.table_format import (
    Bad,
    RowRange,
    RowReader,
    TableFiles,
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

    def schema(self, given: TableFiles) -> TableSchema:
        """Return the columns that all files have, and the rows of each file.

        A column of nulls has any type. GraphError: the files have different types of a `used` one.
        """
        pa = arrow("reading a table")
        types: dict[str, Any] = {}
        counts = []
        differing: dict[str, str] = {}
        for file in given.files:
            with opened_table(file) as stream, naming_damage(file, f"{self.title.lower()} file"):
                found = self.open(stream)
            counts.append(sum(found.rows))
            check_names(file, found.schema.names)
            own = {field.name: stored_type(field.type) for field in found.schema}
            types = types or own
            for name in {**types, **own}:
                type_, expected = own.get(name), types.get(name)
                both = [item for item in (expected, type_) if item is not None]
                known = [item for item in both if not pa.types.is_null(item)]
                if len(both) == 2 and len(set(known)) <= 1:
                    types[name] = (known or both)[0]
                    continue
                differing.setdefault(name, file)
                if given.every or name in given.used:
                    raise GraphError(
                        "column-differs", source=file, name=name, got=str(type_ or "missing"),
                        expected=str(expected or "missing"), other=given.files[0],
                    )  # fmt: skip
        for name, file in differing.items():
            logger.warning("column '%s' is ignored: %s has another type, or lacks it", name, file)
        types = {name: type_ for name, type_ in types.items() if name not in differing}
        return TableSchema(types, tuple(counts))

    def reader(self, schema: TableSchema, columns: Mapping[str, str]) -> RowReader:
        """Return a reader of some columns, in the types of the schema."""
        return _Rows(self, {name: schema.types[name] for name in columns}).read

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
            names = file.schema.names
            return [(n, _stored(table[n], stored_type(table[n].type))) for n in names]


class _Rows:
    """Rows of files, of which one is open; a range behind the last one continues it."""

    def __init__(self, format_: GroupFormat, types: Mapping[str, Any]) -> None:
        self._format, self._types, self._file = format_, types, ""
        self._open: Any = None
        self._starts: list[int] = []  # of the groups, and the end
        self._at: tuple[int, Any] = 0, None  # a batch, and the number of its first row
        self._batches: Iterator[tuple[int, Any]] = iter(())

    def read(self, file: str, part: RowRange) -> tuple[Any, Bad]:
        """Return the rows of a range, all of which are valid."""
        import pyarrow as pa

        if self._file != file:
            self._file, self._open = file, self._format.open(opened_table(file))
            self._starts = [0, *np.cumsum(self._open.rows).tolist()]
            self._at = self._starts[-1], None
        check_rows(file, part, part.rows if self._starts[-1] == part.file_rows else -1)
        group = int(np.searchsorted(self._starts, part.start, "right")) - 1
        if not self._starts[group] <= self._at[0] <= part.start:
            self._batches = self._of_groups(group)
            self._at = next(self._batches)
        pieces = []
        while True:
            start, batch = self._at
            if start + len(batch) > part.start:
                begin = max(0, part.start - start)
                pieces.append(batch.slice(begin, part.stop - start - begin))
            if start + len(batch) >= part.stop:
                break
            self._at = next(self._batches)
        table = pa.Table.from_batches(pieces)
        return pa.table({name: _stored(table[name], t) for name, t in self._types.items()}), {}

    def _of_groups(self, first: int) -> Iterator[tuple[int, Any]]:
        """Yield the batches of a group and of those behind it, each with its first row."""
        for group in range(first, len(self._starts) - 1):
            row = self._starts[group]
            for batch in self._open.batches(group, list(self._types)):
                yield row, batch
                row += len(batch)


def _stored(column: Any, type_: Any) -> Any:
    """Return a column in the type of `stored_type`; one of nulls in a type of other files."""
    import pyarrow as pa

    if type_ == column.type:
        return column
    if isinstance(column.type, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], type_)
    return column.cast(type_)
