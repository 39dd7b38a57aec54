"""Which column of a table is the label, what kind of label it is, and whether there is a header."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deploykit.records.lines import each_line, first_lines, parts_of, text_of
from deploykit.records.record_source import Facts, none_found
from deploykit.storage.tables import is_number
from deploykit.transforms.core.errors import GraphError, nearest

_INT64 = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Columns:
    """The columns of all files of a table; `label` is None where it has none."""

    delimiter: str
    count: int
    label: int | None
    label_type: str  # int64, float32, or class
    header: bytes | None = None
    places: Mapping[str, int] = field(default_factory=dict)  # number of a class by its name

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by number."""
        return tuple(self.places)

    def cells(self, line: bytes) -> list[str]:
        """Return the cells of a line. ValueError: it is no text."""
        return cells(line, self.delimiter)

    def problem(self, row: Sequence[str]) -> str:
        """Say what is wrong with the number of cells and the label of a row, or nothing."""
        if len(row) != self.count:
            return f"{len(row)} columns, expected {self.count} as in the first line"
        if self.label is None:
            return ""
        label = row[self.label].strip()
        if not label:
            return "the label is missing"
        if self.label_type == "class":
            return "" if label in self.places else f"the class {label[:40]!r} is new to this file"
        if self.label_type == "float32":
            return "" if is_number(label) else f"the label {label[:40]!r} is no number"
        return "" if is_whole(label) else f"the label {label[:40]!r} is no whole number"

    def value(self, row: Sequence[str]) -> float | int:
        """Return the label of a row without a problem."""
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
        files: all files of the table; each may begin with the same header.
        delimiter: between two cells.
        label: name or number of the label's column, from 0; `none`; default: the last one.
        numeric: whether a line without a number can only be a header.
    """
    lines = next((found for path in files if (found := first_lines(path, 2))), [])
    if not lines:
        raise none_found(files, "the files are empty")
    where = next(iter(files))
    first = _cells_or_fail(where, lines[0], delimiter)
    place = None if len(first) == 1 and label is None else _place(where, first, label)
    others = [cell for number, cell in enumerate(first) if number != place]
    named = label is not None and label != "none" and not label.lstrip("-").isdecimal()
    header = named or (numeric and bool(others) and not all(map(is_number, others)))
    if header and len(lines) < 2:
        raise none_found(files, "there is a header, but no line below it")
    row = _cells_or_fail(where, lines[1], delimiter) if header else first
    columns = Columns(delimiter, len(first), place, "", lines[0] if header else None)
    if len(row) != len(first):
        raise GraphError("csv-problem", source=where, reason=columns.problem(row))
    if place is None:
        return columns, lines[header]
    sample = row[place].strip() or next(filter(None, _labels(files, columns)), "")
    kind = "int64" if is_whole(sample) else "float32" if is_number(sample) else "class"
    places = _classes(files, columns) if kind == "class" else {}
    return Columns(delimiter, len(first), place, kind, columns.header, places), lines[header]


def cells(line: bytes, delimiter: str) -> list[str]:
    """Return the cells of a line; a quoted one may hold delimiters. ValueError: it is no text."""
    text = line.decode()
    if delimiter == "," and '"' in text:
        try:
            return next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise ValueError(f"quotes: {error}") from None
    return text.split(delimiter)


def is_whole(cell: str) -> bool:
    """Say whether a cell holds a whole number of 64 bits."""
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
    """Return the number of the label's column. GraphError: there is no such column."""
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


def _classes(files: Facts, columns: Columns) -> dict[str, int]:
    """Return the number of each class: its place in the order of the names."""
    names = sorted({name for name in _labels(files, columns) if name})
    return {name: number for number, name in enumerate(names)}


def _labels(files: Facts, columns: Columns) -> Iterator[str]:
    assert columns.label is not None
    delimiter = columns.delimiter.encode()
    after = columns.count - 1 - columns.label
    for part in parts_of(files, 1):
        for _, line in each_line(*text_of(part, columns.header)):
            if b'"' not in line:  # the short way, which cuts off the label alone
                if line.count(delimiter) == columns.count - 1:
                    cell = line.rsplit(delimiter, after + 1)[-after - 1]
                    yield cell.decode(errors="replace").strip()
                continue
            try:
                row = columns.cells(line)
            except ValueError:
                continue  # said when the line is converted
            if len(row) == columns.count:
                yield row[columns.label].strip()
