"""Splits data into parts that any process can read independently."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.data.data import Data
from deploykit.storage.record_offsets import offsets_of_every
from deploykit.storage.table_formats.table_files import opened_table, size_of
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tfrecord import OVERHEAD
from deploykit.transforms.untrusted.files import (
    cannot_be_read,
    most_unpacked,
    opened_text,
    readable_size,
)

MAX_ROWS, MAX_PHOTOS = 4096, 256
PART_BYTES = 16 << 20  # approximate size of a part
SHARED = 16
"""The minimum number of parts of data without shards, so that several workers can share it."""
MIN_ROWS, MIN_PHOTOS = 256, 16  # of such a part; smaller parts have too much overhead
OUTPUT_BYTES = 64 << 20


def cut_parts(data: Data, row_bytes: int | None) -> list[DataPart]:
    """Return the parts of data, in order. Each row is in exactly one part; empty data has one too.

    A part has at most 4096 rows or 256 images, and about 16 MiB. Shards within these limits are not
    split. Other data is split into at least 16 parts, unless it is small. Only CSV files and JSON
    Lines are read, to count their rows.

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
    elif data.kind == "csv" or not data.counts:
        parts = (part for file in data.files for part in _of_lines(data, file, most))
    else:
        counted = zip(data.files, data.counts, strict=True)
        parts = (part for file, rows in counted for part in _of_rows(data, file, rows, most))
    result = [replace(part, number=number) for number, part in enumerate(parts)]
    if not result:  # its file of results has columns, but no rows
        file = data.files[0]
        result.append(DataPart(0, (file,), file_bytes=size_of(file)))
    return result


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
    held = size = size_of(file)
    if data.kind == "records":
        unpacked = most_unpacked(held) if data.compression else held
        if rows * OVERHEAD > unpacked:
            raise GraphError(
                "index-count-impossible", source=file, rows=rows, size=readable_size(held)
            )
    if data.kind in ("arrays", "table"):  # which may be compressed
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


def _of_lines(data: Data, file: str, most: int) -> Iterator[DataPart]:
    """Yield the parts of a text file, reading it once.

    Only the offset of every 256th row is stored, so that memory hardly grows with the rows.
    """
    step = min(MIN_ROWS, most)
    offsets, lines, rows = _offsets_of_every(data, file, step)
    by_line = data.kind == "csv"  # its rows are named by their lines, which may be more
    share = min(math.ceil(_shared(rows, MIN_ROWS, most) / step), most // step)
    size, start = size_of(file), 0
    while start < len(offsets) - 1:
        stop = min(start + share, len(offsets) - 1)
        while stop > start + 1 and offsets[stop] - offsets[start] > PART_BYTES:
            stop -= 1
        begin, end = start * step, min(stop * step, rows)
        count = end - begin
        if by_line:
            begin, end = lines[start], lines[stop]
        yield DataPart(
            0, (file,), begin, end, offsets[start], offsets[stop] - offsets[start],
            file_bytes=size, other_lines=end - begin - count,
        )  # fmt: skip
        start = stop


def _offsets_of_every(data: Data, file: str, step: int) -> tuple[list[int], list[int], int]:
    """Return offset and line of every row whose number is a multiple of `step`, and the rows."""
    is_lines = data.kind == "csv"
    is_csv = is_lines or getattr(data, "format", "") == "csv"
    try:
        with opened_text(file) if is_lines else opened_table(file) as stream:
            return offsets_of_every(step, stream, file, quoted=is_csv, header=data.header)
    except OSError as error:
        raise cannot_be_read(file, error) from None
