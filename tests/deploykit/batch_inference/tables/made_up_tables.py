"""Graphs that take the columns of a table, and tables in each format."""

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.tables.table_data import ColumnChoice, open_table
from deploykit.batch_inference.tables.table_reader import TableReader
from deploykit.data.preprocessing import Preprocessing
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType


def graph(**inputs: tuple[str, tuple[int, ...]]) -> Graph:
    """Return a graph with only these inputs."""
    nodes = [
        Node(name, "Placeholder").with_attrs(dtype=DType(type_), shape=shape)
        for name, (type_, shape) in inputs.items()
    ]
    return Graph(nodes, list(inputs), list(inputs))


def write_table(path, table: pa.Table, rows_of_group: int = 7) -> str:
    """Write a table in the format of a path's end; CSV has no nulls, they are empty cells."""
    rows = table.to_pylist()
    if path.suffix == ".gz":
        plain = Path(write_table(path.with_suffix(""), table))
        with gzip.open(path, "wb") as file:
            file.write(plain.read_bytes())
        plain.unlink()
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    elif path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows_of_group)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with open(path, "w", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(table.column_names)
            writer.writerows(["" if v is None else v for v in row.values()] for row in rows)
    return str(path)


def opened(path, model, columns=None, keep=(), vocabulary=None):
    """Return a table as a run opens it."""
    choice = ColumnChoice(columns or {}, tuple(keep), vocabulary)
    return open_table(str(path), model, Preprocessing(), choice)[0]


def read(data, size=5):
    """Return the rows that are valid, with their numbers and copied cells, and those that are not.

    Each part is read by a reader of its own, as by several workers, and checked to be whole.
    """
    good, bad = [], {}
    for part in cut_parts(data, None):
        seen = 0
        for batch in TableReader(data).batches(part, size):
            seen += len(batch.rows) + len(batch.bad)
            for place, row in enumerate(batch.rows):
                values = {name: array[place] for name, array in batch.arrays.items()}
                kept = {name: column[place].as_py() for name, column in batch.kept.items()}
                good.append((batch.files[place], row, values, kept))
            bad |= {each.row: each.reason for each in batch.bad}
        assert seen == part.rows
    return good, bad
