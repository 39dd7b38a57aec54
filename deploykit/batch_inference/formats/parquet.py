"""Writes columns as a Parquet file with pyarrow (extra `parquet`)."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from deploykit.batch_inference.formats.part_table import (
    STRINGS,
    Columns,
    readable_texts_of,
    texts_of,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

SHAPE = "shape"
"""The key in a field's metadata for the shape of a row, as JSON."""


def pieces(columns: Columns) -> Iterator[bytes]:
    """Yield a Parquet file; a row with several values is a flat list, with its shape in the field.

    Files and labels are strings; texts from a graph are binary. Columns of the data keep their
    type. GraphError: Parquet does not support the dtype of a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields, arrays = [], []
    for name, array in columns.items():
        if not isinstance(array, np.ndarray):
            fields.append(pa.field(name, array.type))
            arrays.append(array)
            continue
        values = _column(pa, name, array)
        metadata = None if array.ndim == 1 else {SHAPE: json.dumps(array.shape[1:])}
        fields.append(pa.field(name, values.type, nullable=False, metadata=metadata))
        arrays.append(values)
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    texts = [_path(name, array) for name, array in columns.items() if _is_text(array)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink,
        row_group_size=max(1, len(table)),
        compression=dict.fromkeys(texts, "snappy") or "none",
        use_dictionary=texts,
    )  # fmt: skip
    yield sink.getvalue().to_pybytes()


def _column(pa: Any, name: str, array: Array) -> Any:
    """Return a column as a pyarrow array."""
    try:
        if array.dtype != object:
            flat = pa.array(np.ascontiguousarray(array).ravel())
        elif name in STRINGS:
            flat = pa.array(readable_texts_of(array), pa.string())
        else:
            flat = pa.array(texts_of(array), pa.binary())
    except pa.ArrowException as error:
        raise GraphError("parquet-type", name=name, dtype=array.dtype, reason=error) from None
    if array.ndim == 1:
        return flat
    width = int(np.prod(array.shape[1:]))
    ends = pa.array(np.arange(len(array) + 1, dtype=np.int64) * width, pa.int32())
    element = pa.field("element", flat.type, nullable=False)
    return pa.ListArray.from_arrays(ends, flat, type=pa.list_(element))


def _is_text(array: Any) -> bool:
    """Return whether a column repeats values that a dictionary and compression shorten."""
    return not isinstance(array, np.ndarray) or array.dtype == object


def _path(name: str, array: Any) -> str:
    """Return the Parquet path of the values in a column."""
    return name if getattr(array, "ndim", 1) == 1 else f"{name}.list.element"
