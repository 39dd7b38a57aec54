"""Where the lines of a text file begin, found at the speed of memory."""

from collections.abc import Iterator

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.files.reading import (
    BOM,
    LONGEST_LINE,
    cannot_be_read,
    opened,
    said,
)
from deploykit.transforms.core.tensors import Array

_BLOCK = 4 << 20
_FEED = 10


def line_offsets(path: str) -> Iterator[Array]:
    """Yield the offsets at which lines begin, many at once, and as the last one where they end.

    A line feed alone ends a line; a byte-order mark is no part of the first one.
    FileError: the file cannot be read. GraphError: it is no text.
    """
    with opened(path) as file:
        try:
            begin = place = len(BOM) if file.read(len(BOM)) == BOM else 0
            file.seek(begin)
            yield np.array([begin])
            number = 1
            while block := file.read(_BLOCK):
                found = np.flatnonzero(np.frombuffer(block, np.uint8) == _FEED) + (place + 1)
                place += len(block)
                ends = np.append(found, place)
                if (lengths := np.diff(ends, prepend=begin)).max() > LONGEST_LINE:
                    number += int(np.argmax(lengths > LONGEST_LINE))
                    raise GraphError(
                        "line-too-long",
                        source=path,
                        number=number,
                        longest=said(LONGEST_LINE),
                        what="CSV file",
                    )
                if len(found):
                    begin = int(found[-1])
                    number += len(found)
                    yield found
            if place > begin:
                yield np.array([place])
        except OSError as error:
            raise cannot_be_read(path, error) from None
