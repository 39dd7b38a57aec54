"""Reads parts of tables in a worker, and finds the rows that no model can take."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deploykit.batch_inference.reading.data_parts import (
    BadRow,
    DataPart,
    RowBatch,
    check_size,
    key_of,
)
from deploykit.batch_inference.tables.partition_columns import partition_values
from deploykit.batch_inference.tables.table_data import TableData
from deploykit.data.data import Data
from deploykit.data.word_pieces import WordPieces
from deploykit.records.examples import Feature
from deploykit.records.table_values import (
    column_values,
    text_numbers,
)
from deploykit.storage.table_formats.arrow_types import is_text
from deploykit.storage.table_formats.table_files import arrow
from deploykit.storage.table_formats.table_format import Bad, naming_damage
from deploykit.storage.tables import FORMATS
from deploykit.transforms.ir.tensors import Array


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
        dtypes = {
            column: feature.dtype
            for name, feature in self._features().items()
            for column in data.joined.get(name, (name,))
        } | dict.fromkeys(data.keep, "")
        read = {name: dtypes[name] for name in self._columns}
        self._rows = FORMATS[data.format].reader(data.schema, read)

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
        with naming_damage(file, f"{self._data.format} file"):
            table, bad = self._rows(file, part.range)
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


def _taken(pa: Any, column: Any, rows: list[int]) -> Any:
    """Return some rows of a column."""
    try:
        return column.take(pa.array(rows, pa.int64()))
    except pa.ArrowNotImplementedError:  # for views inside of other types
        return pa.array([column[row].as_py() for row in rows], column.type)
