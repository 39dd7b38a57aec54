"""Columns as TFRecords: an Example a row, which are data for the next command."""

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

    GraphError: a column is of a type that no Example holds, or has numbers above int64's.
    """
    features = record_features(features_of(columns))
    values = {name: _rows(name, array) for name, array in columns.items()}
    for row in zip(*values.values(), strict=True):
        yield framed(example(features, dict(zip(values, row, strict=True))))


def record_features(columns: Mapping[str, Feature]) -> dict[str, Feature]:
    """Return what a record holds of a row: lists of an Example, or the bytes of other numbers.

    Rows of several dimensions are written flat, and an index says their shape; where a size
    differs from part to part, it says that they are lists. GraphError: as in `pieces`.
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
    """Return the values of each row as `example` takes them."""
    if array.dtype == object:
        texts = texts_of(array)
        width = int(np.prod(array.shape[1:]))
        return [texts[row * width : (row + 1) * width] for row in range(len(array))]
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise GraphError("record-number", name=name, got=array.max())
    return array
