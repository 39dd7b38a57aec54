"""Converts columns of Arrow into the arrays that a model takes, and finds the rows that do not fit.

A column of lists is an axis more. Every conversion is exact, or the row is invalid.
"""

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from deploykit.records.examples import Feature
from deploykit.storage import csv_files
from deploykit.storage.table_formats.arrow_types import is_list
from deploykit.storage.table_formats.table_format import Bad
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array, numpy_type
from deploykit.verification.fitting import in_type

_WORDS = {b"true": 1, b"false": 0}
_MAX_DIGITS = 20  # of uint64
_NOT_FINITE = [f"{sign}{word}" for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")]
_SHOWN = 40  # characters of a value in a reason


def column_values(name: str, column: Any, feature: Feature) -> tuple[Array, Bad]:
    """Return the values of a column, [rows, *shape], and the invalid rows, whose values are any.

    If the feature has a variable size, each value is an array of its own, in an object array.
    """
    bad: Bad = dict.fromkeys(_nulls(column), f"column '{name}' is null")
    good = np.array([row for row in range(len(column)) if row not in bad], np.int64)
    valid = column.drop_null()
    if is_list(column.type):
        valid, shapes, kept, wrong = _fitting_lists(name, valid, feature)
        bad |= {int(good[row]): reason for row, reason in wrong.items()}
        good = good[kept]
        found, wrong = _of_lists(name, valid, shapes, feature)
    else:
        found, wrong = flat_values(name, valid, feature.dtype)
        found = found.reshape(len(found), *(size or 1 for size in feature.shape))
    bad |= {int(good[row]): reason for row, reason in wrong.items()}
    if not bad:
        return found, bad
    result = np.zeros((len(column), *found.shape[1:]), found.dtype)
    result[good] = found
    return result, bad


def flat_values(name: str, column: Any, dtype: str) -> tuple[Array, Bad]:
    """Return a column without lists and nulls as an array of a dtype, and the invalid rows."""
    import pyarrow as pa

    if dtype == "string":
        return _texts(column), {}
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_decimal(column.type):
        if "int" in dtype:
            return _whole_decimals(name, column, dtype)
        column = column.cast(pa.float64())
    array = np.asarray(column.to_numpy(zero_copy_only=False))
    if not dtype:
        return array, {}
    try:
        return in_type(name, array, dtype), {}
    except GraphError:
        return _one_by_one(name, array, dtype)


def text_numbers(name: str, cells: Any, dtype: str) -> tuple[Any, Bad]:
    """Return cells of a CSV file, as bytes, as an Arrow column of numbers, and the invalid rows.

    An empty cell is null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = pc.replace_with_mask(
        cells, pc.equal(pc.binary_length(cells), 0), pa.scalar(None, cells.type)
    )
    type_ = pa.bool_() if dtype == "bool" else pa.float64()
    if is_whole := "int" in dtype:
        type_ = pa.uint64() if dtype == "uint64" else pa.int64()
    has_hex = pc.any(pc.match_substring(cells, "0x", ignore_case=True), min_count=0).as_py()
    for kind in () if is_whole and has_hex else dict.fromkeys((type_, pa.float64())):
        try:
            texts = pc.utf8_trim_whitespace(cells.cast(pa.string()))
            found = pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
        if kind == type_ == pa.float64():
            return _with_checked(name, cells, texts, found)
        # Floats from 2**53 on may be rounded integers.
        if kind != pa.float64() or _are_below(found, 2.0**53):
            return found, {}
    return _numbers_one_by_one(name, cells, type_)


def _with_checked(name: str, cells: Any, texts: Any, floats: Any) -> tuple[Any, Bad]:
    """Return floats that Arrow read, and the invalid rows among those that are not finite.

    These may be beyond float64, or have a text that only Arrow reads, such as nan(1).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.is_finite(floats), min_count=0).as_py():
        return floats, {}
    is_usual = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(_NOT_FINITE))
    is_odd = pc.fill_null(pc.invert(pc.or_(pc.is_finite(floats), is_usual)), False)
    rows = np.flatnonzero(np.asarray(is_odd.to_numpy(zero_copy_only=False)))
    checked, wrong = _numbers_one_by_one(name, cells.take(pa.array(rows)), pa.float64())
    bad = {int(rows[row]): reason for row, reason in wrong.items()}
    return pc.replace_with_mask(floats, is_odd, checked), bad


def _are_below(floats: Any, limit: float) -> bool:
    """Return whether all floats are numbers of a smaller size."""
    import pyarrow.compute as pc

    return bool(pc.all(pc.less(pc.abs(floats), limit), min_count=0).as_py())


def _numbers_one_by_one(name: str, cells: Any, type_: Any) -> tuple[Any, Bad]:
    """Return cells as integers of an Arrow type or as floats; no integer becomes a float."""
    import pyarrow as pa

    is_whole = pa.types.is_integer(type_)
    words = _WORDS if pa.types.is_boolean(type_) else {}
    type_ = type_ if is_whole else pa.float64()
    numbers: list[float | None] = []
    bad: Bad = {}
    for row, cell in enumerate(cells.to_pylist()):
        number: float | None = 0
        try:
            number = None if cell is None else _number(cell, is_whole, words)
            pa.scalar(number, type_)
        except (ValueError, OverflowError) as error:
            reason = str(error)
            if is_whole and _is_float(cell):
                reason = f"expected {type_}"
            bad[row], number = f"column '{name}' has {_shown(cell)}, {reason}", 0
        numbers.append(number)
    return pa.array(numbers, type_), bad


def _number(cell: bytes, is_whole: bool, words: Mapping[bytes, int]) -> float:
    """Return a number in text; with `is_whole`, an exact integer. ValueError: it is none."""
    if cell.lower() in words:
        return words[cell.lower()]
    text = cell.decode(errors="replace")
    number = csv_files.number(text)
    return _whole(text) if is_whole else number


def _whole(text: str) -> int:
    """Return an integer in text such as `1e3` or `9007199254740993.0`. ValueError: it is none."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError from None
    if number.is_finite() and number.adjusted() <= _MAX_DIGITS and number == int(number):
        return int(number)
    raise ValueError


def _is_float(cell: bytes) -> bool:
    return csv_files.is_number(cell)


def _whole_decimals(name: str, column: Any, dtype: str) -> tuple[Array, Bad]:
    """Return decimals as an array of integers, which are exact, and the rows with a fraction."""
    import pyarrow as pa

    type_ = pa.uint64() if dtype == "uint64" else pa.int64()
    bad: Bad = {}
    try:
        column = column.cast(type_)
    except pa.ArrowInvalid:
        numbers = []
        for row, cell in enumerate(column.to_pylist()):
            try:
                numbers.append(pa.array([cell], column.type).cast(type_)[0].as_py())
            except pa.ArrowInvalid:
                numbers.append(0)
                bad[row] = f"column '{name}' has {_shown(cell)}, expected {dtype}"
        column = pa.array(numbers, type_)
    found, wrong = flat_values(name, column, dtype)
    return found, wrong | bad


def _nulls(column: Any) -> Sequence[int]:
    """Return the numbers of the rows without a value."""
    if not column.null_count:
        return []
    rows = np.flatnonzero(np.asarray(column.is_null().to_numpy(zero_copy_only=False)))
    return list(map(int, rows))


def _texts(column: Any) -> Array:
    """Return strings as an object array of bytes."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    result = np.empty(len(column), object)
    result[:] = column.cast(pa.large_binary() if large else pa.binary()).to_numpy(
        zero_copy_only=False
    )
    return result


def _one_by_one(name: str, array: Array, dtype: str) -> tuple[Array, Bad]:
    result = np.zeros(len(array), numpy_type(dtype))
    bad: Bad = {}
    for row in range(len(array)):
        try:
            result[row : row + 1] = in_type(name, array[row : row + 1], dtype)
        except GraphError as error:
            reason = error.fields.get("misfit", f"is not of {dtype}")
            bad[row] = f"column '{name}': the value {_shown(array[row])} {reason}"
    return result, bad


def _fitting_lists(name: str, column: Any, feature: Feature) -> tuple[Any, Array, Array, Bad]:
    """Return the lists that fit a feature and have no nulls, their shapes and rows, and the others.

    The lists of a row must have one length on each level.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    shapes, is_ragged, nulls = _shapes(column)
    bad: Bad = {}
    for row in np.flatnonzero(nulls | is_ragged):
        what = "a null in its list" if nulls[row] else "lists of several lengths in its list"
        bad[int(row)] = f"column '{name}' has {what}"
    if shapes.shape[1] > 1:
        wanted = [-1 if size is None else size for size in feature.shape]
        is_empty = np.zeros(len(shapes), bool)  # of which inner sizes are unknown
        for level, size in enumerate(wanted):
            if size >= 0:
                shapes[is_empty, level] = size
                for row in np.flatnonzero(shapes[:, level] != size):
                    got, expected = _sizes(shapes[row]), _sizes(wanted)
                    reason = f"column '{name}' has the shape {got}, expected {expected}"
                    bad.setdefault(int(row), reason)
            is_empty |= shapes[:, level] == 0
    elif None not in feature.shape:
        size = math.prod(size or 0 for size in feature.shape)
        for row in np.flatnonzero(shapes[:, 0] != size):
            reason = f"column '{name}' has {shapes[row, 0]} values, expected {size}"
            bad.setdefault(int(row), reason)
    kept = np.array([row for row in range(len(column)) if row not in bad], np.int64)
    return (pc.take(column, pa.array(kept)) if bad else column), shapes[kept], kept, bad


def _sizes(shape: Sequence[int] | Array) -> str:
    return f"[{', '.join('?' if size < 0 else str(size) for size in shape)}]"


def _shapes(column: Any) -> tuple[Array, Array, Array]:
    """Return the size of each row on each level, whether one varies, and whether a value is null.

    The size on a level without lists is 0.
    """
    count = len(column)
    rows, shapes = np.arange(count), []
    nulls, is_ragged = np.zeros(count, bool), np.zeros(count, bool)
    while is_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        sizes = np.asarray(lengths).astype(np.int64)
        nulls[rows[_nulls(column)]] = True
        largest, smallest = np.zeros(count, np.int64), np.full(count, np.iinfo(np.int64).max)
        np.maximum.at(largest, rows, sizes)
        np.minimum.at(smallest, rows, sizes)
        is_ragged |= smallest < largest
        shapes.append(largest)
        rows, column = np.repeat(rows, sizes), column.flatten()
    nulls[rows[_nulls(column)]] = True
    return np.stack(shapes, 1), is_ragged, nulls


def _of_lists(name: str, column: Any, shapes: Array, feature: Feature) -> tuple[Array, Bad]:
    """Return lists that fit a feature as an array; `bad` are rows with a value that does not."""
    flat = column
    while is_list(flat.type):
        flat = flat.flatten()
    values, wrong = flat_values(name, flat, feature.dtype)
    lengths = shapes.prod(1)
    of_value = np.repeat(np.arange(len(column)), lengths)
    bad = {int(of_value[place]): reason for place, reason in wrong.items()}
    if None not in feature.shape:
        return values.reshape(len(column), *feature.shape), bad
    result = np.empty(len(column), object)
    ends = np.cumsum(lengths)
    for row, (end, length) in enumerate(zip(ends, lengths, strict=True)):
        result[row] = values[end - length : end].reshape(shapes[row])
    return result, bad


def _shown(value: Any) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return repr(text[:_SHOWN]) if isinstance(value, bytes) else text[:_SHOWN]
