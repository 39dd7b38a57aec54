"""Reads records of every format in Python, one by one; errors name the damaged record."""

import itertools
import math
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from deploykit.data.apply_preprocessing import in_python, together
from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import result_of
from deploykit.records.examples import Feature
from deploykit.storage import csv_files
from deploykit.storage.files import read_bytes
from deploykit.storage.tables import column
from deploykit.transforms.common.errors import Error, FileError, GraphError, failed, unknown_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.session import sentence

_ROWS = 128  # of a CSV file that are converted at once

Record = tuple[str, dict[str, Any]]
"""The location of a record as text, and its stored features."""


def records(
    data: Data, features: tuple[str, ...], shuffled: random.Random | None = None
) -> Iterator[Record]:
    """Yield each record once, in the order of the files, which may be shuffled.

    FileError, GraphError: the named record is damaged.
    """
    order = list(range(len(data.files)))
    if shuffled is not None:
        shuffled.shuffle(order)
    if data.kind == "arrays":
        yield from _arrays(data, features, shuffled)
        return
    for number in order:
        if data.kind == "images":
            yield _image(data, number)
        elif data.kind == "csv":
            yield from _lines(data, number, features)
        else:
            yield from _examples(data, number, features)


def _arrays(
    data: Data, features: tuple[str, ...], shuffled: random.Random | None
) -> Iterator[Record]:
    arrays = data.load()
    chosen = {name: as_feature(data, name, arrays) for name in features}
    order = list(range(data.records or 0))
    if shuffled is not None:
        shuffled.shuffle(order)
    for number in order:
        results = {name: array[number] for name, array in chosen.items()}
        yield f"{data.path}: sample {number}", results


def as_declared(data: Data, name: str, arrays: Mapping[str, Array]) -> Array:
    """Return a feature from arrays, in its declared dtype for TensorFlow."""
    return as_objects(column(arrays, name, data.features[name].dtype == "string"))


def as_feature(data: Data, name: str, arrays: Mapping[str, Array]) -> Array:
    """Return a feature from arrays; if it is a column of rows, each value becomes a row."""
    array = as_declared(data, name, arrays)
    is_row = array.ndim == 1 and data.features[name].shape == (1,)
    return array[:, None] if is_row else array


def as_objects(array: Array) -> Array:
    """Return strings as an object array for TensorFlow, and other arrays unchanged."""
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    return array.astype(object) if array.dtype.kind == "S" else array


def _image(data: Data, number: int) -> Record:
    file = data.files[number]
    return file, {"image": read_bytes(file), "label": data.labels[number]}


def _lines(data: Data, number: int, features: tuple[str, ...]) -> Iterator[Record]:
    """Yield the rows of a CSV file as the numbers of each feature."""
    file = data.files[number]
    found = itertools.islice(csv_files.records(file), int(data.header), None)
    while group := list(itertools.islice(found, _ROWS)):
        arrays, bad = row_values(data, group, features)
        for row, record in enumerate(group):
            if row in bad:
                raise csv_files.row_error(file, record.line, bad[row])
            where = f"{file}: line {record.line}"
            yield where, {name: array[row] for name, array in arrays.items()}


def row_values(
    data: Data, group: Sequence[csv_files.Record], features: tuple[str, ...]
) -> tuple[dict[str, Array], dict[int, str]]:
    """Return the features of the valid rows of a CSV file, and why others are bad, by their index.

    Rows are converted at once; if any is bad, one by one.
    """
    bad: dict[int, str] = {}
    numbers = data.layout.numbers(b"\n".join(record.text for record in group))
    if numbers is None or len(numbers) != len(group):
        rows = []
        for n, record in enumerate(group):
            try:
                rows.append(_numbers(data, record.text))
            except ValueError as error:
                bad[n] = str(error)
        numbers = np.array(rows, np.float64).reshape(len(rows), data.width)
    with np.errstate(over="ignore"):  # as TensorFlow does
        numbers = numbers.astype(np.float32)
    return {name: numbers[:, data.at(name)] for name in features}, bad


def _numbers(data: Data, record: bytes) -> list[float]:
    """Return the numbers of a row of a CSV file. ValueError, with a reason: the row is bad."""
    cells = data.layout.cells(record)
    try:
        return csv_files.floats(cells, range(data.width))
    except csv_files.CellError as error:
        if error.column != data.columns.get("label"):
            raise
        if not cells[error.column].strip():
            raise ValueError(csv_files.no_label(error.column)) from None
        raise ValueError(f"{error}; deploykit records converts class names to numbers") from None


def _examples(data: Data, number: int, features: tuple[str, ...]) -> Iterator[Record]:
    """Yield the Examples of a shard, parsed in Python."""
    for where, content in contents(data, number):
        yield where, example(data, where, content, features)


def contents(data: Data, number: int) -> Iterator[tuple[str, bytes]]:
    """Yield the location (as text) and the bytes of each record in a shard.

    FileError: the named record is damaged, so later ones cannot be read.
    """
    import tensorflow as tf

    file, count = data.files[number], 0
    options = tf.io.TFRecordOptions(compression_type=data.compression)
    try:
        for content in tf.compat.v1.io.tf_record_iterator(file, options):
            yield f"{file}: record {count}", content
            count += 1
    except tf.errors.OpError as error:
        raise FileError(
            "record-damaged", source=file, number=count, reason=error.message[:200]
        ) from None
    if data.counts and count != data.counts[number]:
        raise FileError(
            "index-differs", source=file, got=count, unit="records", expected=data.counts[number]
        )


def example(data: Data, where: str, content: bytes, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the features of a serialized Example. GraphError: a feature is missing or invalid."""
    import tensorflow as tf

    try:
        given = tf.train.Example.FromString(content).features.feature
    except DecodeError:
        raise GraphError("example-missing", what=where) from None
    results: dict[str, Any] = {}
    for name in features:
        feature = data.features[name]
        if name not in given:
            raise unknown_name("feature", name, sorted(given)).within(where)
        as_bytes = feature.dtype == "string" or feature.content == "raw"
        kind = "bytes_list" if as_bytes else (
            "int64_list" if feature.dtype == "int64" else "float_list"
        )  # fmt: skip
        listed = getattr(given[name], kind).value
        expected = 1 if as_bytes and feature.content else None
        if expected is None and None not in feature.shape:
            expected = math.prod(size or 0 for size in feature.shape)
        if expected is not None and len(listed) != expected:
            raise GraphError(
                "example-feature-values",
                what=where,
                count=len(listed),
                dtype=feature.dtype,
                name=name,
                expected=expected,
            )
        if feature.content:
            results[name] = listed[0]
        elif feature.dtype == "string":
            results[name] = np.array(list(listed), object).reshape(_open(feature.shape))
            results[name] = results[name] if feature.shape else results[name].item()
        else:
            results[name] = np.array(listed, feature.dtype).reshape(_open(feature.shape))
    return results


def _open(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(-1 if size is None else size for size in shape)


Maker = Callable[[Steps, Feature, Any], Array]
_NODE = re.compile(r"^node [^:]*: ")  # a node of deploykit's preprocessing, not of the user's graph
_TRIED = 16  # records used to measure the cost of decoding


def placeholders(pipeline: Pipeline) -> dict[str, Any]:
    """Return placeholders for batches by input, in the current graph."""
    import tensorflow as tf

    features = pipeline.features
    results = {name: result_of(v, features[v.feature]) for name, v in pipeline.steps.items()}
    return {
        name: tf.compat.v1.placeholder(item.dtype, (None, *item.shape))
        for name, item in results.items()
    }


def batches(pipeline: Pipeline) -> Iterator[dict[str, Array]]:
    """Yield batches by input, read in this process; images start TensorFlow.

    FileError, GraphError: the named file or record is damaged.
    """
    waiting = values(pipeline)
    while group := list(itertools.islice(waiting, pipeline.batch)):
        if len(group) == pipeline.batch or not pipeline.whole:
            yield {name: together([item[name] for item in group]) for name in pipeline.steps}


def values(pipeline: Pipeline) -> Iterator[dict[str, Array]]:
    """Yield the input values of each record."""
    epochs = itertools.count() if pipeline.epochs is None else range(pipeline.epochs)
    for epoch in epochs:
        shuffled = None
        if pipeline.shuffle is not None:
            shuffled = random.Random(pipeline.shuffle + epoch)
        for where, record in records(pipeline.data, tuple(pipeline.features), shuffled):
            yield prepared(pipeline, where, record)


def check_records(pipeline: Pipeline) -> None:
    """Read one epoch. FileError, GraphError: the named record is damaged."""
    for where, record in records(pipeline.data, tuple(pipeline.features)):
        prepared(pipeline, where, record)


def decoding_share(pipeline: Pipeline) -> float | None:
    """Return the share of a record's CPU time spent decoding images; None if there are no images.

    Measured on a few records, in the CPU time of this thread.
    """
    if not any(feature.content == "image" for feature in pipeline.features.values()):
        return None
    waiting = records(pipeline.data, tuple(pipeline.features))
    reading = decoding = 0.0
    for number in range(_TRIED + 1):
        start = time.thread_time()
        first = next(waiting, None)
        between = time.thread_time()
        if first is None:
            break
        prepared(pipeline, *first)
        if number:  # the first one starts TensorFlow's kernels
            reading += between - start
            decoding += time.thread_time() - between
    return decoding / (reading + decoding) if reading + decoding else None


def prepared(
    pipeline: Pipeline, where: str, record: dict[str, Any], make: Maker = in_python
) -> dict[str, Array]:
    """Return the input values of a record, each computed by `make`.

    GraphError: the record is invalid; the message names `where`.
    """
    try:
        return {
            name: make(steps, pipeline.features[steps.feature], record[steps.feature])
            for name, steps in pipeline.steps.items()
        }
    except GraphError as error:
        raise error.within(where) from None
    except Error:
        raise
    except Exception as error:  # from TensorFlow's kernels or NumPy
        text = _NODE.sub("", sentence(error))
        cause = text.split("} ")[-1].split(" [Op:")[0]
        raise failed("record-not-usable", error, source=where, reason=cause[:200]) from None
