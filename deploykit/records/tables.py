"""Sources of records from CSV or text lines, with label column, label type and header."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deploykit.records.examples import Feature
from deploykit.records.lines import (
    csv_parts,
    first_lines,
    numbered_lines,
    parts_of,
    start_of,
    text_of,
)
from deploykit.records.record_source import (
    INT64,
    Batch,
    Problem,
    SourcePart,
    facts_of,
    no_records_error,
)
from deploykit.storage import csv_files
from deploykit.storage.csv_files import CsvLayout, HeaderRule
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import OVERHEAD

_RULE = 2  # how the rows of CSV are found; another one may find others in the same files


@dataclass(frozen=True)
class Columns:
    """The columns of all files of a table; `label` is None without a label column."""

    layout: CsvLayout
    label: int | None
    label_type: str = ""  # int64, float32, or class
    places: Mapping[str, int] = field(default_factory=dict)  # class number by name

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names, by number."""
        return tuple(self.places)

    @property
    def others(self) -> list[int]:
        """The columns that are not the label."""
        return [n for n in range(self.layout.count) if n != self.label]

    def rows(
        self,
        file: str,
        found: Iterable[tuple[int, bytes]],
        parse: Callable[[list[str]], Any],
        only_feeds: bool = False,
    ) -> tuple[list[Any], dict[str, list[Any]], list[Problem]]:
        """Return the parsed cells and the labels of valid rows, and the problems of the others.

        `found` are the offset and the text of each row; with `only_feeds`, quotes have no meaning.
        """
        values, problems = [], []
        labels: list[float | int] = []
        for offset, text in found:
            try:
                row = self.layout.cells(text, is_quoted=not only_feeds)
                value = parse(row)
                labels += [] if self.label is None else [self.value(row)]
            except ValueError as error:
                problems.append(Problem(file, str(error), offset, only_feeds))
                continue
            values.append(value)
        return values, {} if self.label is None else {"label": labels}, problems

    def value(self, row: Sequence[str]) -> float | int:
        """Return the label of a row. ValueError, with a reason: it is none."""
        assert self.label is not None
        label = row[self.label].strip()
        if not label:
            raise ValueError(csv_files.no_label(self.label))
        if self.label_type == "class":
            if label not in self.places:
                raise ValueError(f"the class {label[:40]!r} is unknown")
            return self.places[label]
        if self.label_type == "float32":
            return csv_files.floats(row, [self.label])[0]
        if not csv_files.is_whole(label, INT64):
            raise ValueError(f"the label {label[:40]!r} is not an integer")
        return int(label)

    def with_label(self, labels: Callable[[], Iterator[str]]) -> "Columns":
        """Return the columns with the type of the label, which all `labels` decide.

        Without numbers, the label is a class.
        """
        if self.label is None:
            return self
        sample = next(filter(None, labels()), "")
        if csv_files.is_whole(sample, INT64):
            return replace(self, label_type="int64")
        if csv_files.is_number(sample):
            return replace(self, label_type="float32")
        names = sorted({name for name in labels() if name})
        places = {name: number for number, name in enumerate(names)}
        return replace(self, label_type="class", places=places)


def label_column(where: str, first: Sequence[str], label: str | None) -> int | None:
    """Return the number of the label column, by default the last; None: there is none.

    GraphError: the column does not exist.
    """
    if label == "none" or (label is None and len(first) == 1):
        return None
    if label is None or _is_position(label):
        number = -1 if label is None else int(label)
        if not -len(first) <= number < len(first):
            raise GraphError("csv-column-number", source=where, number=number, count=len(first))
        return number % len(first)
    names = [cell.strip() for cell in first]
    if label not in names:
        hint = nearest(label, names) or f": {', '.join(names)[:80]}"
        raise GraphError("missing", source=where, kind="column", name=label, hint=hint)
    return names.index(label)


def _is_position(label: str) -> bool:
    return label.lstrip("-").isdecimal()


class Numbers:
    """CSV: all columns but the label are the float32 feature `x`."""

    def __init__(
        self, files: Sequence[str], label: str | None = None, header: HeaderRule = "auto"
    ) -> None:
        """Read the first rows. FileError, GraphError: they cannot be read, or are invalid."""
        self.files = facts_of(files)
        is_named = label is not None and label != "none" and not _is_position(label)
        rule = "yes" if is_named and header == "auto" else header
        layout, self._starts = csv_files.shared_layout(files, rule, only_first=True)
        layout.tell(files[0])
        self._ranges = csv_parts({path: self.files[path] for path in self._starts})
        place = label_column(files[0], layout.names, label)
        self._columns = Columns(layout, place)
        self._columns = columns = self._columns.with_label(self._labels)
        self.classes = columns.classes
        self.features = {"x": Feature("float32", (len(columns.others),))} | _label(columns)
        self._first = self._first_row()

    @property
    def rule(self) -> dict[str, Any]:
        """What decides which rows the files have, as plain data."""
        layout = self._columns.layout
        return {"rule": _RULE, "header": list(layout.header), "separator": layout.separator}

    def parts(self) -> list[SourcePart]:
        """Return byte ranges of rows."""
        record = 4 * self._columns.layout.count + 2 * OVERHEAD
        ratio = record / (len(self._first) + 1)
        return [replace(part, bytes=round(part.bytes * ratio)) for part in self._ranges]

    def read(self, part: SourcePart) -> Batch:
        """Return the numbers and the labels of some rows."""
        columns, place = self._columns, self._columns.label
        begin, text = text_of(part, self._starts[part.file])
        whole = self._parsed(text)
        if whole is None:
            found = ((record.offset, record.text) for record in csv_files.split(text, begin))
            rows, label, problems = columns.rows(
                part.file, found, lambda row: np.array(csv_files.floats(row, columns.others))
            )
            return Batch({"x": list(map(_float32, rows)), **label}, problems)
        inputs = _float32(whole[:, columns.others])
        if place is None:
            return Batch({"x": inputs})
        kind = np.float32 if columns.label_type == "float32" else np.int64
        return Batch({"x": inputs, "label": whole[:, place].astype(kind).tolist()})

    def _parsed(self, text: bytes) -> Array | None:
        """Return all numbers of a text, or None if any row is invalid."""
        columns, label = self._columns, self._columns.label
        words: dict[int | str, Callable[[str], float]] = {}
        if label is not None and columns.label_type == "class":
            words[label] = lambda name: float(columns.places[name.strip()])
        array = columns.layout.numbers(text, words)
        if array is not None and label is not None and columns.label_type == "int64":
            values = array[:, label]
            if not (np.abs(values) < 2**53).all() or (values != np.rint(values)).any():
                return None  # not an integer, or not exact as a float
        return array

    def _first_row(self) -> bytes:
        for part in self._ranges:
            _, text = text_of(part, self._starts[part.file])
            for record in csv_files.split(text)[:1]:
                return record.text
        raise no_records_error(self._starts, "there is only a header")

    def _labels(self) -> Iterator[str]:
        """Yield the labels of all rows that are not damaged.

        The first row of a file has none if it is bad: it may be a header that the rule does not
        recognise.
        """
        layout, label = self._columns.layout, self._columns.label
        assert label is not None
        separator = layout.separator.encode()
        after = layout.count - 1 - label
        for part in self._ranges:
            first = self._starts[part.file]
            begin, text = text_of(part, first)
            for record in csv_files.split(text, begin):
                if record.offset == first and not self._has_numbers(record.text):
                    continue
                if b'"' not in record.text:  # the fast path, which only splits off the label
                    if record.text.count(separator) == layout.count - 1:
                        cell = record.text.rsplit(separator, after + 1)[-after - 1]
                        yield cell.decode(errors="replace").strip()
                    continue
                with contextlib.suppress(ValueError):  # reported when the row is converted
                    yield layout.cells(record.text)[label].strip()

    def _has_numbers(self, record: bytes) -> bool:
        """Return whether the columns of a row that are not the label are numbers."""
        try:
            csv_files.floats(self._columns.layout.cells(record), self._columns.others)
        except ValueError:
            return False
        return True


class Texts:
    """Tab-separated text; each column is a string feature named `text` or as in the header."""

    def __init__(self, files: Sequence[str], label: str | None = None) -> None:
        """Read the first lines. FileError, GraphError: they cannot be read, or are invalid."""
        self.files = facts_of(files)
        lines = next((found for path in self.files if (found := first_lines(path, 2))), [])
        if not lines:
            raise no_records_error(self.files, "the files are empty")
        where = next(iter(self.files))
        is_named = label is not None and label != "none" and not _is_position(label)
        first = self._cells(where, lines[0])
        if is_named and len(lines) < 2:
            raise no_records_error(self.files, "there is only a header")
        header = lines[0] if is_named else None
        self._starts = {path: start_of(path, header) for path in self.files}
        names = tuple(name.strip() for name in first) if is_named else ()
        layout = CsvLayout(names, len(first), "\t")
        place = label_column(where, first, label)
        self._columns = Columns(layout, place)
        self._columns = columns = self._columns.with_label(self._labels)
        self.classes = columns.classes
        self._names = {
            n: names[n] if names else f"text_{place}" if len(columns.others) > 1 else "text"
            for place, n in enumerate(columns.others, 1)
        }
        texts = {name: Feature("string") for name in self._names.values()}
        self.features = texts | _label(columns)

    @staticmethod
    def _cells(where: str, line: bytes) -> list[str]:
        try:
            return line.decode().split("\t")
        except UnicodeDecodeError:
            raise GraphError("not-text", source=where, what="lines of values") from None

    def parts(self) -> list[SourcePart]:
        """Return byte ranges of lines."""
        return parts_of(self.files, 1.5)

    def read(self, part: SourcePart) -> Batch:
        """Return the texts and the labels of some lines."""
        found = self._lines(part)
        rows, label, problems = self._columns.rows(part.file, found, list, only_feeds=True)
        texts = {name: [row[n].encode() for row in rows] for n, name in self._names.items()}
        return Batch({**texts, **label}, problems)

    def _lines(self, part: SourcePart) -> Iterator[tuple[int, bytes]]:
        return numbered_lines(*text_of(part, self._starts[part.file], only_feeds=True))

    def _labels(self) -> Iterator[str]:
        """Yield the labels of all lines that are not damaged."""
        label = self._columns.label
        assert label is not None
        for part in parts_of(self.files, 1):
            for _, line in self._lines(part):
                with contextlib.suppress(ValueError):  # reported when the line is converted
                    yield self._columns.layout.cells(line, is_quoted=False)[label].strip()


def _label(columns: Columns) -> dict[str, Feature]:
    if columns.label is None:
        return {}
    return {"label": Feature("float32" if columns.label_type == "float32" else "int64")}


def _float32(values: Array) -> Array:
    with np.errstate(over="ignore"):  # overflow becomes Inf, as in TensorFlow
        return values.astype(np.float32)
