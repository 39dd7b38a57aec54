"""Reads parts of tables in a worker, and finds the rows that no model can take."""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from deploykit.batch_inference.reading.data_parts import (
    CHANGED,
    BadRow,
    DataPart,
    RowBatch,
    check_size,
    key_of,
)
from deploykit.batch_inference.tables.partition_columns import partition_values
from deploykit.batch_inference.tables.table_data import TableData
from deploykit.batch_inference.tables.table_schema import crashes_arrow
from deploykit.batch_inference.tables.table_values import (
    Bad,
    column_values,
    text_numbers,
)
from deploykit.data.data import Data
from deploykit.data.word_pieces import WordPieces
from deploykit.records.examples import Feature
from deploykit.storage import csv_files
from deploykit.storage.table_formats.arrow_types import element_type, is_text, with_values
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.ir.tensors import Array

_AT_ONCE = 4096  # rows of a Parquet file that are decoded at a time


class TableReader:
    """Reads the columns of features and those to keep; fast for parts in ascending order."""

    def __init__(self, data: Data) -> None:
        """Store which columns to read. GraphError: pyarrow is missing."""
        assert isinstance(data, TableData)
        self._data = data
        self._pa = arrow("reading a table")
        self._columns = [name for name in data.read if name not in data.partitions]
        self._partitions = {n: t for n, t in data.partitions.items() if n in data.read}
        self._pieces = WordPieces(data.tokens.vocabulary) if data.tokens is not None else None
        self._texts = _TextFile()
        self._parquet = _ParquetRows({name: data.types[name] for name in self._columns})

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the rows of a part in batches of `size`; texts are bytes.

        FileError: the file cannot be read, or has changed since it was split.
        """
        (file,) = part.files
        check_size(part)
        key = key_of(self._data, file)
        if not part.rows:  # the types of the kept columns matter
            types = {name: self._data.types[name] for name in self._data.keep}
            for name in types if self._data.format == "csv" else ():
                types[name] = self._partitions.get(name, self._pa.string())
            yield RowBatch(
                [], [], kept={n: self._pa.array([], type_) for n, type_ in types.items()}
            )
            return
        table, bad = self._read(file, part)
        columns = {name: table[name].combine_chunks() for name in self._columns}
        for name, value in partition_values(file, self._partitions).items():
            columns[name] = self._pa.array([value] * part.rows, self._partitions[name])
        arrays = {}
        for name, feature in self._features().items():
            parts = self._data.joined.get(name)
            one = feature if parts is None else Feature(feature.dtype)
            found = []
            for column in parts or (name,):
                values, wrong = self._values(column, columns[column], one)
                found.append(values)
                for place, reason in wrong.items():
                    bad.setdefault(place, reason)
            arrays[name] = found[0] if parts is None else np.stack(found, axis=1)
        kept = {name: self._kept(name, columns[name]) for name in self._data.keep}
        for start in range(0, part.rows, size):
            rows = range(start, min(start + size, part.rows))
            good = [row for row in rows if row not in bad]
            yield RowBatch(
                [key] * len(good),
                [part.start + row for row in good],
                arrays=self._tokenized({name: array[good] for name, array in arrays.items()}),
                bad=tuple(BadRow(key, part.start + row, bad[row]) for row in rows if row in bad),
                kept={name: _taken(self._pa, column, good) for name, column in kept.items()},
            )

    def _features(self) -> Mapping[str, Feature]:
        """Return the values to read of each column."""
        tokens = self._data.tokens
        return self._data.features if tokens is None else {tokens.column: Feature("string")}

    def _tokenized(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return the token ids and masks of texts, if the model takes these."""
        tokens = self._data.tokens
        if tokens is None or self._pieces is None:
            return arrays
        ids, mask = self._pieces.arrays(arrays[tokens.column], tokens.length, tokens.is_fixed)
        made = {"ids": ids, "mask": mask, "types": np.zeros_like(ids)}
        return {name: made[kind] for name, kind in tokens.parts.items()}

    def _values(self, name: str, column: Any, feature: Feature) -> tuple[Array, Bad]:
        bad: Bad = {}
        is_cells = self._data.format == "csv" or name in self._partitions
        if is_cells and is_text(column.type) and feature.dtype != "string":
            column, bad = text_numbers(name, column.cast(self._pa.binary()), feature.dtype)
        array, wrong = column_values(name, column, feature)
        return array, wrong | bad

    def _kept(self, name: str, column: Any) -> Any:
        r"""Return a column to keep; the cells of a CSV file are strings, and other bytes `\xff`."""
        pa = self._pa
        if self._data.format != "csv" or name in self._partitions:
            return column
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            cells = [cell and cell.decode(errors="backslashreplace") for cell in column.to_pylist()]
            return pa.array(cells, pa.string())

    def _read(self, file: str, part: DataPart) -> tuple[Any, Bad]:
        """Return the columns of all rows of a part, and the rows that cannot be parsed."""
        try:
            if self._data.format == "parquet":
                return self._parquet.read(file, part), {}
            text = self._texts.read(file, part)
            if self._data.format == "csv":
                return self._of_csv(file, part, text)
            return self._of_jsonl(file, part, text)
        except (self._pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            what = f"{self._data.format} file"
            raise GraphError("damaged-or-not", source=file, what=what, reason=reason) from None

    def _of_csv(self, file: str, part: DataPart, text: bytes) -> tuple[Any, Bad]:
        """Return the cells of the rows, as bytes."""
        names = [name for name in self._data.types if name not in self._data.partitions]
        layout = csv_files.CsvLayout(tuple(names), len(names), self._data.separator)
        table, bad = csv_files.arrow_cells(text, layout, self._columns)
        _check_rows(file, part, len(table))
        return table, bad

    def _of_jsonl(self, file: str, part: DataPart, text: bytes) -> tuple[Any, Bad]:
        from pyarrow import json as arrow_json

        pa = self._pa
        schema = pa.schema([(name, self._type_of(name)) for name in self._columns])
        read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        # Arrow ignores further keys of objects too, which a copied column has to show.
        others = "infer" if any("struct<" in str(type_) for type_ in schema.types) else "ignore"
        parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
        with contextlib.suppress(pa.ArrowInvalid):
            if crashes_arrow(text):
                raise pa.ArrowInvalid
            table = arrow_json.read_json(pa.BufferReader(text), read, parse)
            table = table.select(self._columns)
            table.validate(full=True)  # Arrow reads bytes that are not UTF-8
            if len(table) == part.rows and table.schema.types == schema.types:
                return table, {}
        lines = [line for line in text.split(b"\n") if line.strip(b"\r")]
        _check_rows(file, part, len(lines))
        return _of_lines(pa, lines, schema, self._data.keep)

    def _type_of(self, name: str) -> Any:
        """Return the type of a JSON value: that of the feature, in the lists of the column."""
        pa, feature = self._pa, self._features().get(name)
        if feature is None or name in self._data.keep:
            return self._data.types[name]
        found = element_type(self._data.types[name])
        type_ = {"string": pa.string(), "bool": pa.bool_(), "uint64": pa.uint64()}.get(
            feature.dtype, pa.float64() if "float" in feature.dtype else pa.int64()
        )
        is_number = pa.types.is_integer(found) or pa.types.is_floating(found)
        if feature.dtype != "string" and pa.types.is_boolean(found):
            type_ = found
        elif feature.dtype == "bool" and is_number:
            type_ = found  # of which 0 and 1 fit
        return with_values(self._data.types[name], type_)


class _TextFile:
    """An open file of text; a compressed one is unpacked once for parts in ascending order."""

    def __init__(self) -> None:
        self._file, self._size = "", 0
        self._open: Any = None

    def read(self, file: str, part: DataPart) -> bytes:
        """Return the text of a part."""
        if (self._file, self._size) != (file, part.file_bytes):
            if self._open is not None:
                self._open.close()
            self._open = opened_table(file)
            self._file, self._size = file, part.file_bytes
        self._open.seek(part.offset)
        return bytes(self._open.read(part.bytes))


class _ParquetRows:
    """Rows of Parquet files, of which one is open; a part behind the last one continues it."""

    def __init__(self, types: Mapping[str, Any]) -> None:
        self._types = types
        self._file = ""
        self._groups: list[int] = []
        self._open: Any = None
        self._rest: Any = None
        self._next = 0
        self._batches: Iterator[Any] = iter(())

    def read(self, file: str, part: DataPart) -> Any:
        """Return the rows of a part as a table."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._file != file:
            self._file, self._open = file, pq.ParquetFile(opened_table(file), buffer_size=1 << 20)
            counts = self._open.metadata
            sizes = [counts.row_group(n).num_rows for n in range(counts.num_row_groups)]
            self._groups = [0, *np.cumsum(sizes).tolist()]
            self._next = self._groups[-1] + 1
        _check_rows(file, part, part.rows if self._groups[-1] == part.file_rows else -1)
        group = int(np.searchsorted(self._groups, part.start, "right")) - 1
        if self._next > part.start or self._next < self._groups[group]:
            self._next, self._rest = self._groups[group], None
            self._batches = self._of_groups(range(group, len(self._groups) - 1))
        pieces = []
        while self._next < part.stop:
            piece = self._rest if self._rest is not None else next(self._batches)
            begin = max(0, part.start - self._next)
            end = min(len(piece), part.stop - self._next)
            self._rest = piece.slice(end) if end < len(piece) else None
            self._next += end
            if end > begin:
                pieces.append(piece.slice(begin, end - begin))
        table = pa.Table.from_batches(pieces)
        return pa.table(
            {
                name: _stored(pa, table[name].combine_chunks(), type_)
                for name, type_ in self._types.items()
            }
        )

    def _of_groups(self, groups: Iterable[int]) -> Iterator[Any]:
        """Yield the rows of row groups; Arrow does not read several at once for all types."""
        for group in groups:
            yield from self._open.iter_batches(
                _AT_ONCE, row_groups=[group], columns=list(self._types), use_threads=False
            )


def _stored(pa: Any, column: Any, type_: Any) -> Any:
    """Return a column in the type of `stored_type`; one of nulls in a type of other files."""
    if type_ == column.type:
        return column
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column.cast(type_)


def _taken(pa: Any, column: Any, rows: list[int]) -> Any:
    """Return some rows of a column."""
    try:
        return column.take(pa.array(rows, pa.int64()))
    except pa.ArrowNotImplementedError:  # for views inside of other types
        return pa.array([column[row].as_py() for row in rows], column.type)


def _check_rows(file: str, part: DataPart, rows: int) -> None:
    """Raise FileError if a file has not the rows that it had."""
    if rows != part.rows:
        raise FileError("table-rows-differ", source=file, changed=CHANGED)


def _of_lines(pa: Any, lines: list[bytes], schema: Any, keep: Collection[str]) -> tuple[Any, Bad]:
    """Return JSON Lines parsed one by one; invalid ones are null.

    Booleans are also integers, unless they are copied, as `keep` are.
    """
    bad: Bad = {}
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row, line in enumerate(lines):
        value: Any = None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad[row] = f"it is not JSON: {error}"[:200]
        if not isinstance(value, dict):
            bad.setdefault(row, "it is not a JSON object")
            value = {}
        for field in schema:
            cell = value.get(field.name)
            if (
                isinstance(cell, bool)
                and pa.types.is_integer(field.type)
                and field.name not in keep
            ):
                cell = int(cell)
            reason = ""
            try:
                if not _is_kept(cell, pa.array([cell], field.type)[0].as_py()):
                    reason = f"{json.dumps(cell):.40} is not of {field.type}"
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                reason = " ".join(str(error).split())[:120]
            if reason:
                bad.setdefault(row, f"column '{field.name}': {reason}")
                cell = None
            columns[field.name].append(cell)
    return pa.table(columns, schema=schema), bad


def _is_kept(cell: Any, stored: Any) -> bool:
    """Return whether Arrow stored a JSON value as it is, up to rounding to a float."""
    if isinstance(stored, dict):
        return cell.keys() <= stored.keys() and all(
            _is_kept(cell.get(name), value) for name, value in stored.items()
        )
    if isinstance(stored, list):
        return all(map(_is_kept, cell, stored))
    return isinstance(stored, float) or bool(cell == stored)
