"""A JSON line per request: time, peer, method, model, status and latency.

Requests never wait for the file, the disk or the reader of a pipe. logging's `QueueListener` with
`WatchedFileHandler` does not ensure that. It waits for a pipe without a reader, and on exit for a
reader that stalls. A full disk truncates a line, and no line counts the missing ones.
"""

import contextlib
import errno
import json
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from deploykit.transforms.common.errors import FileError

logger = logging.getLogger("deploykit")

STANDARD_OUTPUT = "-"

_MAX_WAITING = 4 << 20  # bytes of lines that are not written yet; further ones are dropped
_AT_ONCE = 3900  # bytes; writes to a pipe are atomic up to 4096
_PAUSE = 0.1  # seconds between writes
_SLOW = "the reader is too slow"
_STALLED = 0.5  # seconds between checks of a reader that has stalled
_LAST_WAIT = 1.0  # seconds to wait for such a reader on exit
_LONGEST = 256  # characters of a string that a client sends
_SAID_SECONDS = 10.0  # minimum time between two warnings


class _UnwrittenError(Exception):
    """Lines that could not be written: their number, and the reason."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(why)
        self.count = count


class LineFile:
    """A queue of lines that a thread writes; lines that it cannot write are dropped."""

    def __init__(
        self,
        path: str,
        dropped: Callable[[int], None],
        gap: Callable[[int], bytes],
        most_waiting: int = _MAX_WAITING,
    ) -> None:
        """Open it. FileError: it cannot be opened.

        `dropped` receives the number of lost lines; `gap` returns the line that reports them.
        """
        self._path, self._dropped, self._gap = path, dropped, gap
        self._most_waiting = most_waiting
        self._file = _opened(path)
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._lost = 0  # lines dropped because too many waited
        self._missing = 0  # lines missing in the file and not reported there yet
        self._rest = b""  # of a partly written line
        self._failing = self._told = False
        self._said = -_SAID_SECONDS
        self._due, self._ending = threading.Event(), threading.Event()
        self._last_moment = float("inf")
        self._to_reopen = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="access log")
        self._thread.start()

    def add(self, line: bytes) -> None:
        """Queue a line, which ends with a newline, without waiting."""
        with self._lock:
            if self._size + len(line) > self._most_waiting:
                self._lost += 1
            else:
                self._waiting.append(line)
                self._size += len(line)
        if not self._due.is_set():
            self._due.set()

    def reopen(self) -> None:
        """Continue in a new file after the old one was moved. Standard output stays open."""
        self._to_reopen = True
        self._due.set()

    def close(self) -> None:
        """Write the queued lines, and stop; a stalled reader is not waited for."""
        self._last_moment = time.monotonic() + _LAST_WAIT
        self._ending.set()
        self._due.set()
        self._thread.join(2 * _LAST_WAIT)

    # The following methods run in the thread.

    def _run(self) -> None:
        last = False
        while not last:
            self._due.wait()
            self._due.clear()
            last = self._ending.wait(_PAUSE)
            if self._to_reopen:
                self._open_again()
            self._write(self._taken())
        os.close(self._file)

    def _taken(self) -> deque[bytes]:
        with self._lock:
            lines, self._waiting, self._size = self._waiting, deque(), 0
        self._count_lost()
        return lines

    def _count_lost(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, 0
        if lost:
            self._fails(lost, _SLOW)

    def _write(self, lines: deque[bytes]) -> None:
        """Write lines; after an error, drop them, and retry with the next ones."""
        for some in _pieces(lines):
            missing = self._missing  # more may be lost during the write
            gap = [self._gap(missing)] if missing else []
            try:
                self._put(b"".join([*gap, *some]))
            except _UnwrittenError as error:
                if error.count <= len(some):  # the gap line was written
                    self._missing -= missing
                self._fails(min(error.count, len(some)) + len(lines), str(error))
                return
            self._missing -= missing
            if self._failing and self._told:
                logger.warning("the access log %s is written again; it contains the number of "
                               "missing lines", self._path)  # fmt: skip
            self._failing = False

    def _put(self, lines: bytes) -> None:
        """Write lines, after the rest of a truncated one. _UnwrittenError: some are not written."""
        data, done, inside = self._rest + lines, 0, bool(self._rest)
        try:
            while done < len(data):
                self._wait_for_room()
                with contextlib.suppress(BlockingIOError):  # another process has filled the pipe
                    done += os.write(self._file, data[done:])
                inside = data[done - 1 : done] != b"\n"
        except OSError as error:
            end = data.index(b"\n", done) + 1 if inside else done
            self._rest = data[done:end]
            raise _UnwrittenError(data.count(b"\n", end), error.strerror or str(error)) from None
        self._rest = b""

    def _wait_for_room(self) -> None:
        """Wait until a reader has capacity. TimeoutError: it stalled and must be given up."""
        poll = select.poll()
        poll.register(self._file, select.POLLOUT)
        while not poll.poll(_STALLED * 1000):
            self._count_lost()
            if self._to_reopen or time.monotonic() > self._last_moment:
                raise TimeoutError(errno.ETIMEDOUT, _SLOW)

    def _fails(self, count: int, why: str) -> None:
        self._missing += count
        self._dropped(count)
        if self._failing:
            return
        self._failing, now = True, time.monotonic()
        self._told = now - self._said >= _SAID_SECONDS
        if self._told:
            self._said = now
            logger.warning("the access log %s cannot be written: %s; requests continue, but their "
                           "lines are dropped", self._path, why)  # fmt: skip

    def _open_again(self) -> None:
        self._to_reopen = False
        if self._path == STANDARD_OUTPUT:
            return
        try:
            fresh = _opened(self._path)
        except FileError as error:
            logger.warning("the access log cannot be reopened: %s", error)
            return
        os.close(self._file)
        self._file = fresh
        if self._rest:
            self._rest = b""
            self._fails(1, "a line was truncated when the file was reopened")


class AccessLog(LineFile):
    """A log file with a line per request. Writing to it never blocks.

    If it cannot be written, lines are dropped. Once it can be again, a line
    `{"time": ..., "dropped": N}` reports their number.
    """

    def __init__(self, path: str, dropped: Callable[[int], None] = lambda count: None) -> None:
        """Open it; `dropped` receives the number of lost lines. FileError: it cannot be opened."""
        super().__init__(path, dropped, lambda count: _line({"dropped": count}))

    def write(self, protocol: str, method: str, peer: str, code: str, seconds: float,
              model: str = "", bytes_in: int | None = None) -> None:  # fmt: skip
        """Log a request; strings from clients may contain anything."""
        facts: dict[str, object] = {
            "protocol": protocol, "method": _text(method), "model": _text(model),
            "peer": _text(peer), "code": code, "milliseconds": round(seconds * 1000, 3),
        }  # fmt: skip
        if bytes_in is not None:
            facts["bytes_in"] = bytes_in
        self.add(_line(facts))


def _pieces(lines: deque[bytes]) -> Iterator[list[bytes]]:
    """Remove lines from the queue, and yield those that are written together."""
    while lines:
        some = [lines.popleft()]
        size = len(some[0])
        while lines and size + len(lines[0]) <= _AT_ONCE:
            size += len(lines[0])
            some.append(lines.popleft())
        yield some


def _opened(path: str) -> int:
    """Open a file to append to, or a pipe with a reader. FileError: it cannot be opened."""
    if path == STANDARD_OUTPUT:
        return os.dup(1)  # blocking, as other processes share it, but only this thread waits
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NONBLOCK, 0o666)  # does not wait for a pipe's reader
    except OSError as error:
        reason = "no process reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise FileError("file-error", source=path, reason=reason) from None


def _line(facts: dict[str, object]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"{json.dumps({'time': now, **facts})}\n".encode()  # ASCII: no reader splits a line


def _text(text: str) -> str:
    """Return a string that is short and valid in JSON."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode(errors="replace").decode()
