"""Finds where the records of a text file begin, and on which lines, without parsing them.

A line feed ends a record. In CSV, a carriage return ends one too, and neither does between quotes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from deploykit.storage.csv_files import quote_open, too_long
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import BOM, LONGEST_LINE

_BLOCK = 4 << 20
_FEED, _RETURN, _QUOTE = b'\n\r"'


def record_offsets(file: Any, path: str, *, quoted: bool = False) -> Iterator[tuple[Array, Array]]:
    """Yield arrays of the offsets at which records end, and of the lines that begin there.

    The first ones are where the first record begins. With `quoted`, a carriage return ends a record
    too, and neither it nor a line feed does between double quotes. An empty line belongs to the
    record after it. A byte-order mark is not part of the first record.
    GraphError: a record is longer than the limit, or the last quote is not closed.
    """
    start = len(BOM) if bytes(file.read(len(BOM))) == BOM else 0
    file.seek(start)
    yield np.array([start]), np.array([1])
    place = begin = line = start
    is_inside, last, number, begin_number = False, 0, 1, 1
    while block := bytes(file.read(_BLOCK)):
        while quoted and block.endswith(b"\r") and (more := bytes(file.read(1))):
            block += more  # whether a line feed follows decides where the record ends
        array = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(array == _FEED)
        if quoted and b"\r" in block:
            is_followed = np.append(array[1:] == _FEED, False)
            ends = np.flatnonzero((array == _FEED) | ((array == _RETURN) & ~is_followed))
        numbers = np.arange(number + 1, number + 1 + len(ends))
        number += len(ends)
        if quoted and (is_inside or b'"' in block):
            before = np.cumsum(array == _QUOTE)
            is_end = (before[ends] + is_inside) % 2 == 0
            ends, numbers = ends[is_end], numbers[is_end]
            is_inside = bool((int(before[-1]) + is_inside) % 2)
        offsets = ends + (place + 1)
        if len(offsets):
            lengths = np.diff(offsets, prepend=line) - 1
            before = np.where(ends > 0, array[ends - 1], last)
            is_blank = (lengths == 0) | ((lengths == 1) & (before == _RETURN))
            line = int(offsets[-1])
            offsets, numbers = offsets[~is_blank], numbers[~is_blank]
        place, last = place + len(block), int(array[-1])
        lengths = np.diff(np.append(offsets, place), prepend=begin)
        if lengths.max() > LONGEST_LINE:
            begins = np.append(begin_number, numbers)
            raise too_long(path, int(begins[np.argmax(lengths > LONGEST_LINE)]))
        if len(offsets):
            begin, begin_number = int(offsets[-1]), int(numbers[-1])
            yield offsets, numbers
    if is_inside:
        raise quote_open(path, begin_number)
    if place > line:
        yield np.array([place]), np.array([number + 1])


def offsets_of_every(
    step: int, file: Any, path: str, *, quoted: bool = False, header: bool = False
) -> tuple[list[int], list[int], int]:
    """Return offset and line of every row whose number is a multiple of `step`, and the rows.

    The last offset and line are those of the end. A header is not a row. The other arguments and
    the errors are those of `record_offsets`.
    """
    number, end, last = -int(header), 0, 0
    offsets: list[int] = []
    lines: list[int] = []
    for found, at in record_offsets(file, path, quoted=quoted):
        numbers = np.arange(number, number + len(found))
        is_chosen = (numbers >= 0) & (numbers % step == 0)
        offsets += found[is_chosen].tolist()
        lines += at[is_chosen].tolist()
        number, end, last = number + len(found), int(found[-1]), int(at[-1])
    rows = number - 1
    if rows > 0 and offsets[-1] != end:
        offsets.append(end)
        lines.append(last)
    return offsets, lines, rows
