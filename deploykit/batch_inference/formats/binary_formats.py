"""Writes columns as Parquet, as `.npz` arrays, or as TFRecords."""

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deploykit.batch_inference.formats.part_table import (
    STRINGS,
    Columns,
    features_of,
    readable_texts_of,
    texts_of,
)
from deploykit.records.examples import LISTS, RAW, Feature, example
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import framed
from deploykit.transforms.untrusted.files import readable_size

SHAPE = "shape"
"""The key in the metadata of a Parquet field for the shape of a row, as JSON."""
LENGTH = "_length"
"""The suffix of a column with the length of each text in another column of a `.npz` file."""

_MAX_FILLED = 1 << 30  # maximum bytes of the texts of a column, padded to the longest
_INT64 = ("uint32", "uint64")


def parquet_pieces(columns: Columns) -> Iterator[bytes]:
    """Yield a Parquet file; a row with several values is a flat list, with its shape in the field.

    Files and labels are strings; texts from a graph are binary. Columns of the data keep their
    type. GraphError: Parquet does not support the dtype of a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields, arrays, texts = [], [], []
    for name, array in columns.items():
        values, path, metadata = array, name, None
        if is_result := isinstance(array, np.ndarray):
            values = _arrow_array(name, array)
            if array.ndim > 1:
                path, metadata = f"{name}.list.element", {SHAPE: json.dumps(array.shape[1:])}
        if not is_result or array.dtype == object:  # repeated values, which compress well
            texts.append(path)
        fields.append(pa.field(name, values.type, nullable=not is_result, metadata=metadata))
        arrays.append(values)
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink,
        row_group_size=max(1, len(table)),
        compression=dict.fromkeys(texts, "snappy") or "none",
        use_dictionary=texts,
    )  # fmt: skip
    yield sink.getvalue().to_pybytes()


def _arrow_array(name: str, array: Array) -> Any:
    """Return a column of results as a pyarrow array."""
    import pyarrow as pa

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


def npz_pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a zip archive with an `.npy` entry for each column; texts are compressed.

    Files and labels are strings; texts from a graph are bytes. NumPy pads texts with NUL and strips
    NUL at the end. If a text ends with NUL, a column `X_length` contains the length of each text.
    GraphError: the padded texts of a column exceed 1 GiB.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        names = list(columns)
        for name, array in columns.items():
            if array.dtype != object:
                _write(archive, name, array)
            elif name in STRINGS:
                _write(archive, name, np.array(readable_texts_of(array), str).reshape(array.shape))
            else:
                texts = texts_of(array)
                _write(archive, name, _padded(name, texts).reshape(array.shape))
                if any(text.endswith(b"\0") for text in texts):
                    names.append(f"{name}{LENGTH}")
                    while names[-1] in names[:-1]:  # an output has this name
                        names[-1] += "_"
                    lengths = np.array(list(map(len, texts)), np.int64).reshape(array.shape)
                    _write(archive, names[-1], lengths)
    yield content.getvalue()


def _write(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so that results are reproducible
    entry.compress_type = zipfile.ZIP_DEFLATED if array.dtype.kind in "SU" else zipfile.ZIP_STORED
    with archive.open(entry, "w", force_zip64=array.nbytes >= 1 << 31) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _padded(name: str, texts: list[bytes]) -> Array:
    """Return texts as a NumPy array of bytes of one width. GraphError: it is too large."""
    width = max(1, max(map(len, texts), default=0))
    if len(texts) * width > _MAX_FILLED:
        raise GraphError(
            "npz-texts-too-large", name=name, width=width, size=readable_size(len(texts) * width)
        )
    return np.array(texts, f"S{width}")


def tfrecord_pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a framed Example for each row, which other commands can read as data.

    GraphError: Examples do not support the dtype of a column, or a number exceeds int64.
    """
    features = record_features(features_of(columns))
    values = {name: _rows(name, array) for name, array in columns.items()}
    for row in zip(*values.values(), strict=True):
        yield framed(example(features, dict(zip(values, row, strict=True))))


def record_features(columns: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return the features of a record: native lists, or raw bytes for other dtypes.

    Rows with several dimensions are stored flat, and the index contains their shape. If a size
    differs between parts, they are lists of unknown length. Raises the errors of `tfrecord_pieces`.
    """
    results = {}
    for name, column in columns.items():
        if column.dtype not in (*LISTS, *_INT64, *RAW):
            raise GraphError("record-type", name=name, dtype=column.dtype)
        dtype = "int64" if column.dtype in _INT64 else column.dtype
        shape = (None,) if None in column.shape else column.shape
        results[name] = Feature(dtype, shape, "" if dtype in LISTS else "raw")
    return results


def _rows(name: str, array: Array) -> Any:
    """Return the values of each row for `example`."""
    if array.dtype == object:
        texts = texts_of(array)
        width = int(np.prod(array.shape[1:]))
        return [texts[row * width : (row + 1) * width] for row in range(len(array))]
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise GraphError("record-number", name=name, got=array.max())
    return array
