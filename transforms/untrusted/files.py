"""Files that anybody may have made, read within bounds.

Nothing here waits for a pipe or reads a device, and no file is read beyond a size that is stated
before: what a file says of itself is no measure of what it makes its reader allocate.
"""

import hashlib
import json
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import IO, Any

from deploykit.transforms.common.errors import FileError, GraphError

MAX_BYTES = 2 << 30  # protobuf reads no message above 2 GiB
MOST_TEXT = 64 << 20  # of labels, settings, indexes: honest ones hold kilobytes, the largest 15 MB
BOM = b"\xef\xbb\xbf"  # which some programs put in front of UTF-8
LONGEST_LINE = 64 << 20  # of a table or a log; more is no text
# More than a gibibyte AND a hundred times the packed size is what no honest file unpacks to: the
# values of models and samples hardly pack at all, and zeros that do are of no use.
MOST_UNPACKED, MOST_RATIO = 1 << 30, 100
_MOST_DIGITS = 300
_PIECE = 1 << 24


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file. FileError: it is missing or something else."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # a name may hold what no name can
        raise cannot_be_read(path, error) from None
    _check_kind(path, status)
    return status


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file to read bytes. FileError: it is none, or cannot be read."""
    check_regular(path)  # before it is opened, which is an act in itself for some devices
    try:
        # A pipe that took its place meanwhile is not waited for, and seen in a moment.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    except OSError as error:
        raise cannot_be_read(path, error) from None
    try:
        _check_kind(path, os.fstat(file.fileno()))
    except FileError:
        file.close()
        raise
    return file


def read_bytes(path: str | os.PathLike[str], most: int = MAX_BYTES, what: str = "file") -> bytes:
    """Return the bytes of a regular file.

    FileError: it is missing, no regular file, or larger than `most`; `what` says what is expected.
    """
    with opened(path) as file:
        try:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > most else file.read(size) or b""
            content += read_up_to(file, most - size + 1)  # it may grow, or say that it has 0
        except OSError as error:
            raise cannot_be_read(path, error) from None
    if max(size, len(content)) > most:
        raise FileError("file-too-large", source=path, size=size, what=what, most=said(most))
    return content


def read_released(path: str | os.PathLike[str], what: str = "file") -> bytes | mmap.mmap:
    """Return the bytes of a regular file so that `release` gives back the memory of parts of them.

    FileError: as `read_bytes`.
    """
    size = check_regular(path).st_size
    if not 0 < size <= MAX_BYTES:
        return read_bytes(path, MAX_BYTES, what)
    try:
        content = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{path}: there is no memory for its {size} bytes") from error
    with opened(path) as file:
        try:
            is_whole = file.readinto(content) == size and not file.read(1)
        except OSError as error:
            raise cannot_be_read(path, error) from None
    return content if is_whole else read_bytes(path, MAX_BYTES, what)  # it changes meanwhile


def release(content: bytes | mmap.mmap, begin: int, end: int) -> None:
    """Give back the memory of bytes that nobody reads again; of whole pages alone."""
    if isinstance(content, mmap.mmap):
        begin += -begin % mmap.PAGESIZE
        if (length := end - end % mmap.PAGESIZE - begin) > 0:
            content.madvise(mmap.MADV_DONTNEED, begin, length)


def read_text(path: str | os.PathLike[str], what: str, most: int = MOST_TEXT) -> str:
    """Return a file of text in UTF-8, whose byte-order mark does not count.

    FileError: as `read_bytes`. GraphError: it is no text.
    """
    try:
        return read_bytes(path, most, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError("text-expected", source=path, position=error.start, what=what) from None


def read_json(
    path: str | os.PathLike[str],
    what: str,
    most: int = MOST_TEXT,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Return what a file of JSON holds; `pairs` makes an object of names and values.

    FileError: as `read_bytes`. GraphError: it is no JSON.
    """
    content = read_bytes(path, most, what)
    try:
        return parsed_json(content, what, pairs)
    except GraphError as error:
        raise error.within(path) from None


def parsed_json(
    content: str | bytes, what: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return what JSON in UTF-8 holds. GraphError: it is none."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=pairs, parse_int=_whole)
    except (ValueError, RecursionError) as error:  # among them a number of too many digits
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise GraphError("json-expected", what=what, reason=reason) from None


def _whole(text: str) -> int:
    """Return a whole number. ValueError: no float is as large, and so no number that is meant."""
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits, expected at most {_MOST_DIGITS}")
    return int(text)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file. FileError: it cannot be read."""
    with opened(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise cannot_be_read(path, error) from None


def lines(path: str | os.PathLike[str], what: str, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Yield the lines of a file with their ends. FileError: it cannot be read.

    GraphError: a line is longer than any of such a file.
    """
    with opened(path) as file:
        number = 0
        while True:
            try:
                line = file.readline(longest + 1)
            except OSError as error:
                raise cannot_be_read(path, error) from None
            if not line:
                return
            number += 1
            if len(line) > longest:
                raise GraphError(
                    "line-too-long", source=path, number=number, longest=said(longest), what=what
                )
            yield line


def text_lines(path: str | os.PathLike[str], what: str) -> Iterator[str]:
    """Yield the lines of a file of text in UTF-8 with their ends, without a byte-order mark.

    FileError, GraphError: as `lines`; or it is no text.
    """
    for number, line in enumerate(lines(path, what), 1):
        try:
            if b"\0" in line:
                raise ValueError
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except ValueError:
            raise GraphError("line-not-text", source=path, number=number, what=what) from None


def read_up_to(file: IO[bytes], most: int) -> bytes:
    """Return what is left of an open file, at most so many bytes; none are made room for before."""
    results = []
    while most > 0 and (piece := file.read(min(most, _PIECE))):
        results.append(piece)
        most -= len(piece)
    return b"".join(results)


def cannot_be_read(path: str | os.PathLike[str], error: OSError | ValueError) -> FileError:
    """Return the error for a file of which the system says that it cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return FileError("file-error", source=str(path)[:300], reason=reason)


def said(size: int) -> str:
    """Return a size in words: `2 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _check_kind(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise FileError("file-kind", source=path, got=kind, expected="a file")
