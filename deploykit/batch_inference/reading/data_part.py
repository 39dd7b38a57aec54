"""A part of data, the rows that are read of it, and what cannot be read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from deploykit.transforms.core.tensors import Array


@dataclass(frozen=True)
class DataPart:
    """Rows that are computed together and written to one file. Any process can read them alone.

    They are whole files, of photos, or the rows `start` to `stop` of one file: records, samples of
    arrays, lines. Parts depend on nothing but the data and the model.
    """

    number: int
    files: tuple[str, ...]
    """As they are opened."""
    start: int = 0
    """The number of its first row in its file, from 0; of lines, from 1; of a photo, among all."""
    stop: int = 0
    """The number behind its last row."""
    offset: int = 0
    """Of lines: where in the file the first one begins, in bytes."""
    bytes: int = 0
    """That its rows take in the file, about; of lines, exactly; 0 of photos."""
    file_rows: int = 0
    """How many rows its file has, with those of other parts; 0 where that does not matter."""
    file_bytes: int = 0
    """How large its file was when it was cut; 0 of photos."""

    @property
    def rows(self) -> int:
        """How many rows it has, damaged ones included."""
        return self.stop - self.start


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: its file, its place there, and the reason in words."""

    file: str
    """Below the folder of the data, as `sources.key_of` returns it."""
    row: int
    """Its number in the file, as in `DataPart.start`; 0 of a photo."""
    reason: str


@dataclass(frozen=True)
class RowBatch:
    """Some rows of a part in their order: those that could be read, and those that could not."""

    files: Sequence[str]
    """The file of each row that could be read, as in `BadRow.file`."""
    rows: Sequence[int]
    """The number of each such row in its file."""
    contents: Sequence[bytes] = ()
    """Of each such row: a serialized Example, a file of a photo, or a line without its end."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Of arrays, instead: the values of these rows, by feature, rows first."""
    bad: tuple[BadRow, ...] = ()


class PartReader(Protocol):
    """What reads parts in a worker; it is quick where parts come in the order of their numbers."""

    def batches(self, part: DataPart, size: int) -> Iterator[RowBatch]:
        """Yield the rows of a part, so many at once, bad ones counted.

        FileError: a file cannot be read at all.
        """
        ...
