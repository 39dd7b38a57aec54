"""The rule of CSV for all commands that read it: header, separator, records, cells and numbers.

* A line feed, CRLF or a lone carriage return ends a record, unless it is between double quotes.
  Empty lines are no records, and a byte-order mark is not part of the first one.
* Quotes are as in RFC 4180. Cells are separated by commas, or by `;`, tabs or `|` if the first
  records have no comma and equal numbers of these.
* The first record is a header only if it cannot be a row: no cell is a number, and none is empty.
* A number has Python's syntax of floats, in ASCII and without underscores, within float64.
"""

import contextlib
import csv
import io
import logging
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import is_new
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import (
    BOM,
    LONGEST_LINE,
    cannot_be_read,
    opened_text,
    read_up_to,
    readable_size,
)

logger = logging.getLogger("deploykit")

csv.field_size_limit(sys.maxsize)  # of all threads; LONGEST_LINE is the limit here

HeaderRule = Literal["auto", "yes", "no"]
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "'|'"}
"""The separators of cells, and their names."""

_EXPECTED = "expected a number"
_NOT_TEXT = "it is not UTF-8 text"
_QUOTES = "a double quote is inside of a cell. Put the cell between quotes, and double those in it"
_SEEN = 5  # records that decide the separator
_BLOCK, _HEAD = 1 << 20, 1 << 16
_SHOWN = 40  # characters of a cell in a reason
_RECORD = re.compile(rb'([^"\r\n]*(?:"[^"]*(?:"|\Z)[^"\r\n]*)*)(\r\n|\r|\n|\Z)')
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BLANK, _RETURN = re.compile(rb"\n\r?\n"), re.compile(rb"\r(?=[^\n])")
_HEXADECIMAL = re.compile(rb"(?<![\w.])0[xX]")
_QUOTED = re.compile(rb'"[^"]*"')


class Record(NamedTuple):
    """A record: the number of its first line, its offset in bytes, and its text without the end."""

    line: int
    offset: int
    text: bytes


@dataclass(frozen=True)
class CsvLayout:
    """What the first records of a CSV file say about it."""

    header: tuple[str, ...]
    """The names of the columns; empty: the file has no header."""
    count: int
    """The number of columns."""
    separator: str = ","
    start: int = field(default=0, compare=False)
    """The offset of the first row in bytes."""
    may_have_header: bool = field(default=False, compare=False)
    """Whether the first row has no number, but an empty cell."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; without a header their numbers, from 0."""
        return self.header or tuple(map(str, range(self.count)))

    def __str__(self) -> str:
        """Return the layout in words: `header: a, b, label`."""
        return self.words()

    def words(self, column: int = 0) -> str:
        """Return the layout in words; of a long header, some names up to a column."""
        start = max(0, column + 1 - _SEEN)
        shown = [name[:_SHOWN] for name in self.header[start : start + _SEEN]]
        more = len(self.header) > start + _SEEN
        names = ", ".join(["..."] * (start > 0) + shown + ["..."] * more)
        text = f"header: {names}" if self.header else "no header"
        if self.may_have_header:
            text += " (if the first line names the columns, give --header yes)"
        separated = SEPARATORS[self.separator]
        return text if self.separator == "," else f"{text}; columns are separated by {separated}"

    def tell(self, path: str | os.PathLike[str]) -> None:
        """Log which header a file or folder has, once in a command, which may open it again."""
        text = str(self)
        if is_new(os.fspath(path), text):
            logger.info("%s: %s", Path(path).name or path, text)

    def cells(self, record: bytes, is_quoted: bool = True) -> list[str]:
        """Return the cells of a row. ValueError, with a reason: it does not fit this layout."""
        result = cells(record, self.separator, is_quoted)
        if len(result) != self.count:
            raise ValueError(_other_count(len(result), self.count))
        return result

    def numbers(
        self, text: bytes, words: Mapping[int | str, Callable[[str], float]] | None = None
    ) -> Array | None:
        """Return all rows of a text, [rows, columns] of float64; None: a row may be bad.

        `words` convert the cells of columns that are not numbers. KeyError: they do not know one.
        """
        if not text.strip(b"\r\n"):
            return np.empty((0, self.count))
        if not is_sound(text, self.separator):
            return None
        converters: dict[int | str, Callable[[str], float]] = {**(words or {})}
        try:
            result: Array = np.loadtxt(
                io.BytesIO(text), delimiter=self.separator, comments=None, quotechar='"', ndmin=2,
                converters=converters or None, encoding="utf-8",
            )  # fmt: skip
        except (ValueError, KeyError):
            return None
        if result.shape[1] != self.count:
            return None
        # An infinite value that no cell states is a number beyond float64, which is a bad row.
        infinite = int(np.isinf(result).sum())
        return None if infinite and (words or infinite != text.lower().count(b"inf")) else result


def layout_of(
    path: str | os.PathLike[str], header: HeaderRule = "auto", file: IO[bytes] | None = None
) -> CsvLayout:
    """Return the layout of a file, from its first records.

    FileError: it cannot be read. GraphError: it has no text, or its first record is damaged.
    """
    opened = contextlib.nullcontext(file) if file is not None else opened_text(path)
    with opened as stream:
        first = list(islice(_records(stream, path, _HEAD), _SEEN))
    if not first:
        raise GraphError("csv-empty", source=path)
    separator = _separator([record.text for record in first])
    try:
        names = [cell.strip() for cell in cells(first[0].text, separator)]
    except ValueError as error:
        raise row_error(path, first[0].line, error) from None
    if header == "no" or (header == "auto" and not is_header(names)):
        is_odd = header == "auto" and "" in names and not any(map(may_be_number, names))
        return CsvLayout((), len(names), separator, first[0].offset, is_odd)
    start = first[1].offset if len(first) > 1 else first[0].offset + len(first[0].text)
    return CsvLayout(tuple(names), len(names), separator, start)


class Preview(NamedTuple):
    """The layout of a file whose columns have names, and the cells of its first row."""

    layout: CsvLayout
    row: Sequence[str]

    @property
    def has_text(self) -> bool:
        """Whether a cell of the first row is not a number."""
        return not all(map(is_number, self.row))


def preview(path: str | os.PathLike[str], rule: HeaderRule = "auto") -> Preview | None:
    """Return the layout and the first row of a file.

    None: it is damaged, or has no header and the rule does not state that there is none. FileError:
    it cannot be read.
    """
    try:
        layout = layout_of(path, rule)
        first = list(islice(records(path), bool(layout.header), 2))
        row = layout.cells(first[0].text) if first else []
    except (GraphError, ValueError):  # which the reader reports
        return None
    return None if rule == "auto" and not layout.header else Preview(layout, row)


def shared_layout(
    paths: Sequence[str | os.PathLike[str]],
    header: HeaderRule = "auto",
    opened: Callable[[str], IO[bytes]] = opened_text,
    *,
    source: str = "",
    only_first: bool = False,
) -> tuple[CsvLayout, dict[str, int]]:
    """Return the layout of the files of a table, and the offset of the first row in each with text.

    `source` names all. With `only_first`, only the first one needs the header, as in parts of one.
    FileError, GraphError: as `layout_of`; also if the files differ in header or separator.
    """
    found: dict[str, CsvLayout] = {}
    for path in [os.fspath(path) for path in paths]:
        with opened(path) as file:
            try:
                found[path] = layout_of(path, header, file)
                if only_first and header == "yes" and found[path] != next(iter(found.values())):
                    file.seek(0)
                    found[path] = layout_of(path, "no", file)  # its first record is a row
            except GraphError as error:
                if error.code != "csv-empty":
                    raise
    if not found:
        raise GraphError("csv-empty", source=source or paths[0])
    (first, layout), *others = found.items()
    for path, other in others:
        same = other.header == layout.header or (only_first and not other.header)
        if not same or other.separator != layout.separator:
            names = enumerate(zip(layout.header, other.header, strict=False))
            place = next((place for place, (name, got) in names if name != got), 0)
            raise GraphError(
                "csv-files-differ", source=path, got=other.words(place), other=first,
                expected=layout.words(place),
            )  # fmt: skip
    return layout, {path: item.start for path, item in found.items()}


def check_names(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise GraphError if two columns of a table have the same name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise GraphError("two-columns-same-name", source=f"{path}: column '{name}'")


def row_error(path: str | os.PathLike[str], line: int, reason: object) -> GraphError:
    """Return the error for a bad row."""
    return GraphError("csv-row", source=path, number=line, reason=reason)


def records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """Yield the records of a file; one that ends with `.gz` is unpacked.

    FileError: it cannot be read. GraphError: a record is too long, or a quote is never closed.
    """
    with opened_text(path) as file:
        yield from _records(file, path)


def _records(file: IO[bytes], path: str | os.PathLike[str], size: int = 0) -> Iterator[Record]:
    """Yield the records of an open file, of which `size` bytes are read at a time."""
    rest, offset, line, is_first = b"", 0, 1, True
    while True:
        try:
            # As much as is pending, so that a long record is not split again too often.
            block = read_up_to(file, max(size or _BLOCK, len(rest)))
        except OSError as error:
            raise cannot_be_read(path, error) from None
        text = rest + block
        if is_first and text.startswith(BOM):
            text, offset = text[len(BOM) :], len(BOM)
        is_first = False
        found = split(text, offset, line)
        if not block:
            if found and found[-1].text.count(b'"') % 2:
                raise quote_open(path, found[-1].line)
            yield from found
            return
        yield from found[:-1]
        last = found[-1] if found else None
        if last and len(text) - (last.offset - offset + len(last.text)) <= 2:
            # It may go on, and the line feed of its CRLF may follow.
            text, offset, line = text[last.offset - offset :], last.offset, last.line
            if len(text) > LONGEST_LINE:
                raise too_long(path, line)
        elif text:  # empty lines, of which there may be any number
            yield from found[-1:]
            kept = len(text) - (2 if text.endswith(b"\r\n") else 1)
            text, offset, line = text[kept:], offset + kept, line + line_ends(text[:kept])
        rest = text


def split(text: bytes, offset: int = 0, line: int = 1) -> list[Record]:
    """Return the records of a text that starts at an offset and line of its file."""
    result = []
    if b'"' not in text and b"\r" not in text:
        for content in text.split(b"\n"):
            if content:
                result.append(Record(line, offset, content))
            offset, line = offset + len(content) + 1, line + 1
        return result
    for match in _RECORD.finditer(text):
        content = match[1]
        if content:
            result.append(Record(line, offset + match.start(), content))
        line += 1 + (len(_LINE_END.findall(content)) if b'"' in content else 0)
    return result


def beyond_lines(path: str | os.PathLike[str], has_header: bool = False) -> str:
    """Return what TensorFlow's ops for lines would read in another way, in words; empty: nothing.

    FileError: it cannot be read.
    """
    last = b""
    with opened_text(path) as file:
        while block := read_up_to(file, _BLOCK):
            if not last and block.startswith(BOM):
                return "a byte-order mark"
            text = (last or b"\n") + block
            if b'"' in block:
                return "double quotes"
            if _BLANK.search(text):
                return "empty lines"
            if _RETURN.search(text):
                return "carriage returns that end lines"
            rows = text
            if has_header:
                _, end, rows = text[1:].partition(b"\n")
                has_header = not end
            if b"x" in rows.lower() and _HEXADECIMAL.search(rows):
                return "hexadecimal numbers"
            last = text[-2:]
    return "carriage returns that end lines" if last.endswith(b"\r") else ""


def line_ends(text: bytes, is_after_return: bool = False) -> int:
    """Return the number of line ends in a text; before it, a carriage return may have ended one."""
    count = text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
    return count - (is_after_return and text.startswith(b"\n"))


def cells(record: bytes, separator: str, is_quoted: bool = True) -> list[str]:
    """Return the cells of a record. ValueError, with a reason: it is not text, or of odd quotes."""
    try:
        text = record.decode()
    except UnicodeDecodeError:
        raise ValueError(_NOT_TEXT) from None
    if "\0" in text:
        raise ValueError(_NOT_TEXT)
    if not is_quoted or '"' not in text:
        return text.split(separator)
    if not _are_regular(record, separator):
        raise ValueError(_QUOTES)
    ((_, row),) = _parsed(record, separator)
    return row


def rows_of(
    text: bytes, layout: CsvLayout, path: str | os.PathLike[str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row of a whole file. GraphError: a row is bad."""
    text = text.removeprefix(BOM)
    if is_sound(text, layout.separator):
        for line, row in islice(_parsed(text, layout.separator), bool(layout.header), None):
            if len(row) != layout.count:
                raise row_error(path, line, _other_count(len(row), layout.count))
            yield line, row
        return
    found = split(text)[bool(layout.header) :]
    if found and found[-1].text.count(b'"') % 2:
        raise quote_open(path, found[-1].line)
    for record in found:
        try:
            yield record.line, layout.cells(record.text)
        except ValueError as error:
            raise row_error(path, record.line, error) from None


def _parsed(text: bytes, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each record of a sound text."""
    line = 1
    reader = csv.reader(io.StringIO(text.decode(), newline=""), delimiter=separator)
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


def is_sound(text: bytes, separator: str) -> bool:
    """Return whether all records of a text are UTF-8 with quotes as in RFC 4180."""
    if b"\0" in text:
        return False
    try:
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError:
        return False
    return b'"' not in text or _are_regular(text, separator)


def _are_regular(text: bytes, separator: str) -> bool:
    """Return whether quotes only enclose cells, or are doubled within these."""
    array = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(array == ord('"'))
    if len(quotes) % 2:
        return False
    may_follow = np.zeros(256, bool)
    may_follow[[ord(separator), *b'\r\n"']] = True  # two quotes inside of a cell are one
    opening, closing = quotes[::2], quotes[1::2]
    before, after = opening[opening > 0] - 1, closing[closing < len(array) - 1] + 1
    return bool(may_follow[array[before]].all() and may_follow[array[after]].all())


def number(cell: str) -> float:
    """Return a cell as a number, without the blanks around it.

    ValueError, with a reason: it is not a number, or beyond float64.
    """
    text = cell.strip()
    if not text.isascii() or "_" in text:  # float() accepts other digits, and 1_000
        raise ValueError(_EXPECTED)
    try:
        value = float(text)
    except ValueError:
        raise ValueError(_EXPECTED) from None
    if math.isinf(value) and "n" not in text.lower():  # neither inf nor infinity
        raise ValueError("which is beyond float64")
    return value


class CellError(ValueError):
    """A cell that is not a number, with a reason and the number of its column."""

    def __init__(self, column: int, reason: str) -> None:
        """Store both."""
        super().__init__(reason)
        self.column = column


def floats(row: Sequence[str], columns: Sequence[int]) -> list[float]:
    """Return the numbers of some columns. CellError: a cell is not a number."""
    result = []
    for column in columns:
        try:
            result.append(number(row[column]))
        except ValueError as error:
            reason = f"column {column} has {row[column][:_SHOWN]!r}, {error}"
            raise CellError(column, reason) from None
    return result


def no_label(column: int) -> str:
    """Return the reason for a row without a label."""
    return f"it has no label, expected it in column {column}"


def is_number(cell: Any) -> bool:
    """Return whether a cell, a text or a Python value, is a number in float64."""
    if isinstance(cell, str | bytes):
        return not _problem(cell)
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def is_whole(cell: str, within: range) -> bool:
    """Return whether a cell is an integer in a range."""
    try:
        return cell.isascii() and "_" not in cell and int(cell) in within
    except ValueError:
        return False


def is_header(names: Sequence[str]) -> bool:
    """Return whether the cells of a first record name the columns: none is empty or a number."""
    return bool(names) and all(name.strip() and not may_be_number(name) for name in names)


def may_be_number(cell: str) -> bool:
    """Return whether a cell is a number, maybe beyond float64."""
    return _problem(cell) != _EXPECTED


def _problem(cell: str | bytes) -> str:
    try:
        number(cell.decode() if isinstance(cell, bytes) else cell)
    except UnicodeDecodeError:
        return _EXPECTED
    except ValueError as error:
        return str(error)
    return ""


def _separator(first: Sequence[bytes]) -> str:
    """Return the separator of the first records."""
    plain = [_QUOTED.sub(b"", record) for record in first]
    if any(b"," in record for record in plain):
        return ","
    for separator in SEPARATORS:
        counts = {record.count(separator.encode()) for record in plain}
        if len(counts) == 1 and 0 not in counts:
            return separator
    return ","


def _other_count(count: int, expected: int) -> str:
    return f"it has {count} cell{'s' * (count != 1)}, expected {expected}"


def too_long(path: str | os.PathLike[str], line: int) -> GraphError:
    """Return the error for a record beyond the limit of a line."""
    longest = readable_size(LONGEST_LINE)
    return GraphError("line-too-long", source=path, number=line, what="table", longest=longest)


def quote_open(path: str | os.PathLike[str], line: int) -> GraphError:
    """Return the error for a file whose last quote is not closed."""
    return GraphError("csv-quote-open", source=path, number=line)


def arrow_cells(
    text: bytes, layout: CsvLayout, columns: Sequence[str]
) -> tuple[Any, dict[int, str]]:
    """Return the cells of some columns of all rows as an Arrow table of bytes, and the bad rows.

    Bad rows are null, each with a reason by its number in the text.
    """
    import pyarrow as pa

    rows: list[list[str] | None] = []
    bad: dict[int, str] = {}
    if is_sound(text, layout.separator):
        table = _by_arrow(text, layout, bad, dict.fromkeys(columns, pa.binary()))
        if not bad:
            return table, bad
        places, count = [], 0
        for row in range(len(table) + len(bad)):
            places.append(None if row in bad else count)
            count += row not in bad
        return table.take(pa.array(places, pa.int64())), bad
    for place, record in enumerate(split(text)):
        try:
            rows.append(layout.cells(record.text))
        except ValueError as error:
            rows.append(None)
            bad[place] = str(error)
    at = {name: layout.names.index(name) for name in columns}
    cells_ = {name: [row and row[n].encode() for row in rows] for name, n in at.items()}
    return pa.table({name: pa.array(item, pa.binary()) for name, item in cells_.items()}), bad


def arrow_typed(text: bytes, layout: CsvLayout) -> Any:
    """Return the rows of a text that are not damaged as an Arrow table of inferred types."""
    import pyarrow as pa

    if not is_sound(text, layout.separator):
        found = (record.text for record in split(text))
        text = b"\n".join(item for item in found if is_sound(item, layout.separator))
    if not text.strip(b"\r\n"):
        return pa.schema([(name, pa.null()) for name in layout.names]).empty_table()
    return _by_arrow(text, layout, {}, {})


def _by_arrow(text: bytes, layout: CsvLayout, bad: dict[int, str], types: Mapping[str, Any]) -> Any:
    """Return the columns with a type, or all; rows of other numbers of cells become `bad`."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    def skipped(row: Any) -> str:
        bad[row.number - 1] = _other_count(row.actual_columns, layout.count)
        return "skip"

    names = list(layout.names)
    text = text if text.endswith((b"\n", b"\r")) else text + b"\n"
    return arrow_csv.read_csv(
        pa.BufferReader(text),
        arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
        arrow_csv.ParseOptions(
            delimiter=layout.separator, newlines_in_values=True, invalid_row_handler=skipped
        ),
        arrow_csv.ConvertOptions(
            include_columns=list(types), column_types=dict(types), strings_can_be_null=False
        ),
    )


def first_rows(file: IO[bytes], path: str | os.PathLike[str], start: int, size: int) -> bytes:
    """Return whole rows of an open file, about `size` bytes, from the one at an offset on."""
    file.seek(start)
    text = read_up_to(file, size)
    while len(text) >= size:
        if len(found := split(text)) > 1:
            return text[: found[-1].offset]
        if len(text) > LONGEST_LINE:
            raise too_long(path, 1)
        more = read_up_to(file, len(text))
        if not more:
            break
        text += more
    return text
