"""Columns of a table that its folders state, as Hive writes them: `day=2026-01-01/part-0.parquet`.

A column that the files contain takes precedence.
"""

import contextlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from deploykit.storage.csv_files import may_be_number
from deploykit.storage.table_formats.table_files import (
    arrow,
    folder_of,
    is_remote,
    without_options,
)
from deploykit.transforms.common.errors import GraphError

_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")
_NUMBER = re.compile(
    r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.ASCII | re.IGNORECASE
)  # not 007, which is a code or a month, and not +49
_INTEGER = re.compile(r"-?\d+", re.ASCII)
_EXACT = 2**53  # integers up to it are floats without rounding


def partition_types(
    path: str, files: Iterable[str], named: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the Arrow type of each column, and those of text that an input of numbers may take.

    A column is int32, int64 or float64 if all values are such numbers, else string. Numbers with
    leading zeros are text. The columns are those of folders at or below a path, and the `named`
    ones, also of those above it: only the user knows that a folder above is meant as an input.

    GraphError: a name or a value is not UTF-8.
    """
    pa = arrow("reading a table")
    folders = list(dict.fromkeys(map(_folder_of, files)))
    above = _folder_of(folder_of(path.rstrip("/"))) + "/"
    values: dict[str, list[str | None]] = {}
    for folder in folders:
        found = _stated(folder, named) | _stated(f"{folder}/".removeprefix(above), None)
        for name, value in found.items():
            values.setdefault(name, []).append(value)
    types = {name: _type_of(pa, found) for name, found in values.items()}
    texts = (name for name, type_ in types.items() if type_ == pa.string())
    return types, tuple(name for name in texts if _has_numbers(values[name]))


def partition_values(file: str, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each column for the rows of a file; None: its folders have none."""
    known = _stated(_folder_of(file), types)
    return {name: _value(type_, known.get(name)) for name, type_ in types.items()}


def _type_of(pa: Any, values: Iterable[str | None]) -> Any:
    texts = [value for value in values if value is not None]
    if not texts or not all(map(_NUMBER.fullmatch, texts)):
        return pa.string()
    integers = [int(text) for text in texts if _INTEGER.fullmatch(text)]
    if len(integers) < len(texts):
        is_exact = max(map(abs, integers), default=0) <= _EXACT
        is_float = is_exact and all(math.isfinite(float(text)) for text in texts)
        return pa.float64() if is_float else pa.string()
    for type_ in (pa.int32(), pa.int64()):
        with contextlib.suppress(pa.ArrowInvalid, OverflowError):
            return pa.array(integers, type_).type
    return pa.string()


def _has_numbers(values: list[str | None]) -> bool:
    """Return whether some texts are numbers, or all are null."""
    known = {value for value in values if value is not None}
    return not known or any(map(may_be_number, known))


def _value(type_: Any, text: str | None) -> Any:
    if text is None or str(type_) == "string":
        return text
    return float(text) if str(type_) == "double" else int(text)


def _stated(folder: str, names: Collection[str] | None) -> dict[str, str | None]:
    """Return the values of columns that a path states, of all without `names`; None: a null."""
    result = {}
    for part in folder.split("/"):
        coded, equals, value = part.partition("=")
        if not (coded and equals) or (names is not None and unquote(coded) not in names):
            continue
        try:
            name, value = unquote(coded, errors="strict"), unquote(value, errors="strict")
            (name + value).encode()  # other bytes of a name on disk are surrogates
        except UnicodeError:
            raise GraphError("partition-not-utf8", source=folder, got=part) from None
        result[name] = None if value in _NULLS else value
    return result


def _folder_of(file: str) -> str:
    path = unquote(without_options(file)) if is_remote(file) else file
    return path.rpartition("/")[0]
