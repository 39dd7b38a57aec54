"""Tables in memory as data, and predictions as a table of the same kind.

The rows go to the workers through a temporary Parquet file, so that they have the memory and the
failure handling of any other run.
"""

import contextlib
import copy
import io
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploykit.batch_inference.formats.part_table import FILE, ROW
from deploykit.storage.table_formats.table_files import arrow
from deploykit.transforms.common.errors import CodedError, GraphError

logger = logging.getLogger("deploykit")

_KINDS = {
    ("pyarrow", "Table"): "arrow",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
    ("ray", "Dataset"): "ray",
    ("ray", "MaterializedDataset"): "ray",
}
_AT_ONCE = 4096  # rows of a Ray Dataset that are written at a time


@dataclass(frozen=True)
class Frame:
    """A table in memory."""

    data: Any
    kind: str
    """One of arrow, pandas, polars, ray."""

    @classmethod
    def of(cls, data: Any) -> "Frame | None":
        """Return a table in memory; None: `data` is a path."""
        if isinstance(data, str | os.PathLike):
            return None
        type_ = type(data)
        kind = _KINDS.get((type_.__module__.partition(".")[0], type_.__name__))
        if kind is None:
            expected = "a path, a pyarrow Table, a pandas or polars DataFrame, or a Ray Dataset"
            got = type_.__name__
            raise GraphError("unexpected", what="the data", got=got, expected=expected)
        return cls(data, kind)

    @contextlib.contextmanager
    def in_folder(self) -> Iterator[Path]:
        """Yield a temporary folder that contains the rows as `data.parquet`.

        Errors that are raised meanwhile name the table instead of this file.
        """
        pa = arrow("a table in memory")
        import pyarrow.parquet as pq

        with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
            writer = None
            try:
                for table in self._tables(pa):
                    if writer is None:
                        places = list(_storable(pa, table.slice(0, _AT_ONCE)))
                        schema = table.select(places).schema
                        writer = pq.ParquetWriter(f"{folder}/data.parquet", schema)
                    table = table.select(places).cast(writer.schema)
                    writer.write_table(table, row_group_size=_AT_ONCE)
            except (pa.ArrowException, ValueError) as error:  # ValueError: other columns
                reason = " ".join(str(error).split())[:200]
                raise GraphError("data-not-a-table", reason=reason) from None
            finally:
                if writer is not None:
                    writer.close()
            if writer is None:
                raise GraphError("no-samples", source="the table", purpose="run")
            try:
                yield Path(folder)
            except CodedError as error:
                raise _about_table(error, f"{folder}/data.parquet") from None

    def predictions(self, files: Sequence[Path], keep: Sequence[str]) -> Any:
        """Return the rows of result files as a table of the same kind as the data.

        `row` is the number of the row in the data, and `keep` are copied columns. A pandas
        DataFrame has the index of the data. Copies in pandas and polars have the dtypes of the
        data, also if these have no equal in Parquet.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = [pq.read_table(file) for file in files]
        parts = [part for part in parts if len(part)] or parts[:1]  # empty ones may lack types
        table = pa.concat_tables(parts, promote_options="default").drop_columns([FILE])
        rows = table[ROW].to_numpy()
        if self.kind == "pandas":
            places = {str(name): place for place, name in enumerate(self.data.columns)}
            frame = table.drop_columns(list(keep)).to_pandas().set_index(self.data.index[rows])
            for name in keep:
                column = self.data.iloc[:, places[name]].iloc[rows]
                frame.insert(table.column_names.index(name), name, column.set_axis(frame.index))
            return frame
        if self.kind == "polars":
            import polars

            frame = polars.DataFrame(table.drop_columns(list(keep)))
            copied = [self.data[name][rows] for name in keep]
            return frame.with_columns(copied).select(table.column_names)
        if self.kind == "ray":
            import ray

            return ray.data.from_arrow(table)
        return table

    def _tables(self, pa: Any) -> Iterator[Any]:
        """Yield the rows as Arrow tables."""
        if self.kind == "ray":
            schema, is_empty = self.data.schema(), True
            for table in self.data.iter_batches(batch_size=_AT_ONCE, batch_format="pyarrow"):
                is_empty = False
                yield table
            if is_empty and schema is not None:
                fields = zip(schema.names, schema.types, strict=True)
                yield pa.schema([(name, type_) for name, type_ in fields]).empty_table()
        elif self.kind == "arrow":
            yield self.data
        else:
            columns = list(_columns(pa, self.data, self.kind))
            names = [name for name, _ in columns]
            yield pa.Table.from_arrays([column for _, column in columns], names)


def _columns(pa: Any, frame: Any, kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a DataFrame; missing values of pandas, also NaN, are null.

    A column with values that Arrow does not hold is ignored, as the model may not need it.
    """
    for place, name in enumerate(frame.columns):
        try:
            if kind == "pandas":
                yield str(name), pa.Array.from_pandas(frame.iloc[:, place])
            elif str(frame[name].dtype) == "Object":  # of which to_arrow makes addresses
                raise TypeError("its values are Python objects")
            else:
                yield name, frame[name].to_arrow()
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            _tell_ignored(name, error)


def _about_table(error: CodedError, file: str) -> CodedError:
    """Return an error about the temporary file as one about the table."""
    changed = copy.copy(error)
    changed.fields = {
        name: value.replace(file, "the table") if isinstance(value, str) else value
        for name, value in error.fields.items()
    }
    return changed


def _storable(pa: Any, table: Any) -> Iterator[int]:
    """Yield the places of the columns that Parquet holds; ArrowInvalid: there are none."""
    import pyarrow.parquet as pq

    is_empty = True
    for place, name in enumerate(table.column_names):
        try:
            pq.write_table(table.select([place]), io.BytesIO())
        except pa.ArrowException as error:
            _tell_ignored(name, error)
        else:
            is_empty = False
            yield place
    if is_empty:
        raise pa.ArrowInvalid("it has no column that Parquet holds")


def _tell_ignored(name: object, error: Exception) -> None:
    reason = " ".join(str(error).split())[:200]
    logger.warning("column '%s' of the table is ignored: %s", name, reason)
