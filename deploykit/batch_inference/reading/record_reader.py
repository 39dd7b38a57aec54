"""The records of TFRecord files."""

from collections.abc import Iterator, Sequence
from itertools import islice

from deploykit.batch_inference.reading.data_part import BadRow, DataPart, RowBatch
from deploykit.batch_inference.reading.sources import check_size, key_of
from deploykit.input.data import Data
from deploykit.transforms.core.tfrecord import DamagedRecord, read_all_records


class RecordReader:
    """Reads serialized Examples, damaged ones as bad rows; a file stays open from part to part."""

    def __init__(self, data: Data) -> None:
        """Take how the files are written."""
        self._data = data
        self._file, self._next = "", 0
        self._records: Iterator[bytes | DamagedRecord] = iter(())

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the records of a part, so many at once.

        FileError: the file cannot be read, or has changed since it was cut. VerificationError: it
        holds other records than its index says.
        """
        (file,) = part.files
        check_size(part)
        if self._file != file or self._next > part.start:
            self._file, self._next = file, 0
            compressed = bool(self._data.compression)
            self._records = read_all_records(file, compressed, part.file_rows)
        for _ in islice(self._records, part.start - self._next):
            pass
        self._next = part.start
        key = key_of(self._data, file)
        while group := list(islice(self._records, min(size, part.stop - self._next))):
            rows = range(self._next, self._next + len(group))
            self._next = rows.stop
            yield _batch(key, rows, group)
        if part.stop == part.file_rows:
            for _ in self._records:  # there is none, which is checked
                pass


def _batch(key: str, rows: range, group: Sequence[bytes | DamagedRecord]) -> RowBatch:
    sound = {row: each for row, each in zip(rows, group, strict=True) if isinstance(each, bytes)}
    bad = tuple(
        BadRow(key, row, each.reason)
        for row, each in zip(rows, group, strict=True)
        if isinstance(each, DamagedRecord)
    )
    return RowBatch([key] * len(sound), list(sound), list(sound.values()), bad=bad)
