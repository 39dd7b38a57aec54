"""Sources of records from CSV or text lines, with label column, label type and header."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deploykit.records.examples import Feature
from deploykit.records.lines import first_lines, numbered_lines, parts_of, text_of
from deploykit.records.record_source import (
    Facts,
    Problem,
    Problems,
    SourcePart,
    facts_of,
    no_records_error,
)
from deploykit.storage.csv_files import is_header, is_number
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import OVERHEAD

_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Columns:
    """The columns of all files of a table; `label` is None without a label column."""

    delimiter: str
    count: int
    label: int | None
    label_type: str  # int64, float32, or class
    header: bytes | None = None
    places: Mapping[str, int] = field(default_factory=dict)  # class number by name

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, by number."""
        return tuple(self.places)

    def cells(self, line: bytes) -> list[str]:
        """Return the cells of a line. ValueError: the line is not text."""
        return cells(line, self.delimiter)

    def problem(self, row: Sequence[str]) -> str:
        """Return the problem with the number of cells or the label of a row, or an empty text."""
        if len(row) != self.count:
            return f"{len(row)} columns, expected {self.count} as in the first line"
        if self.label is None:
            return ""
        label = row[self.label].strip()
        if not label:
            return "the label is missing"
        if self.label_type == "class":
            return "" if label in self.places else f"the class {label[:40]!r} is unknown"
        if self.label_type == "float32":
            return "" if is_number(label) else f"the label {label[:40]!r} is not a number"
        return "" if is_whole(label) else f"the label {label[:40]!r} is not an integer"

    def value(self, row: Sequence[str]) -> float | int:
        """Return the label of a valid row."""
        assert self.label is not None
        label = row[self.label].strip()
        if self.label_type == "class":
            return self.places[label]
        return float(label) if self.label_type == "float32" else int(label)


def columns_of(
    files: Facts, delimiter: str, label: str | None, numeric: bool
) -> tuple[Columns, bytes]:
    """Return the columns of a table and its first line of values.

    Args:
        files: all files of the table; each may start with the same header.
        delimiter: the delimiter between cells.
        label: the name or number (from 0) of the label column, or `none`; default: the last one.
        numeric: whether a line without a number must be a header.
    """
    lines = next((result for path in files if (result := first_lines(path, 2))), [])
    if not lines:
        raise no_records_error(files, "the files are empty")
    where = next(iter(files))
    first = _cells_or_fail(where, lines[0], delimiter)
    place = None if len(first) == 1 and label is None else _place(where, first, label)
    named = label is not None and label != "none" and not label.lstrip("-").isdecimal()
    header = named or (numeric and is_header(first))
    if header and len(lines) < 2:
        raise no_records_error(files, "there is only a header")
    row = _cells_or_fail(where, lines[1], delimiter) if header else first
    columns = Columns(delimiter, len(first), place, "", lines[0] if header else None)
    if len(row) != len(first):
        raise GraphError("csv-problem", source=where, reason=columns.problem(row))
    if place is None:
        return columns, lines[header]
    sample = row[place].strip() or next(filter(None, _labels(files, columns)), "")
    kind = "int64" if is_whole(sample) else "float32" if is_number(sample) else "class"
    names = sorted({name for name in _labels(files, columns) if name}) if kind == "class" else []
    places = {name: number for number, name in enumerate(names)}
    return Columns(delimiter, len(first), place, kind, columns.header, places), lines[header]


def cells(line: bytes, delimiter: str) -> list[str]:
    """Return the cells of a line; quoted cells may contain delimiters. ValueError: not text."""
    text = line.decode()
    if delimiter == "," and '"' in text:
        try:
            return next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise ValueError(f"quotes: {error}") from None
    return text.split(delimiter)


def is_whole(cell: str) -> bool:
    """Return whether a cell contains a 64-bit integer."""
    try:
        return int(cell) in _INT64
    except ValueError:
        return False


def _cells_or_fail(where: str, line: bytes, delimiter: str) -> list[str]:
    try:
        return cells(line, delimiter)
    except ValueError as error:
        raise GraphError("csv-first-lines", source=where, reason=error) from None


def _place(where: str, first: Sequence[str], label: str | None) -> int | None:
    """Return the number of the label column. GraphError: the column does not exist."""
    if label == "none":
        return None
    if label is None or label.lstrip("-").isdecimal():
        number = -1 if label is None else int(label)
        if not -len(first) <= number < len(first):
            raise GraphError("csv-column-number", source=where, number=number, count=len(first))
        return number % len(first)
    names = [cell.strip() for cell in first]
    if label not in names:
        hint = nearest(label, names) or f": {', '.join(names)[:80]}"
        raise GraphError("missing", source=where, kind="column", name=label, hint=hint)
    return names.index(label)


def _labels(files: Facts, columns: Columns) -> Iterator[str]:
    assert columns.label is not None
    delimiter = columns.delimiter.encode()
    after = columns.count - 1 - columns.label
    for part in parts_of(files, 1):
        for _, line in numbered_lines(*text_of(part, columns.header)):
            if b'"' not in line:  # the fast path, which only splits off the label
                if line.count(delimiter) == columns.count - 1:
                    cell = line.rsplit(delimiter, after + 1)[-after - 1]
                    yield cell.decode(errors="replace").strip()
                continue
            try:
                row = columns.cells(line)
            except ValueError:
                continue  # reported when the line is converted
            if len(row) == columns.count:
                yield row[columns.label].strip()


class Numbers:
    """CSV: all columns but the label are the float32 feature `x`."""

    def __init__(self, files: Sequence[str], label: str | None = None) -> None:
        """Read the first lines. FileError, GraphError: they cannot be read, or are invalid."""
        self.files = facts_of(files)
        self._columns, self._first = columns_of(self.files, ",", label, numeric=True)
        self.classes = self._columns.classes
        place = self._columns.label
        self._others = [n for n in range(self._columns.count) if n != place]
        self.features = {"x": Feature("float32", (len(self._others),))} | _label(self._columns)

    def parts(self) -> list[SourcePart]:
        """Return byte ranges of lines."""
        record = 4 * self._columns.count + 2 * OVERHEAD
        return parts_of(self.files, record / (len(self._first) + 1))

    def read(self, part: SourcePart, problems: Problems) -> Iterator[Mapping[str, Any]]:
        """Yield the numbers and the label of each line."""
        begin, text = text_of(part, self._columns.header)
        whole = self._parsed(text)
        if whole is None:
            yield from self._one_by_one(part.file, begin, text, problems)
            return
        place = self._columns.label
        inputs = _float32(whole[:, self._others])
        if place is None:
            yield from ({"x": x} for x in inputs)
            return
        kind = np.float32 if self._columns.label_type == "float32" else np.int64
        for x, label in zip(inputs, whole[:, place].astype(kind).tolist(), strict=True):
            yield {"x": x, "label": label}

    def _parsed(self, text: bytes) -> Array | None:
        """Return all numbers of a text, or None if any line is invalid."""
        columns, label = self._columns, self._columns.label
        if not text.strip():
            return np.empty((0, columns.count))
        names: dict[int | str, Callable[[str], float]] = {}
        if label is not None and columns.label_type == "class":
            names[label] = lambda name: float(columns.places[name.strip()])
        try:
            array: Array = np.loadtxt(
                io.BytesIO(text), delimiter=",", comments=None, quotechar='"', ndmin=2,
                converters=names or None, encoding="utf-8",
            )  # fmt: skip
        except (ValueError, KeyError, UnicodeDecodeError):
            return None
        if array.shape[1] != columns.count:
            return None
        if label is not None and columns.label_type == "int64":
            values = array[:, label]
            if not (np.abs(values) < 2**53).all() or (values != np.rint(values)).any():
                return None  # not an integer, or not exact as a float
        return array

    def _one_by_one(
        self, file: str, begin: int, text: bytes, problems: Problems
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the same as `read`, and report invalid lines."""
        columns = self._columns
        for offset, line in numbered_lines(begin, text):
            try:
                row = columns.cells(line)
                wrong = (n for n in self._others if n < len(row) and not is_number(row[n]))
                reason = columns.problem(row) or next(
                    (f"column {n}, {row[n][:40]!r}, is not a number" for n in wrong), ""
                )
            except ValueError as error:
                reason = f"not UTF-8 text ({error})"
            if reason:
                problems.take(Problem(file, reason, offset))
                continue
            x = _float32(np.array([float(row[number]) for number in self._others]))
            yield {"x": x} | ({} if columns.label is None else {"label": columns.value(row)})


class Texts:
    """Tab-separated text; each column is a string feature named `text` or as in the header."""

    def __init__(self, files: Sequence[str], label: str | None = None) -> None:
        """Read the first lines. FileError, GraphError: they cannot be read, or are invalid."""
        self.files = facts_of(files)
        self._columns, _ = columns_of(self.files, "\t", label, numeric=False)
        self.classes = self._columns.classes
        columns = self._columns
        others = [n for n in range(columns.count) if n != columns.label]
        named = None if columns.header is None else columns.cells(columns.header)
        self._names = {
            n: named[n].strip() if named else f"text_{place}" if len(others) > 1 else "text"
            for place, n in enumerate(others, 1)
        }
        texts = {name: Feature("string") for name in self._names.values()}
        self.features = texts | _label(columns)

    def parts(self) -> list[SourcePart]:
        """Return byte ranges of lines."""
        return parts_of(self.files, 1.5)

    def read(self, part: SourcePart, problems: Problems) -> Iterator[Mapping[str, Any]]:
        """Yield the texts and the label of each line."""
        columns = self._columns
        for offset, line in numbered_lines(*text_of(part, columns.header)):
            try:
                row = columns.cells(line)
                reason = columns.problem(row)
            except ValueError as error:
                reason = f"not UTF-8 text ({error})"
            if reason:
                problems.take(Problem(part.file, reason, offset))
                continue
            values: dict[str, Any] = {name: row[n].encode() for n, name in self._names.items()}
            yield values if columns.label is None else {**values, "label": columns.value(row)}


def _label(columns: Columns) -> dict[str, Feature]:
    if columns.label is None:
        return {}
    return {"label": Feature("float32" if columns.label_type == "float32" else "int64")}


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):  # overflow becomes Inf, as in TensorFlow
        return values.astype(np.float32)
