"""A line of JSON for each request: when, who, what, how long, and the status of the response.

Requests do not wait for the file, whatever the disk or the reader of a pipe does. `QueueListener`
with `WatchedFileHandler` of logging would not keep that: it opens a pipe without a reader, and ends
with a reader that stalls, only by waiting for it; and a disk that fills leaves half a line, with no
line that tells how many are missing.
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

_MOST_WAITING = 4 << 20  # bytes of lines that are not written yet; more are dropped
_AT_ONCE = 3900  # bytes; a pipe takes 4096 whole, so that lines of several writers never mix
_PAUSE = 0.1  # seconds for which lines are gathered
_SLOW = "its reader does not keep up"
_STALLED = 0.5  # seconds between two looks at a reader that takes nothing
_LAST_WAIT = 1.0  # seconds that such a reader has at the end
_LONGEST = 256  # characters of a text that a caller sends
_SAID_SECONDS = 10.0  # at least, from one trouble that is said to the next


class AccessLog:
    """A file that grows by a line a call, which waits for nothing.

    Where it cannot be written, lines are dropped; a line `{"time": ..., "dropped": N}` says so
    once it can be again.
    """

    def __init__(self, path: str, dropped: Callable[[int], None] = lambda count: None) -> None:
        """Open it; `dropped` is told of lines that are lost. FileError: it cannot be opened."""
        self._file = LineFile(path, dropped, lambda count: _line({"dropped": count}))

    def write(self, protocol: str, method: str, peer: str, code: str, seconds: float,
              model: str = "", bytes_in: int | None = None) -> None:  # fmt: skip
        """Add a call; texts of callers may be anything."""
        facts: dict[str, object] = {
            "protocol": protocol, "method": _text(method), "model": _text(model),
            "peer": _text(peer), "code": code, "milliseconds": round(seconds * 1000, 3),
        }  # fmt: skip
        if bytes_in is not None:
            facts["bytes_in"] = bytes_in
        self._file.add(_line(facts))

    def reopen(self) -> None:
        """Go on in a new file of the same name, as after `logrotate`."""
        self._file.reopen()

    def close(self) -> None:
        """Write what is still to be written."""
        self._file.close()


class _UnwrittenError(Exception):
    """Lines that could not be written: how many, and why."""

    def __init__(self, count: int, why: str) -> None:
        super().__init__(why)
        self.count = count


class LineFile:
    """Lines are queued, and a thread writes them; those that it cannot write are dropped."""

    def __init__(
        self,
        path: str,
        dropped: Callable[[int], None],
        gap: Callable[[int], bytes],
        most_waiting: int = _MOST_WAITING,
    ) -> None:
        """Open it. FileError: it cannot be.

        `dropped` is told how many lines were; `gap` is the line that says so in their place.
        """
        self._path, self._dropped, self._gap = path, dropped, gap
        self._most_waiting = most_waiting
        self._file = _opened(path)
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._lost = 0  # as too many waited
        self._missing = 0  # in the file, where nothing says so yet
        self._rest = b""  # of a line that is in the file in part
        self._failing = self._told = False
        self._said = -_SAID_SECONDS
        self._due, self._ending = threading.Event(), threading.Event()
        self._last_moment = float("inf")
        self._to_reopen = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="access log")
        self._thread.start()

    def add(self, line: bytes) -> None:
        """Queue a line, with its end; it waits for nothing."""
        with self._lock:
            if self._size + len(line) > self._most_waiting:
                self._lost += 1
            else:
                self._waiting.append(line)
                self._size += len(line)
        if not self._due.is_set():
            self._due.set()

    def reopen(self) -> None:
        """Go on in a new file of this name; the old one was moved away. A pipe stays as it is."""
        self._to_reopen = True
        self._due.set()

    def close(self) -> None:
        """Write what is queued, and end; a reader that stalls is not waited for."""
        self._last_moment = time.monotonic() + _LAST_WAIT
        self._ending.set()
        self._due.set()
        self._thread.join(2 * _LAST_WAIT)

    # What follows runs in the thread.

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
        """Write lines; where that fails, the rest is dropped, and the next ones are tried."""
        for some in _pieces(lines):
            said = self._missing  # more may be lost while this is written
            gap = [self._gap(said)] if said else []
            try:
                self._put(b"".join([*gap, *some]))
            except _UnwrittenError as error:
                if error.count <= len(some):  # the gap is in the file
                    self._missing -= said
                self._fails(min(error.count, len(some)) + len(lines), str(error))
                return
            self._missing -= said
            self._succeeds()

    def _put(self, lines: bytes) -> None:
        """Write whole lines, after the rest of one that was cut. _UnwrittenError: not all."""
        data, done, inside = self._rest + lines, 0, bool(self._rest)
        try:
            while done < len(data):
                self._wait_for_room()
                with contextlib.suppress(BlockingIOError):  # another process was quicker
                    done += os.write(self._file, data[done:])
                inside = data[done - 1 : done] != b"\n"
        except OSError as error:
            end = data.index(b"\n", done) + 1 if inside else done
            self._rest = data[done:end]
            raise _UnwrittenError(data.count(b"\n", end), error.strerror or str(error)) from None
        self._rest = b""

    def _wait_for_room(self) -> None:
        """Wait until a reader takes more. TimeoutError: there is no time for that."""
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
            logger.warning("the access log %s cannot be written: %s; calls are answered, and their "
                           "lines dropped", self._path, why)  # fmt: skip

    def _succeeds(self) -> None:
        if self._failing and self._told:
            logger.warning("the access log %s is written again; a line in it says how many are "
                           "missing", self._path)  # fmt: skip
        self._failing = False

    def _open_again(self) -> None:
        self._to_reopen = False
        if self._path == STANDARD_OUTPUT:
            return
        try:
            fresh = _opened(self._path)
        except FileError as error:
            logger.warning("the access log is not opened again: %s", error)
            return
        os.close(self._file)
        self._file = fresh
        if self._rest:
            self._rest = b""
            self._fails(1, "a line was cut where the file was changed")


def _pieces(lines: deque[bytes]) -> Iterator[list[bytes]]:
    """Take lines away, and yield as many together as are written at once."""
    while lines:
        some = [lines.popleft()]
        size = len(some[0])
        while lines and size + len(lines[0]) <= _AT_ONCE:
            size += len(lines[0])
            some.append(lines.popleft())
        yield some


def _opened(path: str) -> int:
    """Open a file to append to, or a pipe that somebody reads. FileError: it cannot be."""
    if path == STANDARD_OUTPUT:
        return os.dup(1)  # it blocks, as it is not ours alone, but nobody waits for the thread
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe's reader is not waited for
    except OSError as error:
        reason = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise FileError("file-error", source=path, reason=reason) from None


def _line(facts: dict[str, object]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"{json.dumps({'time': now, **facts})}\n".encode()  # ASCII: one line for every reader


def _text(text: str) -> str:
    """Return a text as JSON may hold it: not long, and without halves of characters."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode(errors="replace").decode()
