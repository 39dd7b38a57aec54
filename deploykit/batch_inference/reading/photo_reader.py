"""Photos, each of which is a file."""

from collections.abc import Iterator

from deploykit.batch_inference.reading.data_part import BadRow, DataPart, RowBatch
from deploykit.batch_inference.reading.sources import key_of, reason_of
from deploykit.input.data import Data
from deploykit.transforms.core.errors import FileError
from deploykit.transforms.core.files.reading import read_bytes


class PhotoReader:
    """Reads the files of photos as they are; one that is gone or empty is a bad row."""

    def __init__(self, data: Data) -> None:
        """Take what the photos are."""
        self._data = data

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the photos of a part, so many at once."""
        for start in range(0, len(part.files), size):
            files, contents, bad = [], [], []
            for file in part.files[start : start + size]:
                key = key_of(self._data, file)
                try:
                    content = read_bytes(file)
                except FileError as error:
                    bad.append(BadRow(key, 0, reason_of(error, file)))
                    continue
                if content:
                    files.append(key)
                    contents.append(content)
                else:
                    bad.append(BadRow(key, 0, "the file is empty"))
            yield RowBatch(files, [0] * len(files), contents, bad=tuple(bad))
