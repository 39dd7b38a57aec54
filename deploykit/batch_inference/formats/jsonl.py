"""Writes columns as JSON Lines, one object per row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from deploykit.batch_inference.formats.part_table import Columns, readable_texts_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

_AT_ONCE = 256  # rows converted at a time


def pieces(columns: Columns) -> Iterator[bytes]:
    r"""Yield an object for each row, in UTF-8; a row of several values is a list.

    Numbers have the fewest digits that restore the exact value. JSON has no NaN and no infinity:
    they become null. Bytes that are not UTF-8 become `\xff`. GraphError: a number is complex.
    """
    rows = len(next(iter(columns.values())))
    for start in range(0, rows, _AT_ONCE):
        parts = [_values(name, item[start : start + _AT_ONCE]) for name, item in columns.items()]
        for row in zip(*parts, strict=True):
            record = dict(zip(columns, row, strict=True))
            yield orjson.dumps(record, _plain, orjson.OPT_SERIALIZE_NUMPY) + b"\n"


def _values(name: str, column: Any) -> Any:
    """Return the value of each row, as orjson writes it."""
    if not isinstance(column, np.ndarray):
        return column.to_pylist()
    if column.dtype == object:
        return np.array(readable_texts_of(column), object).reshape(column.shape).tolist()
    if column.dtype.kind == "c":
        raise GraphError("jsonl-type", name=name, dtype=column.dtype)
    return np.ascontiguousarray(column)


def _plain(value: Array | bytes | object) -> Any:
    """Return a value that orjson does not write itself."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.tolist() if isinstance(value, np.ndarray) else str(value)
