"""Lines of numbers or of text, with a label in one column -> records."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.records.columns import Columns, columns_of
from deploykit.records.features import Feature
from deploykit.records.lines import each_line, parts_of, text_of
from deploykit.records.record_source import Problem, Problems, SourcePart, facts_of
from deploykit.storage.tables import is_number
from deploykit.transforms.core.tensors import Array
from deploykit.transforms.core.tfrecord import OVERHEAD


class Numbers:
    """CSV: all columns but the label are the float32 feature `x`."""

    def __init__(self, files: Sequence[str], label: str | None = None) -> None:
        """Look at the first lines. FileError, GraphError: they cannot be read, or make no sense."""
        self.files = facts_of(files)
        self._columns, self._first = columns_of(self.files, ",", label, numeric=True)
        self.classes = self._columns.classes
        place = self._columns.label
        self._others = [n for n in range(self._columns.count) if n != place]
        self.features = {"x": Feature("float32", (len(self._others),))} | _label(self._columns)

    def parts(self) -> list[SourcePart]:
        """Return runs of lines."""
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
        """Return all numbers of a text, or None where something in it is not as it should be."""
        columns, label = self._columns, self._columns.label
        if not text.strip():
            return np.empty((0, columns.count))
        names: dict[int | str, Callable[[str], float]] = {}
        if label is not None and columns.label_type == "class":
            names[label] = self._number
        try:
            found: Array = np.loadtxt(
                io.BytesIO(text), delimiter=",", comments=None, quotechar='"', ndmin=2,
                converters=names or None, encoding="utf-8",
            )  # fmt: skip
        except (ValueError, KeyError, UnicodeDecodeError):
            return None
        if found.shape[1] != columns.count:
            return None
        if label is not None and columns.label_type == "int64":
            values = found[:, label]
            if not (np.abs(values) < 2**53).all() or (values != np.rint(values)).any():
                return None  # not whole, or not exact as a float
        return found

    def _number(self, name: str) -> float:
        return float(self._columns.places[name.strip()])

    def _one_by_one(
        self, file: str, begin: int, text: bytes, problems: Problems
    ) -> Iterator[Mapping[str, Any]]:
        """Yield what `read` yields, and find the lines that are wrong."""
        columns = self._columns
        for offset, line in each_line(begin, text):
            try:
                row = columns.cells(line)
                reason = columns.problem(row) or self._no_number(row)
            except ValueError as error:
                reason = f"not UTF-8 text ({error})"
            if reason:
                problems.take(Problem(file, reason, offset))
                continue
            x = _float32(np.array([float(row[number]) for number in self._others]))
            yield {"x": x} | ({} if columns.label is None else {"label": columns.value(row)})

    def _no_number(self, row: Sequence[str]) -> str:
        for number in self._others:
            if not is_number(row[number]):
                return f"column {number}, {row[number][:40]!r}, is no number"
        return ""


class Texts:
    """Lines of texts between tabs, each a string feature: `text`, or as a header calls them."""

    def __init__(self, files: Sequence[str], label: str | None = None) -> None:
        """Look at the first lines. FileError, GraphError: they cannot be read, or make no sense."""
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
        """Return runs of lines."""
        return parts_of(self.files, 1.5)

    def read(self, part: SourcePart, problems: Problems) -> Iterator[Mapping[str, Any]]:
        """Yield the texts and the label of each line."""
        columns = self._columns
        for offset, line in each_line(*text_of(part, columns.header)):
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
    with np.errstate(over="ignore"):  # beyond float32 is Inf, as TensorFlow reads it
        return values.astype(np.float32)
