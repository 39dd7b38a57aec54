"""Tables on disk as arrays by column: CSV files with a header, and Parquet files."""

import csv
import io
import logging
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from deploykit.storage.files import read_bytes
from deploykit.storage.room import check_room
from deploykit.transforms.core.engines.extras import how_to_install
from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import text_lines
from deploykit.transforms.core.tensors import Array

logger = logging.getLogger("deploykit")

_PARQUET = (".parquet", ".pq")
TABLE_ENDS = (".csv", *_PARQUET)


def is_table(
    path: str | os.PathLike[str], names: Collection[str] = (), takes_text: bool = False
) -> bool:
    """Say whether the columns of a file are arrays by name.

    They are in a Parquet file, and in a CSV file whose header names one of `names`, or where texts
    are expected (`takes_text`) and the first line below the header holds one.
    """
    if Path(path).suffix in _PARQUET:
        return True
    if Path(path).suffix != ".csv" or not os.path.isfile(path):
        return False
    lines = text_lines(path, "CSV file")
    try:
        head, first = (next(csv.reader([next(lines, "").lstrip("\ufeff")]), []) for _ in range(2))
    except csv.Error:  # a cell of more than 131,072 characters, which no table of numbers has
        return False
    has_header = not all(map(is_number, head))
    has_names = not {cell.strip() for cell in head}.isdisjoint(names)
    return has_header and (has_names or (takes_text and not all(map(is_number, first))))


def load_table(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Return the columns of a table by name: int64, float64, bool or texts; lists have more axes.

    Columns of a Parquet file with gaps or of other types are left out, which is logged.
    FileError: it cannot be read. GraphError: it is damaged, or pyarrow is missing.
    """
    return _parquet(path) if Path(path).suffix in _PARQUET else _csv(path)


def _csv(path: str | os.PathLike[str]) -> dict[str, Array]:
    content = read_bytes(path)
    check_room(8 * len(content), f"{path}: the table")
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise GraphError(f"{path}: the file is not a CSV file in UTF-8 ({error})") from None
    rows = [row for row in rows if row]
    names = [cell.strip() for cell in rows[0]] if rows else []
    if len(set(names)) < len(names):
        raise GraphError(f"{path}: two columns have the same name in the header")
    for number, row in enumerate(rows[1:], 1):
        if len(row) != len(names):
            raise GraphError(
                f"{path}: row {number} has {len(row)} values, but the header {len(names)} names"
            )
    return {name: _column([row[n] for row in rows[1:]]) for n, name in enumerate(names)}


def _column(cells: list[str]) -> Array:
    """Return the values of a column: whole numbers, numbers, or texts."""
    for dtype in (np.int64, np.float64):
        try:
            return np.array([dtype(cell) for cell in cells], dtype)
        except (ValueError, OverflowError):
            continue
    found = np.empty(len(cells), object)
    found[:] = [cell.encode() for cell in cells]
    return found


def _parquet(path: str | os.PathLike[str]) -> dict[str, Array]:
    content = read_bytes(path)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise GraphError(
            f"{path}: reading a Parquet file takes pyarrow, which cannot be imported ({error}); "
            f"{how_to_install('pyarrow')}, or give a .npz or CSV file"
        ) from None
    try:
        source = pq.ParquetFile(pa.BufferReader(content))
        sizes = [source.metadata.row_group(n).total_byte_size for n in range(source.num_row_groups)]
        check_room(2 * sum(sizes), f"{path}: the table")
        table = source.read()
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise GraphError(f"{path}: the file is not a Parquet file, or damaged ({reason})") from None
    found = {}
    for name in table.column_names:
        try:
            found[name] = _of_arrow(table.column(name).to_pylist())
        except ValueError as error:
            logger.info("%s: column '%s' is not used: it holds %s", path, name[:100], error)
    return found


def _of_arrow(values: list[object]) -> Array:
    """Return the values of a column as an array. ValueError: there is no such array."""
    if None in values:
        raise ValueError(f"no value in row {values.index(None)} (from 0)")
    try:
        found = np.array(values)
    except ValueError:
        raise ValueError("lists of several lengths") from None
    if found.dtype.kind in "SUO":
        texts = np.array(values, object)
        flat = [each.encode() if isinstance(each, str) else each for each in texts.reshape(-1)]
        if not all(isinstance(each, bytes) for each in flat):
            raise ValueError(f"{type(flat[0]).__name__}, expected numbers or texts")
        found = np.empty(len(flat), object)
        found[:] = flat
        return found.reshape(texts.shape)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"{found.dtype}, expected numbers or texts")
    return found


def is_number(cell: Any) -> bool:
    """Say whether a cell of a table, text or a value of Python, is a number."""
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
