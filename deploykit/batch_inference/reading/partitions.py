"""Splits data into parts that any process can read independently."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.batch_inference.reading.readers import line_offsets
from deploykit.data.data import Data
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.tfrecord import OVERHEAD, most_unpacked
from deploykit.transforms.untrusted.files import check_regular, readable_size

MAX_ROWS, MAX_PHOTOS = 4096, 256
PART_BYTES = 16 << 20  # approximate size of a part
SHARED = 16
"""The minimum number of parts of data without shards, so that several workers can share it."""
MIN_ROWS, MIN_PHOTOS = 256, 16  # of such a part; smaller parts have too much overhead
OUTPUT_BYTES = 64 << 20
_RUN = 16  # parts whose lines are split at a time


def cut_parts(data: Data, row_bytes: int | None) -> list[DataPart]:
    """Return the parts of data, in order. Each row is in exactly one part.

    A part has at most 4096 rows or 256 images, and about 16 MiB. Shards within these limits are not
    split. Other data is split into at least 16 parts, unless it is small. Only CSV files are read,
    to count their lines.

    Args:
        data: the data, from `open_data`.
        row_bytes: the size in bytes of the outputs of a row, of which a part has at most 64 MiB;
            None if unknown.

    FileError: a file cannot be read. GraphError: a CSV file is not text, or a file is too small for
    its number of records.
    """
    photos = any(feature.content == "image" for feature in data.features.values())
    most = MAX_PHOTOS if photos else MAX_ROWS
    if row_bytes:
        most = max(1, min(most, OUTPUT_BYTES // row_bytes))
    if data.kind == "images":
        parts = _of_photos(data.files, most)
    elif data.kind == "csv":
        parts = (part for file in data.files for part in _of_lines(file, data.header, most))
    else:
        counted = zip(data.files, data.counts, strict=True)
        parts = (part for file, rows in counted for part in _of_rows(data, file, rows, most))
    return [replace(part, number=number) for number, part in enumerate(parts)]


def _cuts(rows: int, size: int, most: int) -> Iterable[tuple[int, int]]:
    """Return the start and stop row of each part; parts have equal sizes."""
    count = min(rows, max(math.ceil(rows / most), math.ceil(size / PART_BYTES)))
    return pairwise([rows * number // count for number in range(count + 1)] if count else [])


def _shared(rows: int, least: int, most: int) -> int:
    """Return the maximum number of rows in a part, for data without shards."""
    return min(most, max(least, math.ceil(rows / SHARED)))


def _of_photos(files: tuple[str, ...], most: int) -> Iterator[DataPart]:
    for start, stop in _cuts(len(files), 0, _shared(len(files), MIN_PHOTOS, most)):
        yield DataPart(0, files[start:stop], 0, stop - start)


def _of_rows(data: Data, file: str, rows: int, most: int) -> Iterator[DataPart]:
    """Yield the parts of a shard or of an array file."""
    held = check_regular(file).st_size
    size = held
    if data.kind == "records":
        unpacked = most_unpacked(held) if data.compression else held
        if rows * OVERHEAD > unpacked:
            raise GraphError(
                "index-count-impossible", source=file, rows=rows, size=readable_size(held)
            )
    if data.kind == "arrays":  # which may be compressed
        size = max(size, rows * _sample_bytes(data))
        most = _shared(rows, MIN_ROWS, most)
    for start, stop in _cuts(rows, size, most):
        used = size * (stop - start) // rows
        yield DataPart(0, (file,), start, stop, bytes=used, file_rows=rows, file_bytes=held)


def _sample_bytes(data: Data) -> int:
    """Return the size in bytes of the numbers in a sample."""
    return sum(
        math.prod(size or 0 for size in feature.shape) * np.dtype(feature.dtype).itemsize
        for feature in data.features.values()
        if feature.dtype != "string"
    )


def _of_lines(file: str, header: bool, most: int) -> Iterator[DataPart]:
    """Yield the parts of a CSV file, reading it once.

    Lines are buffered until their number is known, or is large enough for full parts.
    """
    size = check_regular(file).st_size
    held: Array = np.zeros(0, np.int64)
    number, run = 1, _RUN * most
    for offsets in line_offsets(file):
        held = np.concatenate([held, offsets])
        if header and number == 1 and len(held) > 1:
            number, held = 2, held[1:]
        while len(held) > 2 * run:
            yield from _of_run(file, number, held[: run + 1], most, size)
            number, held = number + run, held[run:]
    yield from _of_run(file, number, held, most, size)


def _of_run(file: str, number: int, offsets: Array, most: int, size: int) -> Iterator[DataPart]:
    """Yield parts of the lines between the offsets; `number` is that of the first line."""
    lines = len(offsets) - 1
    most = _shared(lines, MIN_ROWS, most)
    for start, stop in _cuts(lines, int(offsets[-1] - offsets[0]), most):
        begin, end = int(offsets[start]), int(offsets[stop])
        yield DataPart(
            0, (file,), number + start, number + stop, begin, end - begin, file_bytes=size
        )
