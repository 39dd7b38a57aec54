"""Sources of records from tables whose values have types: each column is a feature."""

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from deploykit.records.examples import Feature
from deploykit.records.record_source import (
    MAX_ITEMS,
    PART,
    Batch,
    Problem,
    SourcePart,
    facts_of,
    no_records_error,
    numbered,
)
from deploykit.records.table_values import column_values
from deploykit.records.tables import label_column
from deploykit.storage.record_offsets import offsets_of_every
from deploykit.storage.table_formats.arrow_types import element_type, is_text, kind_of
from deploykit.storage.table_formats.table_files import opened_table, size_of
from deploykit.storage.table_formats.table_format import (
    Bad,
    RowRange,
    RowReader,
    TableFiles,
    TableFormat,
    TableSchema,
    naming_damage,
)
from deploykit.storage.tables import FORMATS
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import cannot_be_read

logger = logging.getLogger("deploykit")

_LABELS = ("label", "labels")
_NUMBER = 8  # bytes of a number in a record, or of a short text


@dataclass(frozen=True, kw_only=True)
class TablePart(SourcePart):
    """Rows whose records are a part."""

    rows: RowRange


class TableColumns:
    """Columns of numbers, strings, or lists of these, whose first values state their sizes."""

    def __init__(self, files: Sequence[str], kind: str, label: str | None = None) -> None:
        """Read the types of the columns, the first lists, and labels that are strings.

        `kind` is one of `storage.tables.FORMATS`. FileError, GraphError: a file cannot be read, is
        damaged, or differs from the others.
        """
        self.files, self._kind = facts_of(files), kind
        self._format: TableFormat = FORMATS[kind]
        self._schema: TableSchema = self._format.schema(TableFiles(files[0], files, every=True))
        self._columns: dict[str, Feature] = {}
        for name, type_ in self._schema.types.items():
            if kind_of(type_) is not None:
                self._columns[name] = Feature(_dtype(type_))
                continue
            words = "%s: skipping column '%s' (%s), expected numbers, strings or lists of these"
            logger.warning(words, files[0], name[:100], str(type_)[:80])
        if not self._columns:
            raise no_records_error(files, "no column has numbers or strings")
        self._reader: RowReader | None = None
        self._parts = [part for place, file in enumerate(files) for part in self._of(place, file)]
        self._set_sizes()
        self._label = _label(files[0], self._schema.types, self._columns, label)
        self.features = {self._name(name): item for name, item in self._columns.items()}
        if len(self.features) < len(self._columns):
            raise GraphError("label-column-taken", source=files[0], name=self._label)
        self._numbers: dict[str, int] | None = None
        self.classes: tuple[str, ...] = ()
        if self.features.get("label") == Feature("string") and self._label:
            self._number_labels()

    def parts(self) -> list[SourcePart]:
        """Return ranges of rows, with about the size of their records."""
        sizes = (math.prod(size or 1 for size in item.shape) for item in self.features.values())
        least = _NUMBER * sum(sizes)
        return [
            replace(part, bytes=max(part.bytes, part.rows.rows * least)) for part in self._parts
        ]

    def read(self, part: SourcePart) -> Batch:
        """Return the rows of a part; a null, or a list of another size, is a problem."""
        assert isinstance(part, TablePart)
        if self._reader is None:  # not before the fork: each process opens the files
            self._reader = self._reads(self._columns)
        table, bad = self._table(self._reader, part)
        columns: dict[str, Any] = {}
        for name, feature in self._columns.items():
            array, wrong = column_values(name, table[name].combine_chunks(), feature)
            bad = wrong | bad
            columns[self._name(name)] = array.reshape(len(array), -1) if array.ndim > 2 else array
        if self._numbers is not None:
            labels = ["" if row in bad else _text(x) for row, x in enumerate(columns["label"])]
            columns["label"] = [self._numbers.get(label, -1) for label in labels]
            bad |= {
                row: f"the class {label[:40]!r} is unknown" if label else "the label is empty"
                for row, label in enumerate(labels)
                if label not in self._numbers and row not in bad
            }
        rows = [row for row in range(part.rows.rows) if row not in bad]
        first = part.rows.start
        return Batch(
            {name: [column[row] for row in rows] for name, column in columns.items()},
            [Problem(part.file, f"row {first + row}: {bad[row]}") for row in sorted(bad)],
        )

    def _name(self, column: str) -> str:
        return "label" if column == self._label else column

    def _of(self, place: int, file: str) -> Iterator[TablePart]:
        """Yield the parts of a file; lines are read to count them."""
        size = size_of(file)
        if counts := self._schema.counts:
            rows, offsets = counts[place], list[int]()
        else:
            try:
                with opened_table(file) as stream:
                    offsets, _, rows = offsets_of_every(MAX_ITEMS, stream, file)
            except OSError as error:
                raise cannot_be_read(file, error) from None
        step = MAX_ITEMS if offsets else min(MAX_ITEMS, PART * rows // max(1, size) or 1)
        for number, (start, stop) in enumerate(pairwise([*range(0, rows, step), rows])):
            found = RowRange(start, stop, stop - start, file_rows=rows, file_bytes=size)
            used = size * found.rows // rows
            if offsets:
                used = offsets[number + 1] - offsets[number]
                found = replace(found, offset=offsets[number], bytes=used, file_rows=0)
            yield TablePart(start, stop, used, file, rows=found)

    def _reads(self, columns: Mapping[str, Feature]) -> RowReader:
        dtypes = {name: feature.dtype for name, feature in columns.items()}
        return self._format.reader(self._schema, dtypes)

    def _table(self, reader: RowReader, part: TablePart) -> tuple[Any, Bad]:
        with naming_damage(part.file, f"{self._kind} file"):
            return reader(part.file, part.rows)

    def _set_sizes(self) -> None:
        """Store the sizes of lists, by their types or their first values."""
        unknown = {}
        for name, feature in self._columns.items():
            kind = kind_of(self._schema.types[name])
            if kind is not None and kind.depth:
                self._columns[name] = replace(feature, shape=kind.sizes or (0,) * kind.depth)
                if not kind.sizes:
                    unknown[name] = feature
        reader = self._reads(unknown)
        for part in self._parts:
            if not unknown:
                break
            table, _ = self._table(reader, part)
            for name in list(unknown):
                shape = _first_shape(table[name], len(self._columns[name].shape))
                if shape is not None:
                    self._columns[name] = replace(unknown.pop(name), shape=shape)

    def _number_labels(self) -> None:
        """Set the numbers of the classes, which are all labels in order; integers are unchanged."""
        assert self._label is not None
        reader, found = self._reads({self._label: Feature("string")}), set[bytes]()
        for part in self._parts:
            table, _ = self._table(reader, part)
            column = table[self._label].combine_chunks()
            texts, _ = column_values(self._label, column.drop_null(), Feature("string"))
            found.update(texts.tolist())
        labels = sorted(filter(None, {_text(label) for label in found}))
        numbers, self.classes = numbered(labels)
        self._numbers = dict(zip(labels, numbers, strict=True))
        self.features["label"] = Feature("int64")


def _label(
    where: str, types: Mapping[str, Any], usable: Collection[str], label: str | None
) -> str | None:
    """Return the label column by its name or number; default: `label` or `labels`, if it exists.

    GraphError: it does not exist, or has other values than numbers or strings.
    """
    if label is None:
        return next((name for name in _LABELS if name in usable), None)
    names = list(types)
    place = names.index(label) if label in types else label_column(where, names, label)
    if place is None:
        return None
    if names[place] not in usable:
        type_ = str(types[names[place]])[:80]
        raise GraphError("label-column-type", source=where, name=names[place], got=type_)
    return names[place]


def _text(label: bytes) -> str:
    """Return a label as the name of a class, by the rule of CSV."""
    return label.decode(errors="backslashreplace").strip()


def _dtype(type_: Any) -> str:
    """Return the dtype of the values of a column in records."""
    import pyarrow as pa

    found = element_type(type_)
    found = found.value_type if pa.types.is_dictionary(found) else found
    if is_text(found):
        return "string"
    is_whole = pa.types.is_integer(found) or pa.types.is_boolean(found)
    is_whole = is_whole or (pa.types.is_decimal(found) and found.scale <= 0)
    return "int64" if is_whole else "float32"


def _first_shape(column: Any, depth: int) -> tuple[int, ...] | None:
    """Return the sizes of the first value that states all and is not empty; None: there is none."""
    for item in column:
        value, shape = item.as_py(), list[int]()
        while isinstance(value, list):
            shape.append(len(value))
            value = value[0] if value else None
        if len(shape) == depth and all(shape):
            return tuple(shape)
    return None
