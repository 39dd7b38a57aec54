"""Reading tables as arrays by column: CSV files with a header, JSON Lines, and Parquet files."""

import contextlib
import logging
import operator
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from deploykit.storage import csv_files
from deploykit.storage.archives import check_room
from deploykit.storage.csv_files import is_number
from deploykit.storage.data_files import first_byte, format_of, read_text_of
from deploykit.storage.table_formats.arrow_types import element_type, with_values
from deploykit.storage.table_formats.csv_format import CsvFormat
from deploykit.storage.table_formats.json_lines import JsonLines
from deploykit.storage.table_formats.parquet import PARQUET
from deploykit.storage.table_formats.row_groups import GroupFormat
from deploykit.transforms.common.errors import GraphError, naming, nearest, unknown_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import (
    opened_text,
)

logger = logging.getLogger("deploykit")


FORMATS: dict[str, CsvFormat | JsonLines | GroupFormat] = {
    "csv": CsvFormat(),
    "jsonl": JsonLines(),
    "parquet": PARQUET,
}
"""The formats of tables by name; `data_files.FORMATS` has the names by the ends of files.

With `GroupFormat`, a new one of a binary format only needs what opens its files.
"""


def is_table(
    path: str | os.PathLike[str],
    names: Collection[str] = (),
    takes_text: bool = False,
    labels: Collection[str] | None = None,
    rule: csv_files.HeaderRule = "auto",
) -> bool:
    """Return whether the columns of a file are arrays by name.

    This holds for Parquet and JSON, and for a CSV file whose header contains one of `names`. It
    also holds if strings are expected (`takes_text`) and the first row has one. If one array is
    expected, `labels` are the names of other columns: a header with one more name is enough.
    """
    if format_of(path) != "csv":
        return format_of(path) is not None
    found = csv_files.preview(path, rule) if os.path.isfile(path) else None
    return found is not None and names_arrays(found, names, takes_text, labels)


def names_arrays(
    found: csv_files.Preview,
    names: Collection[str],
    takes_text: bool,
    labels: Collection[str] | None,
) -> bool:
    """Return whether the columns of a CSV file are arrays by name, as `is_table` says."""
    results = set(found.layout.names)
    has_names = not results.isdisjoint(names) or (
        labels is not None and len(results - set(labels)) == 1 and len(results) > 1
    )
    return has_names or (takes_text and found.has_text)


def has_text(path: str | os.PathLike[str]) -> bool:
    """Return whether a text file has more than blank lines. FileError: it cannot be read."""
    with opened_text(path) as file:
        return bool(first_byte(file))


@dataclass(frozen=True)
class UnusableColumn:
    """Why a column of Parquet or JSON cannot be an array."""

    row: int
    """The first row that prevents it, from 0."""
    reason: str
    is_text: bool | None
    """Whether its values are strings; None: neither strings nor numbers."""
    axes: int
    """The number of axes of a value: 0 for scalars, 1 for lists."""

    def may_fit(self, type_: str, shape: tuple[int, ...] | None) -> bool:
        """Return whether such values without a bad row may fit an input; None: any shape does."""
        if self.is_text is not (type_ == "string"):
            return False
        is_row = self.axes == 0 and shape is not None and len(shape) == 2 and shape[1] in (-1, 1)
        return shape is None or is_row or self.axes == max(0, len(shape) - 1)

    def error(self, path: str | os.PathLike[str], name: str) -> GraphError:
        """Return the error that names the row of this column in a file."""
        reason = f"column '{name[:100]}' {self.reason}"
        return GraphError("table-row", source=path, number=self.row, reason=reason)


class Table(dict[str, Array]):
    """The columns of a Parquet or JSON file that can be arrays, by name.

    Reading one of the others raises a GraphError that names the row.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Start without columns."""
        super().__init__()
        self.path = path
        self.unusable: dict[str, UnusableColumn] = {}

    def __missing__(self, name: str) -> Array:
        if name not in self.unusable:
            raise KeyError(name)
        raise self.unusable[name].error(self.path, name)


def unusable_columns(data: Mapping[str, Any]) -> Mapping[str, UnusableColumn]:
    """Return the columns of a table that cannot be arrays; other data has none."""
    return data.unusable if isinstance(data, Table) else {}


def load_table(
    path: str | os.PathLike[str], rule: csv_files.HeaderRule = "auto"
) -> dict[str, Array]:
    """Return the columns of a table by name: numbers, bool or strings; lists add axes.

    Columns of Parquet and JSON with null values or other types are skipped, which is logged; using
    one is an error. FileError: it cannot be read. GraphError: it is damaged, or pyarrow is missing.
    """
    format_ = FORMATS[format_of(path) or "csv"]
    if isinstance(format_, CsvFormat):
        return _csv(path, rule)
    return _usable(path, format_.columns(os.fspath(path)))


def _csv(path: str | os.PathLike[str], rule: csv_files.HeaderRule) -> dict[str, Array]:
    content = read_text_of(path)
    check_room(8 * len(content), f"{path}: the table")
    layout = csv_files.layout_of(path, rule)
    csv_files.check_names(path, layout.header)
    layout.tell(path)
    rows = list(csv_files.rows_of(content, layout, path))
    cells = {name: [row[n] for _, row in rows] for n, name in enumerate(layout.names)}
    return CsvTable(cells, path, [line for line, _ in rows])


class CsvTable(dict[str, Array]):
    """The columns of a CSV file by name: numbers if all cells are numbers, else strings."""

    def __init__(
        self, cells: Mapping[str, list[str]], path: str | os.PathLike[str], lines: Sequence[int]
    ) -> None:
        """Convert the cells of each column; `lines` are those of the rows in the file."""
        super().__init__({
            name: numbers_of(item) if all(map(is_number, item)) else texts_of(item)
            for name, item in cells.items()
        })  # fmt: skip
        self.cells, self.path, self.lines = cells, path, lines

    def row_error(self, index: int, cell: str) -> GraphError | None:
        """Return the error for the column whose cell in a row is not a number, with its line."""
        for name, cells in self.cells.items():
            is_same = index < len(cells) and cells[index][:80] == cell
            if is_same and (error := self.cell_error(name, index)):
                return error
        return None

    def cell_error(self, name: str, index: int) -> GraphError | None:
        """Return the error for a cell, with its line; None: it is a number."""
        cell = self.cells[name][index]
        try:
            csv_files.number(cell)
        except ValueError as why:
            reason = f"column '{name}' has {cell[:40]!r}, {why}"
            return csv_files.row_error(self.path, self.lines[index], reason)
        return None


@contextlib.contextmanager
def located(table: Mapping[str, Array]) -> Iterator[None]:
    """Let an error about a cell of a CSV file that is not a number name its line."""
    try:
        yield
    except GraphError as error:
        index, got = error.fields.get("index"), error.fields.get("got")
        if error.code != "data-not-number" or not isinstance(table, CsvTable):
            raise
        found = None
        if isinstance(index, int) and isinstance(got, str):
            found = table.row_error(index, got)
        raise found or error from None


def columns_in(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the columns that a value of --columns names: one, or several between commas.

    GraphError: one does not exist.
    """
    names = (text,) if text in known else tuple(text.split(","))
    for name in names:
        if name not in known:
            raise unknown_name("column", name, known, nearest(name, list(known)))
    return names


def with_vectors(
    table: dict[str, Array], texts: Iterable[str], path: str | os.PathLike[str]
) -> dict[str, Array]:
    """Return a table with the vectors [rows, columns] of several columns of numbers.

    `texts` are values of --columns, which become the names of the vectors. GraphError: a column
    does not exist, or is not of numbers.
    """
    for text in texts:
        with naming(path):
            names = columns_in(text, {*table, *unusable_columns(table)})
        arrays = [table[name] for name in names]  # an error says why one is unusable
        if len(names) > 1:
            for name in names:
                _check_numbers(table, name, path)
            table[text] = np.stack(arrays, axis=1)
    return table


def _check_numbers(table: Mapping[str, Array], name: str, path: str | os.PathLike[str]) -> None:
    """Raise GraphError if a column of a table is not of numbers."""
    array = table[name]
    if array.dtype.kind in "biuf" and array.ndim == 1:
        return
    if isinstance(table, CsvTable):
        for index in range(len(array)):
            if error := table.cell_error(name, index):
                raise error
    got = "lists" if array.ndim > 1 else "texts"
    raise GraphError("column-not-numbers", source=path, name=name, got=got)


def column(data: Mapping[str, Array], name: str, is_text: bool) -> Array:
    """Return a column of `data`; if `is_text`, CSV cells are returned verbatim as strings."""
    if is_text and isinstance(data, CsvTable):
        return texts_of(data.cells[name])
    return data[name]


def texts_of(cells: Sequence[str | bytes]) -> Array:
    """Return strings as an object array [n] of UTF-8 bytes."""
    result = np.empty(len(cells), object)
    result[:] = [cell.encode() if isinstance(cell, str) else cell for cell in cells]
    return result


def _whole(cell: Any, are_whole: bool) -> int:
    """Return an integer; `are_whole` also accepts floats such as 1.0. ValueError, TypeError."""
    if not isinstance(cell, str | bytes):
        return operator.index(cell)
    try:
        return int(cell)
    except ValueError:
        number = float(cell)
        if are_whole and number.is_integer():
            return int(number)
        raise


def numbers_of(cells: Sequence[Any], are_whole: bool = False) -> Array:
    """Convert numbers or numeric strings to int64 or uint64 if these fit, else float64.

    With `are_whole`, a value such as 1.0 among integers does not turn them into float64.
    """
    for dtype in (np.int64, np.uint64):
        try:
            return np.array([_whole(cell, are_whole) for cell in cells], dtype)
        except (OverflowError, TypeError, ValueError):
            continue
    return np.array([float(cell) for cell in cells])


def _usable(path: str | os.PathLike[str], columns: Iterable[tuple[str, Any]]) -> Table:
    """Return columns of Arrow or lists as arrays by name; those that cannot be are `unusable`."""
    results = Table(path)
    for name, values in columns:
        try:
            results[name] = _of_values(values) if isinstance(values, list) else _of_arrow(values)
        except ValueError as error:
            logger.info("%s: skipping column '%s': it contains %s", path, name[:100], error)
            row, reason = _why_unusable(values, error)
            found = values if isinstance(values, list) else values.drop_null()[:1].to_pylist()
            first = next((value for value in found if value is not None), None)
            is_text = _is_text(next(iter(_leaves(first)), None))
            results.unusable[name] = UnusableColumn(row, reason, is_text, _axes_of(first))
    return results


def _why_unusable(values: Any, error: ValueError) -> tuple[int, str]:
    """Return why values cannot be an array: the first row that differs from row 0, and how."""
    if not isinstance(values, list):
        if values.null_count:
            return values.is_null().index(True).as_py(), "is null"
        values = values.to_pylist()
    if None in values:
        return values.index(None), "is null"
    first: tuple[bool, tuple[int, ...]] | None = None
    for row, value in enumerate(values):
        found = _kind_of(value)
        first = first or (None if isinstance(found, str) else found)
        if isinstance(found, str) or first is None:
            return row, str(found)
        if found[1] != first[1]:
            if len(found[1]) == len(first[1]) == 1:
                return row, f"has {found[1][0]} values, and row 0 has {first[1][0]}"
            return row, f"has shape {list(found[1])}, and row 0 has {list(first[1])}"
        if found != first:
            reason = f"has {str(value)[:40]!r}, expected {'a string' if first[0] else 'a number'}"
            return row, reason
    are_long = (any(map(_is_long, _leaves(value))) for value in values)
    place = next((row for row, is_long in enumerate(are_long) if is_long), None)
    return (0, f"has {error}") if place is None else (place, "has an integer beyond 64 bits")


def _is_long(leaf: Any) -> bool:
    """Return whether a value is an integer that neither int64 nor uint64 contains."""
    return isinstance(leaf, int) and not -(2**63) <= leaf < 2**64


def _kind_of(value: Any) -> tuple[bool, tuple[int, ...]] | str:
    """Return whether a value is text, and the sizes of its lists; or why it is not usable."""
    leaves = _leaves(value)
    if None in leaves:
        return "has a null in its list"
    kinds = {_is_text(leaf) for leaf in leaves} or {False}
    if None in kinds or len(kinds) > 1:
        return f"has {str(value)[:40]!r}, expected numbers or strings"
    try:
        "".join(leaf for leaf in leaves if isinstance(leaf, str)).encode()
        return kinds.pop() is True, np.shape(value)
    except UnicodeEncodeError:
        return "has an unpaired surrogate, which is not valid text"
    except ValueError:
        return "has lists of several lengths in its list"


def _axes_of(value: Any) -> int:
    """Return how deep a value is nested in lists."""
    axes = 0
    while isinstance(value, list):
        axes, value = axes + 1, value[0] if value else None
    return axes


def _is_text(leaf: Any) -> bool | None:
    if isinstance(leaf, str | bytes):
        return True
    return False if isinstance(leaf, int | float | Decimal) else None


def _leaves(value: Any) -> list[Any]:
    """Return the values in nested lists."""
    leaves, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += reversed(item)
        else:
            leaves.append(item)
    return leaves


def _of_arrow(column: Any) -> Array:
    """Return an Arrow column as an array. ValueError: it has null values or another type."""
    import pyarrow as pa

    if column.null_count:
        raise ValueError(f"no value in row {column.is_null().index(True).as_py()} (from 0)")
    column = _of_decimals(column)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if is_number:
        return np.asarray(column.to_numpy())
    return _of_values(column.to_pylist())


def _of_decimals(column: Any) -> Any:
    """Return decimals, even in lists, as int64 if all are such integers, else as float64.

    Integers stay exact. Other columns are returned unchanged.
    """
    import pyarrow as pa

    if not pa.types.is_decimal(element_type(column.type)):
        return column
    try:
        return column.cast(with_values(column.type, pa.int64()))
    except pa.ArrowInvalid:
        return column.cast(with_values(column.type, pa.float64()))


def _of_values(values: list[Any]) -> Array:
    """Return values as an array. ValueError: one is null, or of another type."""
    if None in values:
        raise ValueError(f"no value in row {values.index(None)} (from 0)")
    if all(isinstance(value, str | bytes) for value in values):  # NumPy would pad all to one length
        return texts_of(values)
    try:
        result = np.array(values)
    except ValueError:
        raise ValueError("lists of several lengths") from None
    if result.dtype.kind in "SUO":
        texts = np.array(values, object)
        flat = [item.encode() if isinstance(item, str) else item for item in texts.reshape(-1)]
        if not all(isinstance(item, bytes) for item in flat):
            raise ValueError(f"{type(flat[0]).__name__}, expected numbers or strings")
        return texts_of(flat).reshape(texts.shape)
    if result.dtype.kind not in "biuf":
        raise ValueError(f"{result.dtype}, expected numbers or strings")
    return result
