"""The rows of one part as columns, gathered batch by batch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from deploykit.transforms.core.tensors import Array

FILE, ROW = "file", "row"
"""The columns that say where a row comes from: its file, below the folder of the data, and its
number there."""


class PartFormat(Protocol):
    """How columns become the bytes of a file, the same for the same columns."""

    def pieces(self, columns: Mapping[str, Array]) -> Iterator[bytes]:
        """Yield the bytes of a file that holds these columns, of equal numbers of rows."""
        ...


class PartTable:
    """What a model answered of the rows of a part."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._sources: list[tuple[str, int]] = []
        self._batches: list[Mapping[str, Array]] = []

    def add(self, files: Sequence[str], rows: Sequence[int], columns: Mapping[str, Array]) -> None:
        """Take the answers to some rows, rows first."""
        self._sources.extend(zip(files, rows, strict=True))
        self._batches.append(columns)
