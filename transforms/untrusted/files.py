"""Untrusted files, read within limits.

No function waits for a pipe or reads a device, and no file is read beyond a given size: the size
that a file states does not limit the memory that reading it takes.
"""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import mmap
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import IO, Any

from deploykit.transforms.common.errors import FileError, GraphError

MAX_BYTES = 2 << 30  # protobuf reads no message above 2 GiB
MAX_TEXT = 64 << 20  # of labels, settings, indexes: real ones take kilobytes, the largest 15 MB
BOM = b"\xef\xbb\xbf"  # which some programs write before UTF-8
LONGEST_LINE = 64 << 20  # of a table or a log; longer ones are not text
# No real file unpacks to more than a gibibyte AND a hundred times its size: values of models and
# samples hardly compress, and zeros that do are not useful.
MAX_UNPACKED, MAX_RATIO = 1 << 30, 100
GZIP_END = ".gz"
SOCKET_BYTES = 107  # of the path of a Unix socket, in <sys/un.h> of Linux
_MAX_DIGITS = 300
_PIECE = 1 << 24
_UNPACKED_AT_ONCE = 1 << 18


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file. FileError: it is missing or of another kind."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # the name may contain invalid characters
        raise cannot_be_read(path, error) from None
    _check_kind(path, status)
    return status


def check_socket_path(path: str, hint: str = "") -> None:
    """Raise FileError for a path that is too long for a Unix socket."""
    if (size := len(os.fsencode(path))) > SOCKET_BYTES:
        raise FileError(
            "socket-path-too-long", source=path[:300], size=size, most=SOCKET_BYTES, hint=hint
        )


@contextlib.contextmanager
def _reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert an error of the system to a FileError."""
    try:
        yield
    except OSError as error:
        raise cannot_be_read(path, error) from None


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a regular file to read bytes. FileError: it is not one, or cannot be read."""
    check_regular(path)  # before opening it, which has side effects for some devices
    with _reading(path):
        # If a pipe has replaced it meanwhile, this does not block, and the next check finds it.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    try:
        _check_kind(path, os.fstat(file.fileno()))
    except FileError:
        file.close()
        raise
    return file


def read_bytes(path: str | os.PathLike[str], most: int = MAX_BYTES, what: str = "file") -> bytes:
    """Return the bytes of a regular file.

    FileError: it is missing, not a regular file, or larger than `most`; `what` names the kind of
    file.
    """
    with opened(path) as file, _reading(path):
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > most else file.read(size) or b""
        content += read_up_to(file, most - size + 1)  # it may grow, or report size 0
    if max(size, len(content)) > most:
        raise FileError(
            "file-too-large", source=path, size=size, what=what, most=readable_size(most)
        )
    return content


def read_released(path: str | os.PathLike[str], what: str = "file") -> bytes | mmap.mmap:
    """Return the bytes of a regular file; `release` can free parts of their memory.

    FileError: as `read_bytes`.
    """
    size = check_regular(path).st_size
    if not 0 < size <= MAX_BYTES:
        return read_bytes(path, MAX_BYTES, what)
    try:
        content = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{path}: not enough memory for its {size} bytes") from error
    with opened(path) as file, _reading(path):
        is_whole = file.readinto(content) == size and not file.read(1)
    return content if is_whole else read_bytes(path, MAX_BYTES, what)  # it was changed meanwhile


def release(content: bytes | mmap.mmap, begin: int, end: int) -> None:
    """Free the memory of bytes that are not read again, in whole pages."""
    if isinstance(content, mmap.mmap):
        begin += -begin % mmap.PAGESIZE
        if (length := end - end % mmap.PAGESIZE - begin) > 0:
            content.madvise(mmap.MADV_DONTNEED, begin, length)


def read_text(path: str | os.PathLike[str], what: str, most: int = MAX_TEXT) -> str:
    """Return the text of a UTF-8 file without its byte-order mark.

    FileError: as `read_bytes`. GraphError: it is not UTF-8 text.
    """
    try:
        return read_bytes(path, most, what).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise GraphError("text-expected", source=path, position=error.start, what=what) from None


def read_json(
    path: str | os.PathLike[str],
    what: str,
    most: int = MAX_TEXT,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Return the value of a JSON file; `pairs` creates an object from its names and values.

    FileError: as `read_bytes`. GraphError: it is not JSON.
    """
    content = read_bytes(path, most, what)
    try:
        return parsed_json(content, what, pairs)
    except GraphError as error:
        raise error.within(path) from None


def parsed_json(
    content: str | bytes, what: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Any:
    """Return the value of JSON in UTF-8. GraphError: it is not JSON."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        return json.loads(text, object_pairs_hook=pairs, parse_int=_whole)
    except (ValueError, RecursionError) as error:  # including a number with too many digits
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise GraphError("json-expected", what=what, reason=reason) from None


def _whole(text: str) -> int:
    """Return an integer. ValueError: it has more digits than any float."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits, expected at most {_MAX_DIGITS}")
    return int(text)


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file. FileError: it cannot be read."""
    with opened(path) as file, _reading(path):
        return hashlib.file_digest(file, "sha256").hexdigest()


def lines(path: str | os.PathLike[str], what: str, longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """Yield the lines of a file with their ends; one that ends with `.gz` is unpacked.

    FileError: it cannot be read. GraphError: a line is longer than the limit.
    """
    with opened_text(path) as file:
        for number in itertools.count(1):
            with _reading(path):
                line = file.readline(longest + 1)
            if not line:
                return
            if len(line) > longest:
                most = readable_size(longest)
                raise GraphError(
                    "line-too-long", source=path, number=number, longest=most, what=what
                )
            yield line


def text_lines(path: str | os.PathLike[str], what: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 text file with their ends, without a byte-order mark.

    FileError, GraphError: as `lines`; also if it is not text.
    """
    for number, line in enumerate(lines(path, what), 1):
        try:
            if b"\0" in line:
                raise ValueError
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except ValueError:
            raise GraphError("line-not-text", source=path, number=number, what=what) from None


def opened_text(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file as `opened`; one that ends with `.gz` is unpacked."""
    file = opened(path)
    is_packed = str(path).lower().endswith(GZIP_END)
    return unpacked(file, os.fstat(file.fileno()).st_size, str(path)) if is_packed else file


def unpacked(file: IO[bytes], size: int, path: str) -> IO[bytes]:
    """Return the unpacked content of an open gzip file of a size in bytes; it can be sought.

    GraphError: while it is read, it turns out to be damaged, or to unpack to too many bytes.
    """
    return io.BufferedReader(_Unpacked(file, size, path), _UNPACKED_AT_ONCE)


class _Unpacked(io.RawIOBase):
    def __init__(self, file: IO[bytes], size: int, path: str) -> None:
        super().__init__()
        self._file, self._size, self._path = file, size, path
        self._gzip = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with self._checked():
            return self._gzip.readinto(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with self._checked():
            return self._gzip.seek(offset, whence)

    def tell(self) -> int:
        return self._gzip.tell()

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

    @contextlib.contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise GraphError(
                "damaged-or-not", source=self._path, what="gzip file", reason=error
            ) from None
        if self._gzip.tell() > most_unpacked(self._size):
            raise GraphError(
                "archive-bomb",
                source=self._path,
                packed=readable_size(self._size),
                unpacked=f"more than {readable_size(most_unpacked(self._size))}",
            )


def read_up_to(file: IO[bytes], most: int) -> bytes:
    """Return the rest of an open file, at most `most` bytes, without allocating them in advance."""
    results = []
    while most > 0 and (piece := file.read(min(most, _PIECE))):
        results.append(piece)
        most -= len(piece)
    return b"".join(results)


def cannot_be_read(path: str | os.PathLike[str], error: OSError | ValueError) -> FileError:
    """Return the error for a file that the system cannot read."""
    reason = getattr(error, "strerror", None) or error
    return FileError("file-error", source=str(path)[:300], reason=reason)


def most_unpacked(size: int) -> int:
    """Return the maximum uncompressed bytes of a compressed file of a size."""
    return max(MAX_UNPACKED, MAX_RATIO * size)


def readable_size(size: int) -> str:
    """Return a size as text: `2 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


def _check_kind(path: str | os.PathLike[str], status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise FileError("file-kind", source=path, got=kind, expected="a file")
