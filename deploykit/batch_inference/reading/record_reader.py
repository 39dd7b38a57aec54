"""The records of TFRecord files."""

from collections.abc import Iterator
from itertools import islice

from deploykit.batch_inference.reading.data_part import DataPart, RowBatch
from deploykit.batch_inference.reading.sources import key_of
from deploykit.input.data import Data
from deploykit.transforms.core.tfrecord import read_records


class RecordReader:
    """Reads serialized Examples; a file stays open from part to part."""

    def __init__(self, data: Data) -> None:
        """Take how the files are written."""
        self._data = data
        self._file, self._next = "", 0
        self._records: Iterator[bytes] = iter(())

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the records of a part, so many at once. FileError: the file cannot be read."""
        (file,) = part.files
        if self._file != file or self._next > part.start:
            self._file, self._next = file, 0
            self._records = read_records(file, bool(self._data.compression))
        for _ in islice(self._records, part.start - self._next):
            pass
        self._next = part.start
        key = key_of(self._data, file)
        while group := list(islice(self._records, min(size, part.stop - self._next))):
            rows = range(self._next, self._next + len(group))
            self._next = rows.stop
            yield RowBatch([key] * len(group), rows, group)
