"""Finds where the records of a text file begin, without parsing them.

A line feed ends a record. In a table as CSV, a carriage return ends one too, as in Arrow's parser,
and neither does between double quotes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import BOM, LONGEST_LINE, readable_size

_BLOCK = 4 << 20
_FEED, _RETURN, _QUOTE = b'\n\r"'


def record_offsets(
    file: Any, path: str, *, quoted: bool = False, blanks: bool = False
) -> Iterator[Array]:
    """Yield arrays with the offsets at which records end; the first is where the first one begins.

    With `quoted`, a carriage return ends a record too, and neither it nor a line feed does between
    double quotes. Without `blanks`, an empty line belongs to the record after it. A byte-order mark
    is not part of the first record.
    GraphError: a record is longer than the limit, or the last quote is not closed.
    """
    start = len(BOM) if bytes(file.read(len(BOM))) == BOM else 0
    file.seek(start)
    yield np.array([start])
    place = begin = line = start
    is_inside, last, number = False, 0, 1
    while block := bytes(file.read(_BLOCK)):
        while quoted and block.endswith(b"\r") and (more := bytes(file.read(1))):
            block += more  # whether a line feed follows decides where the record ends
        array = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(array == _FEED)
        if quoted and b"\r" in block:
            is_followed = np.append(array[1:] == _FEED, False)
            ends = np.flatnonzero((array == _FEED) | ((array == _RETURN) & ~is_followed))
        if quoted and (is_inside or b'"' in block):
            before = np.cumsum(array == _QUOTE)
            ends = ends[(before[ends] + is_inside) % 2 == 0]
            is_inside = bool((int(before[-1]) + is_inside) % 2)
        offsets = ends + (place + 1)
        if len(offsets):
            lengths = np.diff(offsets, prepend=line) - 1
            before = np.where(ends > 0, array[ends - 1], last)
            is_blank = (lengths == 0) | ((lengths == 1) & (before == _RETURN))
            line = int(offsets[-1])
            offsets = offsets if blanks else offsets[~is_blank]
        place, last = place + len(block), int(array[-1])
        lengths = np.diff(np.append(offsets, place), prepend=begin)
        if lengths.max() > LONGEST_LINE:
            number += int(np.argmax(lengths > LONGEST_LINE))
            raise GraphError(
                "line-too-long",
                source=path,
                number=number,
                what="table",
                longest=readable_size(LONGEST_LINE),
            )
        if len(offsets):
            begin, number = int(offsets[-1]), number + len(offsets)
            yield offsets
    if is_inside:
        raise GraphError("csv-quote-open", source=path)
    if place > line:
        yield np.array([place])
