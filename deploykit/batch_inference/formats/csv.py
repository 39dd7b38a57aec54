"""Writes columns as CSV, one line per row."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from deploykit.batch_inference.formats.part_table import readable_texts_of
from deploykit.transforms.ir.tensors import Array

_AT_ONCE = 256  # rows converted at a time


def pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    r"""Yield a header and a line for each row, as Python's csv module writes them, in UTF-8.

    A row with several values has one CSV column per value: `X[0]`, or `X[0,1]` with two dimensions.
    Numbers have the fewest digits that restore the exact value. Bytes that are not UTF-8 become
    `\xff`.
    """
    yield _lines([[label for name, array in columns.items() for label in _labels(name, array)]])
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, _AT_ONCE):
        stop = min(start + _AT_ONCE, rows)
        parts = [_texts(array[start:stop]) for array in columns.values()]
        yield _lines([[text for item in row for text in item] for row in zip(*parts, strict=True)])


def _labels(name: str, array: Array) -> list[str]:
    if array.ndim == 1:
        return [name]
    return [f"{name}[{','.join(map(str, place))}]" for place in np.ndindex(array.shape[1:])]


def _texts(array: Array) -> list[list[str]]:
    """Return the values of each row."""
    if array.dtype == object:
        texts = readable_texts_of(array)
    elif array.dtype.kind == "f" and array.itemsize < 8:
        texts = list(map(str, array.ravel()))  # str() of a NumPy scalar respects its precision
    else:
        texts = list(map(str, array.ravel().tolist()))
    width = int(np.prod(array.shape[1:]))
    return [texts[row * width : (row + 1) * width] for row in range(len(array))]


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")
