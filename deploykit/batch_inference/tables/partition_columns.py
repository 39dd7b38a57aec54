"""Columns of a table that its folders state, as Hive writes them: `day=2026-01-01/part-0.parquet`.

All folders of a path count, also those of a file or folder that the user names. A column that the
files contain takes precedence.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from deploykit.batch_inference.tables.table_files import arrow, is_remote, without_options


def partition_types(files: Iterable[str]) -> dict[str, Any]:
    """Return the Arrow type of each column: int32 if all values are such integers, else string."""
    pa = arrow("reading a table")
    folders = list(dict.fromkeys(map(_folder_of, files)))
    names = dict.fromkeys(
        part.partition("=")[0] for folder in folders for part in folder.split("/") if "=" in part
    )
    results = {}
    for name in filter(None, names):
        try:
            for folder in folders:
                _parsed(folder, {name: pa.int32()})
            results[name] = pa.int32()
        except pa.ArrowInvalid:
            results[name] = pa.string()
    return results


def partition_values(file: str, types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each column for the rows of a file; None: its folders have none."""
    known = _parsed(_folder_of(file), types) if types else {}
    return {name: known.get(name) for name in types}


def _parsed(folder: str, types: Mapping[str, Any]) -> dict[str, Any]:
    import pyarrow as pa
    from pyarrow import dataset

    partitioning = dataset.HivePartitioning(pa.schema(list(types.items())))
    found: dict[str, Any] = dataset.get_partition_keys(partitioning.parse(f"{folder}/"))
    return found


def _folder_of(file: str) -> str:
    path = unquote(without_options(file)) if is_remote(file) else file
    return path.rpartition("/")[0]
