"""Reads the columns of a table and their types: from the footers, or the first rows of a text."""

import contextlib
import csv as text_csv
import io
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from deploykit.batch_inference.tables.table_files import arrow, opened_table
from deploykit.batch_inference.tables.table_values import element_type
from deploykit.transforms.common.errors import GraphError

_NUMBER = r"^\s*[-+]?[\d.]*\d[\d.]*([eE][-+]?\d+)?\s*$"
_LOOKED_AT = 1 << 20  # bytes of a text file from which the types of its columns are inferred
_HEADER = 1 << 16  # bytes of a CSV file in which its header is looked for


def column_types(
    path: str, format_: str, files: Sequence[str], used: Collection[str]
) -> tuple[dict[str, Any], tuple[int, ...], tuple[str, ...]]:
    """Return the types of the columns, the rows of each Parquet file, and the mixed columns.

    JSON Lines are read until each of the `used` columns that exist has a value.
    """
    pa = arrow("reading a table")
    counts: tuple[int, ...] = ()
    mixed: tuple[str, ...] = ()
    try:
        if format_ == "parquet":
            schema, counts = _of_parquet(files)
        elif format_ == "csv":
            schema, mixed = _of_csv(pa, next(_blocks(files)))
            _check_headers(files, schema.names)
        else:
            schema = _of_jsonl(pa, _blocks(files), used)
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    schemas, counts = [], []
    for file in files:
        with opened_table(file) as stream:
            footer = pq.ParquetFile(stream)
            schemas.append(_as_stored(pa, footer.schema_arrow))
            counts.append(footer.metadata.num_rows)
        if not schemas[-1].equals(schemas[0]):
            raise GraphError("table-schemas-differ", source=file, other=files[0])
    return schemas[0], tuple(counts)


def _as_stored(pa: Any, schema: Any) -> Any:
    """Return a schema in which types are as `stored_type` says."""
    return pa.schema([field.with_type(stored_type(pa, field.type)) for field in schema])


def stored_type(pa: Any, type_: Any) -> Any:
    """Return the type that an extension type stores or a view of texts shows, or the type itself.

    A tensor of several axes is not what it stores, which is one flat list in any order of the axes.
    """
    views = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    if type_ in views:
        return views[type_]
    is_tensor = isinstance(type_, pa.FixedShapeTensorType) and len(type_.shape) > 1
    is_extension = isinstance(type_, pa.BaseExtensionType) and not is_tensor
    return type_.storage_type if is_extension else type_


def _blocks(files: Sequence[str]) -> Iterator[bytes]:
    """Yield the whole lines of files, about 1 MiB at a time. GraphError: all files are empty."""
    is_empty = True
    for file in files:
        for lines in _file_blocks(file, _LOOKED_AT):
            is_empty = False
            yield lines
    if is_empty:
        raise GraphError("no-samples", source=files[0], purpose="run")


def _file_blocks(file: str, size: int) -> Iterator[bytes]:
    """Yield the whole lines of a file, about `size` bytes at a time, without blank blocks."""
    with opened_table(file) as stream:
        rest: list[bytes] = []
        while piece := bytes(stream.read(size)):
            is_last = len(piece) < size
            end = len(piece) if is_last else piece.rfind(b"\n") + 1
            lines = b"".join([*rest, piece[:end]]) if end else b""
            rest = [piece[end:]] if end else [*rest, piece]
            if lines.strip():
                yield lines
        if (last := b"".join(rest)).strip():
            yield last


def _check_headers(files: Sequence[str], names: Sequence[str]) -> None:
    """Raise GraphError for a CSV file whose header is not that of the others."""
    for file in files:
        head = next(_file_blocks(file, _HEADER), b"").decode(errors="surrogateescape")
        try:
            rows = text_csv.reader(io.StringIO(head.lstrip("\ufeff\r\n"), newline=""))
            header = [name.strip() for name in next(rows, [])]
        except text_csv.Error:  # a cell that is too long for a name
            header = [""]
        if head and header != list(names):
            raise GraphError("table-schemas-differ", source=file, other=files[0])


def _of_jsonl(pa: Any, blocks: Iterator[bytes], used: Collection[str]) -> Any:
    """Return the schema of JSON Lines, where a time is a string as in JSON."""
    types: dict[str, Any] = {}
    for block in blocks:
        for name, type_ in _of_block(pa, block).items():
            is_new = name not in types
            if is_new or (_is_unknown(pa, types[name]) and not pa.types.is_null(type_)):
                types[name] = type_
        if not any(_is_unknown(pa, types[name]) for name in used if name in types):
            break
    if not types:
        raise pa.ArrowInvalid("no line is a JSON object")
    return pa.schema(list(types.items()))


def _is_unknown(pa: Any, type_: Any) -> bool:
    """Return whether a type is that of nulls, or of lists of them."""
    return bool(pa.types.is_null(element_type(type_)))


def _of_block(pa: Any, block: bytes) -> dict[str, Any]:
    """Return the types of the columns in some JSON Lines; without those, if none is an object."""
    from pyarrow import json as arrow_json

    options = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = arrow_json.read_json(io.BytesIO(block), options)
    except pa.ArrowInvalid:
        return {name: _of_values(pa, found) for name, found in _values(block).items()}
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    large = [name for name in types if _is_large(pa, table.column(name))]
    if large:
        values = _values(block)
        types |= {name: _of_values(pa, values[name]) for name in large}
    return {
        name: pa.string() if pa.types.is_temporal(type_) else type_ for name, type_ in types.items()
    }


def _is_large(pa: Any, column: Any) -> bool:
    """Return whether a column, or its lists, contain floats above the integers of int64."""
    import pyarrow.compute as pc

    if pa.types.is_list(column.type):
        column = pc.list_flatten(column, recursive=True)
    is_float = pa.types.is_floating(column.type)
    return is_float and bool(pc.any(pc.greater_equal(column, 2.0**63), min_count=0).as_py())


def _values(block: bytes) -> dict[str, list[Any]]:
    """Return the values of the JSON Lines that are valid, by column."""
    values: dict[str, list[Any]] = {}
    for line in block.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            for name, value in json.loads(line).items():
                values.setdefault(name, []).append(value)
    return values


def _of_values(pa: Any, values: Sequence[Any]) -> Any:
    """Return the type of JSON values; if they have several, the first one decides."""
    known, depth = [value for value in values if value is not None], 0
    while known and all(isinstance(value, list) for value in known):
        known, depth = [item for value in known for item in value if item is not None], depth + 1
    type_ = _of_scalars(pa, known)
    for _ in range(depth):
        type_ = pa.list_(type_)
    return type_


def _of_scalars(pa: Any, known: Sequence[Any]) -> Any:
    """Return the type of JSON values that are not null, and not all lists."""
    if not known:
        return pa.null()
    if all(type(value) is int and 0 <= value < 2**64 for value in known):
        return pa.int64() if max(known) < 2**63 else pa.uint64()
    are_numbers = all(type(value) in (int, float) for value in known)
    for few in (known, () if are_numbers else known[:1]):
        with contextlib.suppress(pa.ArrowException, OverflowError):
            if few:
                return pa.array(few).type
    return pa.float64()  # with integers that are too large for any other type


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
