"""JSON Lines as a format of tables. Whole files are read without pyarrow."""

import contextlib
import functools
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from deploykit.storage.archives import check_room
from deploykit.storage.data_files import read_text_of
from deploykit.storage.table_formats.arrow_types import element_type, with_values
from deploykit.storage.table_formats.table_files import arrow, opened_table
from deploykit.storage.table_formats.table_format import (
    Bad,
    RowRange,
    RowReader,
    TableFiles,
    TableSchema,
    TextFile,
    check_rows,
    naming_damage,
)
from deploykit.transforms.common.errors import GraphError, naming
from deploykit.transforms.untrusted.files import BOM, parsed_json

_LOOKED_AT = 1 << 20  # bytes of a file from which the types of its columns are inferred


class JsonLines:
    """One JSON object per line, or an array of objects."""

    def schema(self, given: TableFiles) -> TableSchema:
        """Return the columns of some files.

        They are read until each of the `used` columns that exist has a value, and to the end for
        `every` line, or if one of those `in_folders` is in no line.
        """
        pa = arrow("reading a table")
        blocks = _blocks(given.files)
        first = next(blocks, None)
        if first is None:  # without rows, it has any columns
            types = dict.fromkeys(filter(None, given.used), pa.null())
            return TableSchema(types, (0,) * len(given.files))
        if types := _of_jsonl(pa, chain([first], blocks), given):
            return TableSchema(types)
        reason = "no line is a JSON object"
        raise GraphError("damaged-or-not", source=given.path, what="jsonl file", reason=reason)

    def reader(self, schema: TableSchema, columns: Mapping[str, str]) -> RowReader:
        """Return a reader of some columns, with values that fit their dtypes."""
        types = {n: _type_for(schema.types[n], dtype) for n, dtype in columns.items()}
        return functools.partial(_read, TextFile(), types, [n for n in columns if not columns[n]])

    def columns(self, path: str) -> Iterable[tuple[str, Any]]:
        """Return the values of each column of a whole file. FileError, GraphError."""
        content = read_text_of(path).removeprefix(BOM)
        check_room(16 * len(content), f"{path}: the table")
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            with naming(f"{path}: line {number}"):
                row = parsed_json(line, "JSON object")
                if not isinstance(row, dict):
                    got = type(row).__name__
                    raise GraphError("unexpected", what="it", got=got, expected="a JSON object")
            rows.append(row)
        if not rows:
            raise GraphError("no-samples", source=path, purpose="run")
        names = dict.fromkeys(name for row in rows for name in row)
        return ((name, [row.get(name) for row in rows]) for name in names)


def _read(
    texts: TextFile, types: Mapping[str, Any], copied: Collection[str], file: str, part: RowRange
) -> tuple[Any, Bad]:
    """Return the rows of a range, and the invalid ones."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    text = texts.read(file, part)
    schema = pa.schema(list(types.items()))
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    # Arrow ignores further keys of objects too, which a copied column has to show.
    others = "infer" if any("struct<" in str(type_) for type_ in schema.types) else "ignore"
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=others)
    with contextlib.suppress(pa.ArrowInvalid):
        if _crashes_arrow(text):
            raise pa.ArrowInvalid
        table = arrow_json.read_json(pa.BufferReader(text), read, parse)
        table = table.select(schema.names)
        table.validate(full=True)  # Arrow reads bytes that are not UTF-8
        if len(table) == part.rows and table.schema.types == schema.types:
            return table, {}
    lines = [line for line in text.split(b"\n") if line.strip(b"\r")]
    check_rows(file, part, len(lines))
    return _of_lines(pa, lines, schema, copied)


def _type_for(type_: Any, dtype: str) -> Any:
    """Return the type that JSON values are read as: that of a dtype, in the lists of a type."""
    import pyarrow as pa

    if not dtype:
        return type_
    found = element_type(type_)
    result = {"string": pa.string(), "bool": pa.bool_(), "uint64": pa.uint64()}.get(
        dtype, pa.float64() if "float" in dtype else pa.int64()
    )
    is_number = pa.types.is_integer(found) or pa.types.is_floating(found)
    if dtype != "string" and pa.types.is_boolean(found):
        result = found
    elif dtype == "bool" and is_number:
        result = found  # of which 0 and 1 fit
    return with_values(type_, result)


def _of_lines(pa: Any, lines: list[bytes], schema: Any, keep: Collection[str]) -> tuple[Any, Bad]:
    """Return JSON Lines parsed one by one; invalid ones are null.

    Booleans are also integers, unless they are copied, as `keep` are.
    """
    bad: Bad = {}
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for row, line in enumerate(lines):
        value: Any = None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad[row] = f"it is not JSON: {error}"[:200]
        if not isinstance(value, dict):
            bad.setdefault(row, "it is not a JSON object")
            value = {}
        for field in schema:
            cell = value.get(field.name)
            if (
                isinstance(cell, bool)
                and pa.types.is_integer(field.type)
                and field.name not in keep
            ):
                cell = int(cell)
            reason = ""
            try:
                if not _is_kept(cell, pa.array([cell], field.type)[0].as_py()):
                    reason = f"{json.dumps(cell):.40} is not of {field.type}"
            except (pa.ArrowException, OverflowError, UnicodeError) as error:
                reason = " ".join(str(error).split())[:120]
            if reason:
                bad.setdefault(row, f"column '{field.name}': {reason}")
                cell = None
            columns[field.name].append(cell)
    return pa.table(columns, schema=schema), bad


def _is_kept(cell: Any, stored: Any) -> bool:
    """Return whether Arrow stored a JSON value as it is, up to rounding to a float."""
    if isinstance(stored, dict):
        return cell.keys() <= stored.keys() and all(
            _is_kept(cell.get(name), value) for name, value in stored.items()
        )
    if isinstance(stored, list):
        return all(map(_is_kept, cell, stored))
    return isinstance(stored, float) or bool(cell == stored)


def _blocks(files: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield each file with its whole lines, about 1 MiB at a time, without blank blocks."""
    for file in files:
        with naming_damage(file, "jsonl file"), opened_table(file) as stream:
            for lines in _whole_lines(stream):
                if lines.removeprefix(BOM).strip():
                    yield file, lines


def _whole_lines(stream: Any) -> Iterator[bytes]:
    rest: list[bytes] = []
    while piece := bytes(stream.read(_LOOKED_AT)):
        end = len(piece) if len(piece) < _LOOKED_AT else piece.rfind(b"\n") + 1
        if end:
            yield b"".join([*rest, piece[:end]])
        rest = [piece[end:]] if end else [*rest, piece]
    yield b"".join(rest)


def _of_jsonl(pa: Any, blocks: Iterable[tuple[str, bytes]], given: TableFiles) -> dict[str, Any]:
    """Return the types of the columns of JSON Lines, where a time is a string as in JSON.

    Without any JSON object, the result is empty.
    """
    types: dict[str, Any] = {}
    for file, block in blocks:
        with naming_damage(file, "jsonl file"):
            found = _of_block(pa, block)
        for name, type_ in found.items():
            is_new = name not in types
            if is_new or (_is_unknown(pa, types[name]) and not pa.types.is_null(type_)):
                types[name] = type_
            elif given.every and _is_wider(pa, type_, types[name]):
                types[name] = with_values(types[name], pa.float64())
        is_sought = any(_is_unknown(pa, types[name]) for name in given.used if name in types)
        if not (given.every or is_sought) and types.keys() >= set(given.in_folders):
            break
    return types


def _is_wider(pa: Any, type_: Any, than: Any) -> bool:
    """Return whether a type has fractions, and another one only integers."""
    return bool(
        pa.types.is_floating(element_type(type_)) and pa.types.is_integer(element_type(than))
    )


def _is_unknown(pa: Any, type_: Any) -> bool:
    """Return whether a type is that of nulls, or of lists of them."""
    return bool(pa.types.is_null(element_type(type_)))


def _of_block(pa: Any, block: bytes) -> dict[str, Any]:
    """Return the types of the columns in some JSON Lines; without those, if none is an object."""
    from pyarrow import json as arrow_json

    options = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        if _crashes_arrow(block):
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


def _crashes_arrow(lines: bytes) -> bool:
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
    # Half a character, or integers that are too large for any other type.
    return pa.string() if isinstance(known[0], str) else pa.float64()
