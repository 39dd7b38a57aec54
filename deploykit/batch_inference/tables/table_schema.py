"""Reads the columns of a table and their types: from the footers, or the first rows of a text."""

import contextlib
import io
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from deploykit.storage import csv_files
from deploykit.storage.table_formats.arrow_types import element_type, stored_type
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import BOM

logger = logging.getLogger("deploykit")

_NUMBER = r"^\s*[-+]?[\d.]*\d[\d.]*([eE][-+]?\d+)?\s*$"
_LOOKED_AT = 1 << 20  # bytes of a text file from which the types of its columns are inferred


def column_types(
    path: str,
    format_: str,
    files: Sequence[str],
    used: Collection[str],
    in_folders: Collection[str] = (),
    layout: csv_files.CsvLayout | None = None,
    starts: Mapping[str, int] | None = None,
) -> tuple[dict[str, Any], tuple[int, ...], tuple[str, ...]]:
    """Return the types of the columns, the rows of each file if known, and the mixed columns.

    The rows are known of Parquet files, and of a table without any.
    JSON Lines are read until each of the `used` columns that exist has a value, and to the end if
    one of those that folders state, which are `in_folders`, is in no line.
    """
    pa = arrow("reading a table")
    if format_ == "parquet":
        return *_of_parquet(files, used), ()
    if format_ == "csv":
        assert layout is not None
        return _of_csv_files(pa, files, layout, starts or {})
    blocks = _blocks(files, format_)
    first = next(blocks, None)
    if first is None:  # without rows, it has any columns
        return dict.fromkeys(filter(None, used), pa.null()), (0,) * len(files), ()
    if types := _of_jsonl(pa, chain([first], blocks), used, in_folders):
        return types, (), ()
    raise GraphError(
        "damaged-or-not", source=path, what="jsonl file", reason="no line is a JSON object"
    )


def _of_csv_files(
    pa: Any, files: Sequence[str], layout: csv_files.CsvLayout, starts: Mapping[str, int]
) -> tuple[dict[str, Any], tuple[int, ...], tuple[str, ...]]:
    """Return types, rows and mixed columns as of `column_types`, by the first file with values."""
    types, has_rows = dict.fromkeys(layout.names, pa.null()), False
    for file, start in starts.items():
        with _naming(file, "csv"), opened_table(file) as stream:
            text = csv_files.first_rows(stream, file, start, _LOOKED_AT)
            table = csv_files.arrow_typed(text, layout)
        has_rows = has_rows or bool(csv_files.split(text))
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        if not all(map(pa.types.is_null, table.schema.types)):
            return types, (), _mixed(pa, table)
    return types, () if has_rows else (0,) * len(files), ()


@contextlib.contextmanager
def _naming(file: str, format_: str) -> Iterator[None]:
    """Convert exceptions of Arrow about a file into errors that name it."""
    pa = arrow("reading a table")
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, UnicodeDecodeError):
            reason = "its header is not UTF-8"
        what = f"{format_} file"
        raise GraphError("damaged-or-not", source=file, what=what, reason=reason) from None


def _of_parquet(
    files: Sequence[str], used: Collection[str]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return the types of the columns that all files have, and the number of rows of each file.

    A column of nulls has any type. GraphError: the files have different types of a `used` column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    types: dict[str, Any] = {}
    counts = []
    differing: dict[str, str] = {}
    for file in files:
        with opened_table(file) as stream, _naming(file, "parquet"):
            footer = pq.ParquetFile(stream)
            schema = footer.schema_arrow
            counts.append(footer.metadata.num_rows)
        csv_files.check_names(file, schema.names)
        own = {field.name: stored_type(field.type) for field in schema}
        types = types or own
        for name in {**types, **own}:
            type_, expected = own.get(name), types.get(name)
            if type_ is not None and expected is not None:
                if pa.types.is_null(expected):
                    types[name] = type_
                    continue
                if type_ == expected or pa.types.is_null(type_):
                    continue
            differing.setdefault(name, file)
            if name in used:
                raise GraphError(
                    "column-differs", source=file, name=name, got=_type_text(type_),
                    expected=_type_text(expected), other=files[0],
                )  # fmt: skip
    for name, file in differing.items():
        logger.warning("column '%s' is ignored: %s has another type, or lacks it", name, file)
    return {name: type_ for name, type_ in types.items() if name not in differing}, tuple(counts)


def _type_text(type_: Any) -> str:
    return "missing" if type_ is None else str(type_)


def _blocks(files: Sequence[str], format_: str) -> Iterator[tuple[str, bytes]]:
    """Yield each file with its whole lines, about 1 MiB at a time."""
    for file in files:
        with _naming(file, format_):
            for lines in _file_blocks(file, _LOOKED_AT):
                yield file, lines


def _file_blocks(file: str, size: int) -> Iterator[bytes]:
    """Yield the whole lines of a file, about `size` bytes at a time, without blank blocks."""
    with opened_table(file) as stream:
        rest: list[bytes] = []
        while piece := bytes(stream.read(size)):
            is_last = len(piece) < size
            end = len(piece) if is_last else _line_end(piece)
            lines = b"".join([*rest, piece[:end]]) if end else b""
            rest = [piece[end:]] if end else [*rest, piece]
            if lines.removeprefix(BOM).strip():
                yield lines
        if (last := b"".join(rest)).removeprefix(BOM).strip():
            yield last


def _line_end(piece: bytes) -> int:
    """Return the end of the last line that is whole; 0: there is none.

    A carriage return ends a line only in a file without line feeds: others have it in cells.
    """
    return piece.rfind(b"\n") + 1 or piece[:-1].rfind(b"\r") + 1


def _of_jsonl(
    pa: Any,
    blocks: Iterable[tuple[str, bytes]],
    used: Collection[str],
    in_folders: Collection[str],
) -> dict[str, Any]:
    """Return the types of the columns of JSON Lines, where a time is a string as in JSON.

    Without any JSON object, the result is empty.
    """
    types: dict[str, Any] = {}
    for file, block in blocks:
        with _naming(file, "jsonl"):
            found = _of_block(pa, block)
        for name, type_ in found.items():
            is_new = name not in types
            if is_new or (_is_unknown(pa, types[name]) and not pa.types.is_null(type_)):
                types[name] = type_
        is_sought = any(_is_unknown(pa, types[name]) for name in used if name in types)
        if not is_sought and types.keys() >= set(in_folders):
            break
    return types


def _is_unknown(pa: Any, type_: Any) -> bool:
    """Return whether a type is that of nulls, or of lists of them."""
    return bool(pa.types.is_null(element_type(type_)))


def _of_block(pa: Any, block: bytes) -> dict[str, Any]:
    """Return the types of the columns in some JSON Lines; without those, if none is an object."""
    from pyarrow import json as arrow_json

    options = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        if crashes_arrow(block):
            raise pa.ArrowInvalid
        table = arrow_json.read_json(io.BytesIO(block), options)
    except pa.ArrowInvalid:
        return {name: _of_values(pa, found) for name, found in _values(block).items()}
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    large = [name for name in types if _is_large(pa, table.column(name))]
    if large:
        values = _values(block)
        types |= {name: _of_values(pa, values[name]) for name in large}
    try:
        return {name: _without_times(pa, type_) for name, type_ in types.items()}
    except RecursionError:
        raise pa.ArrowInvalid("its values are nested too deeply") from None


def crashes_arrow(lines: bytes) -> bool:
    """Return whether Arrow dies of some JSON Lines: it does if the first one begins with null."""
    return lines.removeprefix(BOM).lstrip().startswith(b"null")


def _without_times(pa: Any, type_: Any) -> Any:
    """Return a type with strings instead of times, also in lists and structs."""
    if pa.types.is_list(type_):
        return pa.list_(_without_times(pa, type_.value_type))
    if pa.types.is_struct(type_):
        fields = [type_.field(place) for place in range(type_.num_fields)]
        return pa.struct([(field.name, _without_times(pa, field.type)) for field in fields])
    return pa.string() if pa.types.is_temporal(type_) else type_


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
        with contextlib.suppress(pa.ArrowException, OverflowError, UnicodeError):
            if few:
                return pa.array(few).type
    return pa.float64()  # with integers that are too large for any other type


def _mixed(pa: Any, table: Any) -> tuple[str, ...]:
    """Return the text columns of a table of which some cells are numbers."""
    import pyarrow.compute as pc

    return tuple(
        field.name
        for place, field in enumerate(table.schema)
        if pa.types.is_string(field.type)
        and pc.any(pc.match_substring_regex(table.column(place), _NUMBER)).as_py()
    )
