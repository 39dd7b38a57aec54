"""Collects the results of one part as columns, and finds output formats by name."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deploykit.batch_inference.infer_task import FORMATS
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError, nearest
from deploykit.transforms.engines.packages import how_to_install
from deploykit.transforms.ir.tensors import Array, numpy_type

FILE, ROW = "file", "row"
"""The columns with the source of a row: its file, relative to the data's folder, and its number in
that file."""
TOP_CLASSES, TOP_SCORES, TOP_LABELS = "top_classes", "top_scores", "top_labels"
"""The columns with the best classes, their scores and their labels."""
STRINGS = (FILE, TOP_LABELS)
"""The columns that deploykit adds as strings; texts from a graph are bytes."""
SHAPE_END = "_shape"
"""The suffix of a column with the original shape of each row in another column."""

Columns = Mapping[str, Any]
"""Columns by name: NumPy arrays, or Arrow arrays for the columns that are copied from the data."""


class PartTable:
    """The results of a model for the rows of a part."""

    def __init__(self, expected: Mapping[str, Feature] | None = None) -> None:
        """Create a table without rows.

        `expected` contains dtype and shape of a row in each column, as far as known from the graph.
        If a size is unknown, every part has a column for the shapes. A part whose rows were all
        skipped has the same columns as the others.
        """
        self._expected = expected or {}
        self._files: list[str] = []
        self._rows: list[int] = []
        self._batches: list[Mapping[str, Array]] = []
        self._kept: list[Mapping[str, Any]] = []

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def add(
        self,
        files: Sequence[str],
        rows: Sequence[int],
        columns: Mapping[str, Array],
        kept: Mapping[str, Any] | None = None,
    ) -> None:
        """Add the results of some rows; `kept` are columns of the data as Arrow arrays.

        Without rows, only the types of `kept` count.
        """
        self._kept.append(kept or {})
        if rows:
            self._files += files
            self._rows += rows
            self._batches.append(columns)

    def columns(self) -> dict[str, Any]:
        """Return all rows by column: `file`, `row`, the columns of the data, and the results.

        Rows of different shapes are padded with 0 or empty texts; then a column `X_shape` contains
        the shape of each row. Text columns are object arrays: `bytes` from graphs, `str` for files.
        GraphError: rows have different numbers of dimensions.
        """
        batches = self._batches or [{k: _empty(item) for k, item in self._expected.items()}]
        results: dict[str, Any] = {
            FILE: np.array(self._files, object),
            ROW: np.array(self._rows, np.int64),
        }
        for name in self._kept[0] if self._kept else ():
            import pyarrow as pa

            results[name] = pa.chunked_array([kept[name] for kept in self._kept]).combine_chunks()
        for name in batches[0]:
            parts = [_plain(np.asarray(batch[name])) for batch in batches]
            is_open = name in self._expected and None in self._expected[name].shape
            results[name], shapes = _joined(name, parts, is_open)
            if shapes is not None:
                results[f"{name}{SHAPE_END}"] = shapes
        return results


def features_of(columns: Columns) -> dict[str, Feature]:
    """Return the dtype and shape of a row in each column; that of a copied one is Arrow's type."""
    return {
        name: Feature("string" if item.dtype == object else item.dtype.name, item.shape[1:])
        if isinstance(item, np.ndarray)
        else Feature(str(item.type))
        for name, item in columns.items()
    }


def in_numpy(name: str, column: Any, format_: str) -> Array:
    """Return a column as a NumPy array. GraphError: it has nulls, lists or another type."""
    if isinstance(column, np.ndarray):
        return column
    from deploykit.records.table_values import flat_values
    from deploykit.storage.table_formats.arrow_types import kind_of

    kind = kind_of(column.type)
    if kind is None or kind.depth or column.null_count:
        raise GraphError(
            "kept-column-type",
            name=name,
            got=f"{column.type}{' with nulls' if column.null_count else ''}",
            format=format_,
        )
    return flat_values(name, column, "string" if kind.is_text else "")[0]


def texts_of(array: Array) -> list[bytes]:
    """Return all texts of a column as a flat list of bytes."""
    return [
        item if isinstance(item, bytes) else str(item).encode(errors="surrogateescape")
        for item in array.ravel().tolist()
    ]


def readable_texts_of(array: Array) -> list[str]:
    r"""Return all texts of a column as a flat list; bytes that are not UTF-8 become `\xff`."""
    return [text.decode(errors="backslashreplace") for text in texts_of(array)]


def _plain(array: Array) -> Array:
    """Return numbers in a native NumPy dtype, and texts as objects."""
    if array.dtype.names is not None and len(array.dtype.names) == 1:  # qint8 and similar types
        array = array[array.dtype.names[0]]
    if array.dtype.kind == "V":  # bfloat16, float8, int4: int8 or float32 represent all values
        return array.astype(np.int8 if "int" in array.dtype.name else np.float32)
    if array.dtype.kind in "SU":
        return array.astype(object)
    return array


def _joined(name: str, arrays: Sequence[Array], is_open: bool) -> tuple[Array, Array | None]:
    """Return batches as one array, and the shapes of its rows if a column needs them."""
    ranks = sorted({array.ndim - 1 for array in arrays})
    if len(ranks) > 1:
        raise GraphError("output-rank-varies", name=name, ranks=ranks)
    shapes = [array.shape[1:] for array in arrays]
    largest = tuple(map(max, zip(*shapes, strict=True)))
    if not is_open and all(shape == largest for shape in shapes):
        return np.concatenate(arrays), None
    empty = b"" if arrays[0].dtype == object else 0
    joined = np.full((sum(map(len, arrays)), *largest), empty, arrays[0].dtype)
    start = 0
    for item in arrays:
        joined[start : start + len(item), *map(slice, item.shape[1:])] = item
        start += len(item)
    sizes = [np.array(shape, np.int64).reshape(1, -1) for shape in shapes]
    return joined, np.repeat(np.concatenate(sizes), list(map(len, arrays)), axis=0)


def _empty(feature: Feature) -> Array:
    shape = tuple(size or 0 for size in feature.shape)
    return np.zeros((0, *shape), numpy_type(feature.dtype))


_NEEDED = {"parquet": "pyarrow"}
_MODULES = {"csv": "text_formats", "jsonl": "text_formats"}  # those of the others: binary_formats


def format_named(name: str) -> Callable[[Columns], Iterator[bytes]]:
    """Return the function that yields the bytes of a file of a format; it is reproducible.

    It takes columns with equal numbers of rows, and raises GraphError for a column that the format
    does not support. GraphError: the name is unknown, or its package is not installed.
    """
    if name not in FORMATS:
        raise GraphError(
            "not-a-results-format", name=name, hint=nearest(name, FORMATS), known=FORMATS
        )
    try:
        importlib.import_module(_NEEDED.get(name, "numpy"))
    except ImportError as error:
        others = ", ".join(format_ for format_ in FORMATS if format_ not in _NEEDED)
        raise GraphError(
            "format-package-missing",
            what=f"--format {name}",
            package=_NEEDED[name],
            reason=error,
            install=how_to_install(_NEEDED[name]),
            otherwise=f"give one of {others}",
        ) from None
    home = f"deploykit.batch_inference.formats.{_MODULES.get(name, 'binary_formats')}"
    pieces: Callable[[Columns], Iterator[bytes]]
    pieces = getattr(importlib.import_module(home), f"{name}_pieces")
    return pieces
