"""Splits text files into byte ranges; a line belongs to the range in which it starts."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import IO

import numpy as np

from deploykit.records.record_source import PART, Facts, SourcePart
from deploykit.storage.csv_files import line_ends
from deploykit.storage.record_offsets import record_offsets
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted.files import BOM, LONGEST_LINE, cannot_be_read, opened

_BLOCK, _PIECE = 1 << 22, 1 << 12
_FEED = re.compile(rb"\n")
_LINE_END = re.compile(rb"\n|\r\n|\r(?=[^\n])")  # not a return at the end, which may be half of one


def first_lines(path: str, count: int) -> list[bytes]:
    """Return the first nonblank lines of a file, without line ends.

    FileError: the file cannot be read. GraphError: it is not text.
    """
    results: list[bytes] = []
    with opened(path) as file:
        _skip_mark(file)
        while len(results) < count and (line := file.readline(LONGEST_LINE)):
            if len(line) == LONGEST_LINE or b"\0" in line:
                raise GraphError("not-text", source=path, what="lines of values")
            if line.strip():
                results.append(line.rstrip(b"\r\n"))
    return results


def start_of(path: str, header: bytes | None) -> int:
    """Return the offset behind the header of a file, if its first nonblank line is that one."""
    with opened(path) as file:
        start = _skip_mark(file)
        lines = iter(lambda: file.readline(LONGEST_LINE), b"")
        line = next((line for line in lines if line.strip()), b"")
        return start if header is None or line.rstrip(b"\r\n") != header else file.tell()


def _skip_mark(file: IO[bytes]) -> int:
    """Move an open file behind its byte-order mark, and return the offset."""
    return file.seek(0 if file.read(len(BOM)) != BOM else len(BOM))


def parts_of(files: Facts, ratio: float) -> list[SourcePart]:
    """Return byte ranges of at most PART bytes, of equal size within a file.

    `ratio` is the size of the records divided by the size of their text.
    """
    parts = []
    for path, (size, _) in files.items():
        count = -(-size // PART)
        cuts = [size * number // count for number in range(count + 1)] if count else []
        parts += [SourcePart(a, b, round((b - a) * ratio), path) for a, b in pairwise(cuts)]
    return parts


def csv_parts(files: Facts) -> list[SourcePart]:
    """Return byte ranges of CSV files, as `parts_of`; none begins within a quoted cell.

    FileError: a file cannot be read. GraphError: a quote is not closed.
    """
    results = []
    for path, facts in files.items():
        parts = parts_of({path: facts}, 1)
        if _has_quotes(path):
            cuts = _ends_of_records(path, [part.stop for part in parts])
            parts = [SourcePart(a, b, b - a, path) for a, b in pairwise([0, *cuts])]
        results += parts
    return results


def _has_quotes(path: str) -> bool:
    try:
        with opened(path) as file:
            return any(b'"' in block for block in iter(lambda: file.read(_BLOCK), b""))
    except OSError as error:
        raise cannot_be_read(path, error) from None


def _ends_of_records(path: str, cuts: list[int]) -> list[int]:
    """Return for each cut the first end of a record from there on, without equal ones."""
    results: dict[int, None] = {}
    last = 0
    with opened(path) as file:
        for ends, _ in record_offsets(file, path, quoted=True):
            places = np.searchsorted(ends, cuts)
            results |= dict.fromkeys(ends[places[places < len(ends)]].tolist())
            cuts = [cut for cut, place in zip(cuts, places, strict=True) if place == len(ends)]
            last = int(ends[-1]) if len(ends) else last
    return [*results | ({last: None} if cuts and last else {})]  # only empty lines come after it


def text_of(part: SourcePart, first: int, only_feeds: bool = False) -> tuple[int, bytes]:
    """Return the lines that start in a part, and the offset of their text.

    `first` is the offset of the first row in the file. With `only_feeds`, lone carriage returns do
    not end lines. FileError: the file cannot be read.
    """
    line_end = _FEED if only_feeds else _LINE_END
    try:
        with opened(part.file) as file:
            begin = max(first, part.start)
            if part.start > first:
                file.seek(begin - 1)
                begin = begin - 1 + len(_to_line_end(file, line_end))
            if begin >= part.stop:
                return begin, b""
            file.seek(begin)
            text = file.read(part.stop - begin - 1)
            text += _to_line_end(file, line_end)
    except OSError as error:
        raise cannot_be_read(part.file, error) from None
    if len(text) >= LONGEST_LINE:
        raise GraphError("not-text", source=part.file, what="lines of values")
    return begin, text


def _to_line_end(file: IO[bytes], line_end: re.Pattern[bytes]) -> bytes:
    """Return the bytes from the position of a file to the next end of a line, and this end."""
    text = b""
    while len(text) < LONGEST_LINE and (piece := file.read(_PIECE)):
        text += piece
        if end := line_end.search(text, max(0, len(text) - len(piece) - 1)):
            return text[: end.end()]
    return text


def numbered_lines(begin: int, text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the nonblank lines of a text, without line ends, each with its offset."""
    for line in _split(text):
        if line.strip():
            yield begin, line.rstrip(b"\r\n")
        begin += len(line)


def _split(text: bytes) -> Iterator[bytes]:
    """Yield lines that end with a line feed, as parts are split."""
    start = 0
    while start < len(text):
        stop = text.find(b"\n", start) + 1 or len(text)
        yield text[start:stop]
        start = stop


class LineNumbers:
    """Line numbers by byte offset. Offsets must be ascending, because each file is read once."""

    def __init__(self) -> None:
        self._file, self._offset, self._lines, self._is_return = "", 0, 1, False

    def at(self, file: str, offset: int, only_feeds: bool = False) -> int:
        """Return the number, from 1, of the line that starts at an offset.

        With `only_feeds`, lone carriage returns do not end lines.
        """
        if file != self._file or offset < self._offset:
            self._file, self._offset, self._lines, self._is_return = file, 0, 1, False
        with opened(file) as stream:
            stream.seek(self._offset)
            while self._offset < offset and (
                piece := stream.read(min(PART, offset - self._offset))
            ):
                self._lines += (
                    piece.count(b"\n") if only_feeds else line_ends(piece, self._is_return)
                )
                self._is_return = piece.endswith(b"\r")
                self._offset += len(piece)
        return self._lines
