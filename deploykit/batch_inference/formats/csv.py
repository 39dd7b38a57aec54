"""Writes columns as CSV, one line per row."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deploykit.batch_inference.formats.part_table import Columns, readable_texts_of

_AT_ONCE = 256  # rows converted at a time


def pieces(columns: Columns) -> Iterator[bytes]:
    r"""Yield a header and a line for each row, as Python's csv module writes them, in UTF-8.

    A row with several values has one CSV column per value: `X[0]`, or `X[0,1]` with two dimensions.
    Numbers have the fewest digits that restore the exact value. Bytes that are not UTF-8 become
    `\xff`. In columns of the data, null is an empty cell, and a list is JSON.
    """
    yield _lines([[label for name, array in columns.items() for label in _labels(name, array)]])
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, _AT_ONCE):
        parts = [_texts(array[start : start + _AT_ONCE]) for array in columns.values()]
        yield _lines([[text for item in row for text in item] for row in zip(*parts, strict=True)])


def _labels(name: str, array: Any) -> list[str]:
    if not isinstance(array, np.ndarray) or array.ndim == 1:
        return [name]
    return [f"{name}[{','.join(map(str, place))}]" for place in np.ndindex(array.shape[1:])]


def _texts(array: Any) -> list[list[str]]:
    """Return the values of each row."""
    if not isinstance(array, np.ndarray):
        return [[_cell(value)] for value in array.to_pylist()]
    if array.dtype == object:
        texts = readable_texts_of(array)
    elif array.dtype.kind == "f" and array.itemsize < 8:
        texts = list(map(str, array.ravel()))  # str() of a NumPy scalar respects its precision
    else:
        texts = list(map(str, array.ravel().tolist()))
    width = int(np.prod(array.shape[1:]))
    return [texts[row * width : (row + 1) * width] for row in range(len(array))]


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, list | dict):
        return json.dumps(value, default=_cell, ensure_ascii=False)
    return "" if value is None else str(value)


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")
