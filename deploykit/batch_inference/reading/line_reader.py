"""The lines of CSV files."""

from collections.abc import Iterator
from itertools import islice

from deploykit.batch_inference.reading.data_part import DataPart, RowBatch
from deploykit.batch_inference.reading.sources import CHANGED, check_size, key_of
from deploykit.input.data import Data
from deploykit.transforms.core.errors import FileError
from deploykit.transforms.core.files.reading import cannot_be_read, opened


class LineReader:
    """Reads lines without their ends; blank ones too, which are rows that cannot be used."""

    def __init__(self, data: Data) -> None:
        """Take what the lines are."""
        self._data = data

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the lines of a part, so many at once.

        FileError: the file cannot be read, or has changed since it was cut.
        """
        (file,) = part.files
        key, number = key_of(self._data, file), part.start
        lines = iter(_lines(part, file))
        while group := [line.rstrip(b"\r\n") for line in islice(lines, size)]:
            rows = range(number, number + len(group))
            number += len(group)
            yield RowBatch([key] * len(group), rows, group)


def _lines(part: DataPart, file: str) -> list[bytes]:
    """Return the lines of a part with their ends."""
    try:
        with opened(file) as stream:
            check_size(part)
            stream.seek(max(0, part.offset - 1))
            before = stream.read(1) if part.offset else b"\n"
            text = stream.read(part.bytes)
            behind = stream.read(1)
    except OSError as error:
        raise cannot_be_read(file, error) from None
    lines = text.split(b"\n")
    if not lines[-1]:
        del lines[-1]
    begins = before == b"\n" or part.offset == 3  # a byte-order mark is in front of the first
    ends = text.endswith(b"\n") or not behind
    if len(lines) != part.rows or len(text) != part.bytes or not (begins and ends):
        raise FileError(
            "data-changed",
            source=file,
            what="its lines are not those that were counted",
            changed=CHANGED,
        )
    return lines
