"""Files of data by the ends of their names, and the text of compressed ones, unpacked in limits.

A `.json` file that is an array of objects is read as one object per line.
"""

import io
import json
import os
from pathlib import PurePath
from typing import IO, Any

from deploykit.storage.archives import check_room
from deploykit.transforms.common.errors import FileError, GraphError
from deploykit.transforms.common.messages import shell_word
from deploykit.transforms.untrusted.files import (
    GZIP_END,
    LONGEST_LINE,
    MAX_BYTES,
    opened,
    parsed_json,
    read_up_to,
    readable_size,
    unpacked,
)

HEAD = 1 << 20
"""The number of bytes of a file in which its first rows are looked for."""
NUMPY_END = ".npz"
_TEXTS = {".csv": "csv", ".json": "jsonl", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FORMATS = {**_TEXTS, ".parquet": "parquet", ".pq": "parquet"}
"""The format of a table, by the end of its file name."""


def format_of(path: str | os.PathLike[str]) -> str | None:
    """Return the format of a table, by the end of its name; None: it is not a table."""
    name = PurePath(path).name.lower()
    if name.endswith(GZIP_END):
        return _TEXTS.get(PurePath(name.removesuffix(GZIP_END)).suffix)
    return FORMATS.get(PurePath(name).suffix)


def table_ends() -> tuple[str, ...]:
    """Return the ends of the names of tables."""
    return (*FORMATS, *(f"{end}{GZIP_END}" for end in _TEXTS))


def is_text(path: str | os.PathLike[str]) -> bool:
    """Return whether a table is text, which may be compressed, by the end of its name."""
    return format_of(path) in _TEXTS.values()


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file states that it is compressed with gzip."""
    return str(path).lower().endswith(GZIP_END)


def is_json(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is JSON Lines or an array of objects, by the end of its name."""
    return str(path).lower().removesuffix(GZIP_END).endswith(".json")


def unknown_end(path: str | os.PathLike[str]) -> GraphError:
    """Return the error for a file whose name does not have one of the known ends."""
    got = "".join(PurePath(path).suffixes[-2:] if is_packed(path) else [PurePath(path).suffix])
    return GraphError(
        "data-end-unknown",
        source=path,
        got=f"'{got}'" if got else "none",
        known=(NUMPY_END, *table_ends()),
    )


def as_text(file: IO[bytes], size: int, path: str) -> IO[bytes]:
    """Return an open file of a table as unpacked text; `size` is that of the file in bytes.

    GraphError: while it is read, it turns out to be damaged, or to unpack to too many bytes.
    """
    file = unpacked(file, size, path) if is_packed(path) else file
    if not is_json(path):
        return file
    start = first_byte(file)
    file.seek(0)
    if start == b"[":
        return io.BytesIO(_rows_as_lines(file, path))
    if start == b"{" and (line := _single_object(file, path)):
        return io.BytesIO(line)
    if start not in b"{" and b"\n" not in read_up_to(file, HEAD).strip():
        raise _not_rows(path, "a single value")
    file.seek(0)
    return file


def read_text_of(path: str | os.PathLike[str]) -> bytes:
    """Return the unpacked text of a table. FileError, GraphError, LimitError: as `as_text`."""
    with opened(path) as file:
        return _whole(as_text(file, os.fstat(file.fileno()).st_size, str(path)), str(path))


def _whole(file: IO[bytes], path: str) -> bytes:
    content = read_up_to(file, MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        size = len(content)
        most = readable_size(MAX_BYTES)
        raise FileError("file-too-large", source=path, size=size, what="table", most=most)
    return content


def first_byte(file: IO[bytes]) -> bytes:
    """Return the first byte of a text that is neither blank nor part of a byte-order mark."""
    while piece := file.read(1 << 12):
        if text := piece.lstrip(b" \t\r\n\xef\xbb\xbf"):
            return text[:1]
    return b""


def _rows_as_lines(file: IO[bytes], path: str) -> bytes:
    """Return the elements of a JSON array as JSON Lines. GraphError: it is not JSON."""
    content = _whole(file, path)
    check_room(16 * len(content), f"{path}: the array of JSON")  # of Python objects
    try:
        rows: list[Any] = parsed_json(content, "JSON file")
    except GraphError as error:
        raise error.within(path) from None
    if rows and not any(isinstance(row, dict) for row in rows):
        raise _not_rows(path, f"an array of values such as {json.dumps(rows[0])[:40]}")
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _single_object(file: IO[bytes], path: str) -> bytes:
    """Return the only object of a text as one line; empty: it is one, or JSON Lines, or damaged.

    GraphError: the object is not a row, or there are several over several lines. One line of lists
    is a row whose values are lists.
    """
    line, has_more = _first_line(file, path)
    found = _object_in(line)
    if found is None:
        return _joined(file, path)
    if not has_more:
        _check_row(found, path, is_one_line=b"\r" not in line.strip())
    return b""


def _first_line(file: IO[bytes], path: str) -> tuple[bytes, bool]:
    """Return the first line that is not blank, and whether text follows.

    GraphError: it is longer than a row may be.
    """
    pieces: list[bytes] = []
    while piece := read_up_to(file, HEAD):
        text = piece if pieces else piece.lstrip(b" \t\r\n\xef\xbb\xbf")
        line, end, more = text.partition(b"\n")
        pieces += [line] if line else []
        while end and piece and not more.strip():
            more = piece = read_up_to(file, HEAD)
        if end:
            return b"".join(pieces), bool(more)
        if sum(map(len, pieces)) > LONGEST_LINE:
            longest = readable_size(LONGEST_LINE)
            raise GraphError("line-too-long", source=path, number=1, what="table", longest=longest)
    return b"".join(pieces), False


def _joined(file: IO[bytes], path: str) -> bytes:
    """Return an object over several lines as one line; empty: the text is JSON Lines, or damaged.

    GraphError: the object is not a row, or not the only one.
    """
    file.seek(0)
    content = read_up_to(file, LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        if any(_object_in(line) is not None for line in content[:HEAD].split(b"\n")):
            return b""
        raise _not_rows(path, "no line at its start is an object")
    check_room(16 * len(content), f"{path}: the object of JSON")  # of Python objects
    try:
        text = content.decode("utf-8-sig").lstrip()
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return b""
    if "\n" not in text[:end]:
        return b""  # a line that begins with an object
    if text[end:].strip():
        raise _not_rows(path, "objects over several lines")
    _check_row(found, path, is_one_line=False)
    return b" ".join(text[:end].encode().splitlines()) + b"\n"  # strings contain no line ends


def _check_row(found: dict[str, Any], path: str, is_one_line: bool) -> None:
    """Raise GraphError if the only object of a file is a table and not a row."""
    values = list(found.values())
    first = values[0][:1] if len(values) == 1 and isinstance(values[0], list) else []
    if found.keys() == {"schema", "data"} and isinstance(found["data"], list):  # of pandas
        first = found["data"][:1]
    if first and isinstance(first[0], dict):
        name = "data" if len(found) > 1 else next(iter(found))
        raise _not_rows(path, f"one object whose '{name}' is an array of objects")
    if table := _columns_of(found, is_one_line):
        names, rows = table
        program = (
            f"import json, sys; d = json.load(sys.stdin.buffer); t = json.dumps([{rows}]); "
            'open(sys.argv[1], "w").write(t)'
        )
        command = f"python3 -c '{program}' OUT.json"
        file = shell_word(path)
        command = f"gzip -dc {file} | {command}" if is_packed(path) else f"{command} < {file}"
        shown = [str(name)[:40] for name in names][:10]
        raise GraphError("json-columns", source=path, names=shown, command=command)


def _columns_of(found: dict[str, Any], is_one_line: bool) -> tuple[list[Any], str] | None:
    """Return the names of an object of columns, and Python code for the rows of an object `d`."""
    names, values = list(found), list(found.values())
    if found.keys() in ({"columns", "data"}, {"columns", "index", "data"}):  # "split" of pandas
        titles, rows = found["columns"], found["data"]
        are_lists = isinstance(titles, list) and isinstance(rows, list)
        if are_lists and all(isinstance(row, list) and len(row) == len(titles) for row in rows):
            return titles, 'dict(zip(d["columns"], r, strict=True)) for r in d["data"]'
    if values and all(isinstance(value, dict) for value in values):
        inner = list(values[0])
        if all(map(str.isdecimal, names)) and not all(map(str.isdecimal, inner)):
            return inner, "v for v in d.values()"  # "index" of pandas
        keys = "dict.fromkeys(k for v in d.values() for k in v)"
        return names, f"{{n: v[k] for n, v in d.items()}} for k in {keys}"
    if values and not is_one_line and all(isinstance(value, list) for value in values):
        return names, "dict(zip(d, r)) for r in zip(*d.values(), strict=True)"
    return None


def _object_in(text: bytes) -> dict[str, Any] | None:
    """Return the object that a text is, or None."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _not_rows(path: str, got: str) -> GraphError:
    return GraphError("json-rows", source=path, got=got)
