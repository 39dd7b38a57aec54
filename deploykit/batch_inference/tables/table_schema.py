"""Reads the columns of a table and their types: from the footers, or the first rows of a text."""

import contextlib
import csv as text_csv
import io
import json
from collections.abc import Sequence
from typing import Any

from deploykit.batch_inference.tables.table_files import arrow, opened_table
from deploykit.transforms.common.errors import GraphError

_NUMBER = r"^\s*[-+]?[\d.]*\d[\d.]*([eE][-+]?\d+)?\s*$"
_LOOKED_AT = 1 << 20  # bytes of a text file from which the types of its columns are inferred
_HEADER = 1 << 16  # bytes of a CSV file in which its header is looked for


def column_types(
    path: str, format_: str, files: Sequence[str]
) -> tuple[dict[str, Any], tuple[int, ...], tuple[str, ...]]:
    """Return the types of the columns, the rows of each Parquet file, and the mixed columns."""
    pa = arrow("reading a table")
    counts: tuple[int, ...] = ()
    mixed: tuple[str, ...] = ()
    try:
        if format_ == "parquet":
            schema, counts = _of_parquet(files)
        elif format_ == "csv":
            schema, mixed = _of_csv(pa, _head(files))
            _check_headers(files, schema.names)
        else:
            schema = _of_jsonl(_head(files))
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        what = f"{format_} file"
        raise GraphError("damaged-or-not", source=path, what=what, reason=reason) from None
    names = list(schema.names)
    if len(set(names)) < len(names):
        raise GraphError("two-columns-same-name", source=path)
    return dict(zip(names, schema.types, strict=True)), counts, mixed


def _of_parquet(files: Sequence[str]) -> tuple[Any, tuple[int, ...]]:
    """Return the schema and the number of rows of each file. GraphError: the schemas differ."""
    import pyarrow.parquet as pq

    schemas, counts = [], []
    for file in files:
        with opened_table(file) as stream:
            footer = pq.ParquetFile(stream)
            schemas.append(footer.schema_arrow)
            counts.append(footer.metadata.num_rows)
        if not schemas[-1].equals(schemas[0]):
            raise GraphError("table-schemas-differ", source=file, other=files[0])
    return schemas[0], tuple(counts)


def _head(files: Sequence[str]) -> bytes:
    """Return the first whole lines of the first file that is not empty."""
    for file in files:
        if head := _first_lines(file, _LOOKED_AT):
            return head
    raise GraphError("no-samples", source=files[0], purpose="run")


def _first_lines(file: str, size: int) -> bytes:
    """Return the whole lines in the first bytes of a file, at least one; empty: it has none."""
    with opened_table(file) as stream:
        head = bytes(stream.read(size))
        if len(head) == size:
            head = head[: head.rfind(b"\n") + 1] or head + bytes(stream.readall())
    return head if head.strip() else b""


def _check_headers(files: Sequence[str], names: Sequence[str]) -> None:
    """Raise GraphError for a CSV file whose header is not that of the others."""
    for file in files:
        head = _first_lines(file, _HEADER).decode(errors="surrogateescape")
        try:
            rows = text_csv.reader(io.StringIO(head.lstrip("\ufeff\r\n"), newline=""))
            header = [name.strip() for name in next(rows, [])]
        except text_csv.Error:  # a cell that is too long for a name
            header = [""]
        if head and header != list(names):
            raise GraphError("table-schemas-differ", source=file, other=files[0])


def _of_jsonl(head: bytes) -> Any:
    """Return the schema of JSON Lines, where a time is a string as in JSON."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    options = arrow_json.ReadOptions(use_threads=False, block_size=len(head) + 1)
    try:
        schema = arrow_json.read_json(io.BytesIO(head), options).schema
    except pa.ArrowInvalid:
        schema = _of_lines(pa, head.split(b"\n"))
    types = [pa.string() if pa.types.is_temporal(type_) else type_ for type_ in schema.types]
    return pa.schema(list(zip(schema.names, types, strict=True)))


def _of_lines(pa: Any, lines: Sequence[bytes]) -> Any:
    """Return the schema of JSON Lines of which some are invalid: the first value decides."""
    values: dict[str, list[Any]] = {}
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            for name, value in json.loads(line).items():
                values.setdefault(name, []).append(value)
    fields = []
    for name, found in values.items():
        try:
            fields.append(pa.field(name, pa.array(found).type))
        except (pa.ArrowException, OverflowError):
            first = next((value for value in found if value is not None), None)
            fields.append(pa.field(name, pa.array([first]).type))
    if not fields:
        raise pa.ArrowInvalid("no line is a JSON object")
    return pa.schema(fields)


def _of_csv(pa: Any, head: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the schema of CSV text, and the text columns of which some cells are numbers."""
    import pyarrow.compute as pc
    from pyarrow import csv

    parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    read = csv.ReadOptions(use_threads=False, block_size=len(head) + 1)
    table = csv.read_csv(io.BytesIO(head), read, parse)
    table = table.rename_columns([name.strip() for name in table.column_names])
    texts = {
        field.name: n for n, field in enumerate(table.schema) if pa.types.is_string(field.type)
    }
    return table.schema, tuple(
        name
        for name, place in texts.items()
        if pc.any(pc.match_substring_regex(table.column(place), _NUMBER)).as_py()
    )
