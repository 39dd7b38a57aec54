"""What reads the parts of data of each kind."""

from collections.abc import Callable

from deploykit.batch_inference.reading.array_reader import ArrayReader
from deploykit.batch_inference.reading.data_part import PartReader
from deploykit.batch_inference.reading.line_reader import LineReader
from deploykit.batch_inference.reading.photo_reader import PhotoReader
from deploykit.batch_inference.reading.record_reader import RecordReader
from deploykit.input.data import Data

_READERS: dict[str, Callable[[Data], PartReader]] = {
    "records": RecordReader,
    "csv": LineReader,
    "images": PhotoReader,
    "arrays": ArrayReader,
}


def reader_for(data: Data) -> PartReader:
    """Return what reads parts of these data; of arrays, those that are features are read.

    The data may lack their files, counts and labels: a part names its own file.
    """
    return _READERS[data.kind](data)
