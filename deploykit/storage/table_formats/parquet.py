"""Parquet as a format of tables, by its groups of rows."""

from collections.abc import Iterator, Sequence
from typing import Any

from deploykit.storage.table_formats.row_groups import GroupFormat

_AT_ONCE, _BYTES_AT_ONCE = 4096, 1 << 26  # rows that are decoded at a time, at most
_BUFFER = 1 << 20  # bytes that are read at a time from a file, which may be in an object store


class ParquetGroups:
    """An open Parquet file, with the interface of `GroupFile`."""

    def __init__(self, file: Any) -> None:
        """Read the footer, and not the rows.

        Args:
            file: a file object.

        Arrow's exceptions: the file is damaged, or another one.
        """
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(file, buffer_size=_BUFFER)
        self.schema = self._file.schema_arrow
        footer = self._file.metadata
        groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
        self.rows: Sequence[int] = [group.num_rows for group in groups]
        self.size = sum(group.total_byte_size for group in groups)
        self._at_once = min(_AT_ONCE, _BYTES_AT_ONCE * sum(self.rows) // max(1, self.size) or 1)

    def batches(self, group: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield the rows of a group; Arrow does not read several groups at once for all types."""
        yield from self._file.iter_batches(
            max(1, self._at_once), row_groups=[group], columns=list(columns), use_threads=False
        )


PARQUET = GroupFormat("Parquet", ParquetGroups)
"""The format, for `storage.tables`."""
