"""Converts JSON inputs to arrays of a signature's dtypes.

Row format (`instances`) has one object or value per example, column format (`inputs`) one array
per input. Nested lists are flattened level by level without recursion.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np

from deploykit.serving.protocol.errors import ServingError, refused, shown
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.rest.json_documents import (
    FLOATS,
    INTEGERS,
    is_binary,
    kind,
    narrowed,
    to_bytes,
)
from deploykit.transforms.ir.tensors import MAX_RANK, Array, numpy_type

ROWS, COLUMNS = "instances", "inputs"


def read_inputs(
    document: Mapping[str, Any], inputs: Mapping[str, Tensor]
) -> tuple[dict[str, Array], bool]:
    """Return the inputs of a request, and whether they were in row format.

    ServingError: a value does not match its input's dtype, or lists are ragged.
    """
    if ROWS in document and COLUMNS in document:
        raise refused("json-two-keys", columns=COLUMNS, rows=ROWS)
    if ROWS in document:
        return _read_rows(document[ROWS], inputs), True
    if COLUMNS in document:
        return _read_columns(document[COLUMNS], inputs), False
    raise refused("json-key-missing", columns=COLUMNS, rows=ROWS)


def to_array(alias: str, value: Any, dtype: str) -> Array:
    """Return a value or nested lists of values as an array of TensorFlow's type `dtype`.

    ServingError: a value has another type or exceeds its range, or lists are ragged.
    """
    values, shape = _unfold(alias, value)
    return _array(alias, values, dtype).reshape(shape)


def _read_rows(rows: Any, inputs: Mapping[str, Tensor]) -> dict[str, Array]:
    if type(rows) is not list:
        raise refused("json-rows-not-array", key=ROWS)
    if not rows:
        raise refused("json-rows-empty", key=ROWS)
    named = [_is_named(row) for row in rows]
    if not any(named):
        alias = _only(ROWS, "a plain list, but expecting list of objects", inputs)
        return {alias: _batch(alias, rows, inputs[alias].dtype)}
    first = rows[named.index(True)]
    for number, row in enumerate(rows):
        if not named[number]:
            raise _row_refused(number, "", refused("json-row-not-object", first=named.index(True)))
        for alias in row.keys() - inputs.keys():
            raise _row_refused(
                number,
                f" key: {shown(alias)}",
                refused("json-row-input-unknown", name=shown(alias), inputs=inputs),
            )
        if row.keys() != first.keys():
            raise _row_refused(number, "", refused("json-row-keys", keys=",".join(sorted(inputs))))
    return {
        alias: _batch(alias, [row[alias] for row in rows], inputs[alias].dtype) for alias in first
    }


def _batch(alias: str, rows: list[Any], dtype: str) -> Array:
    """Return one array of all rows. ServingError names the first row that does not match."""
    try:
        return to_array(alias, rows, dtype)
    except ServingError as error:
        good, bad, why = 0, len(rows), error
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            to_array(alias, rows[:middle], dtype)
            good = middle
        except ServingError as error:
            bad, why = middle, error
    try:
        requested, got = (to_array(alias, rows[number], dtype) for number in (0, good))
    except ServingError as error:
        raise _row_refused(good, "", error) from None
    if requested.size != got.size:
        why = refused("json-row-size", name=alias, expected=requested.size, got=got.size)
    elif requested.shape != got.shape:
        why = refused("json-row-shape", name=alias, expected=_text(requested), got=_text(got))
    raise _row_refused(good, "", why)


def _row_refused(number: int, key: str, why: ServingError) -> ServingError:
    return refused("json-row-failed", number=number, key=key, rows=ROWS, reason=why)


def _text(array: Array) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _read_columns(columns: Any, inputs: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return the columns that are inputs. Like TensorFlow Serving, it ignores the others."""
    if not _is_named(columns):
        alias = _only(COLUMNS, "a plain value/list, but expecting an object", inputs)
        return {alias: to_array(alias, columns, inputs[alias].dtype)}
    return {
        alias: to_array(alias, columns[alias], tensor.dtype)
        for alias, tensor in inputs.items()
        if alias in columns
    }


def _is_named(value: Any) -> bool:
    return type(value) is dict and not is_binary(value)


def _only(key: str, words: str, inputs: Mapping[str, Tensor]) -> str:
    """Return the only input of a signature. ServingError: it has several."""
    if len(inputs) != 1:
        raise refused("json-input-key", key=key, problem=words, inputs=inputs)
    return next(iter(inputs))


def _unfold(alias: str, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the values of nested lists in order, and their shape."""
    level = [value]
    shape: list[int] = []
    while level and type(level[0]) is list:
        size = len(level[0])
        for number, item in _unless(set(map(type, level)) == {list}, level):
            if type(item) is not list:
                raise refused(
                    "json-value-level",
                    name=alias,
                    got=shown(item),
                    level=len(shape) + 1,
                    number=number,
                )
        for number, item in _unless(set(map(len, level)) == {size}, level):
            if len(item) != size:
                raise refused(
                    "json-list-size",
                    name=alias,
                    count=len(item),
                    level=len(shape),
                    expected=size,
                    number=number,
                )
        shape.append(size)
        if len(shape) > MAX_RANK:
            raise refused("json-lists-too-deep", name=alias, most=MAX_RANK)
        level = list(chain.from_iterable(level))
    if list in set(map(type, level)):
        raise refused("json-list-level", name=alias, level=len(shape), beside=shown(level[0]))
    return level, tuple(shape)


def _unless(sound: bool, level: list[Any]) -> Any:
    """Return the enumerated elements to search for an error, or none if `sound`."""
    return () if sound else enumerate(level)


def _array(alias: str, values: list[Any], dtype: str) -> Array:
    """Return values of one JSON type as a 1-D array."""
    if dtype == "string":
        _check_kinds(alias, values, dtype, (str, dict))
        array = np.empty(len(values), object)
        array[:] = [to_bytes(value) for value in values]
        return array
    if dtype == "bool":
        _check_kinds(alias, values, dtype, (bool,))
        return np.array(values, np.bool_)
    if dtype in FLOATS:
        _check_kinds(alias, values, dtype, (float, int))
        floats = narrowed(values, numpy_type(dtype))
        if floats is None:
            raise _too_large(alias, values, dtype)
        return floats
    if dtype in INTEGERS:
        _check_kinds(alias, values, dtype, (int,))
        try:
            return np.array(values, dtype)
        except OverflowError:
            raise _too_large(alias, values, dtype) from None
    raise ServingError("UNIMPLEMENTED", "json-value-type", dtype=dtype, name=alias)


def _check_kinds(alias: str, values: list[Any], dtype: str, kinds: tuple[type, ...]) -> None:
    wrong = set(map(type, values)).difference(kinds)
    for value in values if wrong or dict in kinds else ():
        if type(value) in wrong or (type(value) is dict and not is_binary(value)):
            raise refused(
                "json-value-not-of-type",
                name=alias,
                got=shown(value),
                kind=kind(value),
                dtype=dtype,
            )


def _too_large(alias: str, values: list[Any], dtype: str) -> ServingError:
    """Return an error with the first number that is out of the range of a dtype."""
    for value in values:
        try:
            fits = dtype in FLOATS and narrowed([value], numpy_type(dtype)) is not None
            fits = fits or (dtype in INTEGERS and np.array([value], dtype) is not None)
        except OverflowError:
            fits = False
        if not fits:
            return refused("json-value-range", name=alias, got=shown(value), dtype=dtype)
    return refused("json-number-range", name=alias, dtype=dtype)
