"""Writes columns as TFRecords, one Example per row, which other commands can read as data."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deploykit.batch_inference.formats.part_table import features_of, texts_of
from deploykit.records.examples import LISTS, RAW, Feature, example
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import framed

_INT64 = ("uint32", "uint64")


def pieces(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """Yield a framed Example for each row.

    GraphError: Examples do not support the dtype of a column, or a number exceeds int64.
    """
    features = record_features(features_of(columns))
    values = {name: _rows(name, array) for name, array in columns.items()}
    for row in zip(*values.values(), strict=True):
        yield framed(example(features, dict(zip(values, row, strict=True))))


def record_features(columns: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return the features of a record: native lists, or raw bytes for other dtypes.

    Rows with several dimensions are stored flat, and the index contains their shape. If a size
    differs between parts, they are lists of unknown length. Raises the errors of `pieces`.
    """
    return {name: _feature(name, item) for name, item in columns.items()}


def _feature(name: str, column: Feature) -> Feature:
    shape = (None,) if None in column.shape else column.shape
    if column.dtype in LISTS:
        return Feature(column.dtype, shape)
    if column.dtype in _INT64:
        return Feature("int64", shape)
    if column.dtype in RAW:
        return Feature(column.dtype, shape, "raw")
    raise GraphError("record-type", name=name, dtype=column.dtype)


def _rows(name: str, array: Array) -> Any:
    """Return the values of each row for `example`."""
    if array.dtype == object:
        texts = texts_of(array)
        width = int(np.prod(array.shape[1:]))
        return [texts[row * width : (row + 1) * width] for row in range(len(array))]
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise GraphError("record-number", name=name, got=array.max())
    return array
