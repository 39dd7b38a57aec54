"""Writes columns as text: CSV, and JSON Lines."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson

from deploykit.batch_inference.formats.part_table import Columns, readable_texts_of
from deploykit.storage.table_formats.arrow_types import element_type, with_values
from deploykit.transforms.common.errors import GraphError

_AT_ONCE = 256  # rows converted at a time


def csv_pieces(columns: Columns) -> Iterator[bytes]:
    r"""Yield a header and a line for each row, as Python's csv module writes them, in UTF-8.

    A row with several values has one CSV column per value: `X[0]`, or `X[0,1]` with two dimensions.
    Numbers have the fewest digits that restore the exact value. Bytes that are not UTF-8 become
    `\xff`. In columns of the data, null is an empty cell, and a list is JSON.
    """
    yield _lines([[label for name, array in columns.items() for label in _labels(name, array)]])
    for parts in _groups(columns, _cells):
        yield _lines([[text for item in row for text in item] for row in zip(*parts, strict=True)])


def jsonl_pieces(columns: Columns) -> Iterator[bytes]:
    r"""Yield an object for each row, in UTF-8; a row of several values is a list.

    Numbers have the fewest digits that restore the exact value. JSON has no NaN and no infinity:
    they become null. Bytes that are not UTF-8 become `\xff`. GraphError: a number is complex.
    """
    for parts in _groups(columns, _values):
        for row in zip(*parts, strict=True):
            record = dict(zip(columns, row, strict=True))
            yield orjson.dumps(record, _plain, orjson.OPT_SERIALIZE_NUMPY) + b"\n"


def _groups(columns: Columns, convert: Callable[[str, Any], Any]) -> Iterator[list[Any]]:
    """Yield the converted columns of a few rows at a time."""
    for start in range(0, len(next(iter(columns.values()))), _AT_ONCE):
        yield [convert(name, item[start : start + _AT_ONCE]) for name, item in columns.items()]


def _labels(name: str, array: Any) -> list[str]:
    if not isinstance(array, np.ndarray) or array.ndim == 1:
        return [name]
    return [f"{name}[{','.join(map(str, place))}]" for place in np.ndindex(array.shape[1:])]


def _cells(name: str, array: Any) -> list[list[str]]:
    """Return the texts of each row for CSV."""
    if not isinstance(array, np.ndarray):
        return [[_cell(value)] for value in _items(array)]
    if array.dtype == object:
        texts = readable_texts_of(array)
    elif array.dtype.kind == "f" and array.itemsize < 8:
        texts = list(map(str, array.ravel()))  # str() of a NumPy scalar respects its precision
    else:
        texts = list(map(str, array.ravel().tolist()))
    width = int(np.prod(array.shape[1:]))
    return [texts[row * width : (row + 1) * width] for row in range(len(array))]


def _cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain, ensure_ascii=False)
    return "" if value is None else str(_plain(value))


def _items(column: Any) -> list[Any]:
    """Return the values of an Arrow column; smaller floats than float64 have few digits."""
    import pyarrow as pa

    if element_type(column.type) in (pa.float16(), pa.float32()):
        for type_ in (pa.string(), pa.float64()):
            column = column.cast(with_values(column.type, type_))
    try:
        return list(column.to_pylist())
    except OverflowError:  # times outside of those of Python
        return list(column.cast(with_values(column.type, pa.string())).to_pylist())


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode(errors="backslashreplace")


def _values(name: str, column: Any) -> Any:
    """Return the value of each row, as orjson writes it."""
    if not isinstance(column, np.ndarray):
        return _items(column)
    if column.dtype == object:
        return np.array(readable_texts_of(column), object).reshape(column.shape).tolist()
    if column.dtype.kind == "c":
        raise GraphError("jsonl-type", name=name, dtype=column.dtype)
    return np.ascontiguousarray(column)


def _plain(value: Any) -> Any:
    """Return a value that JSON does not have, such as bytes or a date, as one that it has."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
