"""Columns of a table that its folders state, as Hive writes them: `day=2026-01-01/part-0.parquet`.

A column that the files contain takes precedence.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from deploykit.batch_inference.tables.table_files import (
    arrow,
    folder_of,
    is_remote,
    without_options,
)
from deploykit.transforms.common.errors import GraphError

_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_types(path: str, files: Iterable[str], named: Collection[str]) -> dict[str, Any]:
    """Return the Arrow type of each column: int32 if all values are such integers, else string.

    The columns are those of folders at or below a path, and the `named` ones, also of those above
    it: only the user knows that a folder above is meant as an input.

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
    return {name: _type_of(pa, found) for name, found in values.items()}


def partition_values(file: str, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each column for the rows of a file; None: its folders have none."""
    known = _stated(_folder_of(file), types)
    return {name: _value(type_, known.get(name)) for name, type_ in types.items()}


def _type_of(pa: Any, values: list[str | None]) -> Any:
    try:
        pa.array(values, pa.string()).cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32()


def _value(type_: Any, text: str | None) -> Any:
    return int(text) if text is not None and str(type_) == "int32" else text


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
        result[name] = None if value == _NULL else value
    return result


def _folder_of(file: str) -> str:
    path = unquote(without_options(file)) if is_remote(file) else file
    return path.rpartition("/")[0]
