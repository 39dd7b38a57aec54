"""A JSON line per request: time, peer, method, model, status and latency.

Requests never wait for the file, the disk or the reader of a pipe: they queue their lines, and a
thread of logging's `QueueListener` writes them.
"""

import contextlib
import errno
import json
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import QueueListener, WatchedFileHandler
from queue import Empty, SimpleQueue
from typing import Any

from deploykit.transforms.common.errors import FileError

logger = logging.getLogger("deploykit")

STANDARD_OUTPUT = "-"

_MAX_WAITING = 4 << 20  # bytes of lines that are not written yet; further ones are dropped
_BATCH = 64 << 10  # bytes; the thread stops collecting lines after this many
_AT_ONCE = 3900  # bytes; writes to a pipe are atomic up to 4096
_PAUSE = 0.1  # seconds between writes
_SLOW = "the reader is too slow"
_STALLED = 0.5  # seconds between checks of a reader that has stalled
_LAST_WAIT = 1.0  # seconds to wait for such a reader on exit
_LONGEST = 256  # characters of a string that a client sends
_WARNING_SECONDS = 10.0  # minimum time between two warnings


class AccessLog:
    """A log file with a line per request. Writing to it never blocks.

    If it cannot be written, lines are dropped. Once it can be again, a line
    `{"time": ..., "dropped": N}` reports their number.
    """

    def __init__(self, path: str, dropped: Callable[[int], None] = lambda count: None) -> None:
        """Open it; `dropped` receives the number of lost lines. FileError: it cannot be opened."""
        self._lines = _Lines(dropped)
        try:
            self._file = _LineFile(path, self._lines)
        except OSError as error:
            reason = "no process reads this pipe" if error.errno == errno.ENXIO else error.strerror
            raise FileError("file-error", source=path, reason=reason) from None
        self._writer = _Writer(self._lines, self._file)
        self._writer.start()

    def write(self, protocol: str, method: str, peer: str, code: str, seconds: float,
              model: str = "", bytes_in: int | None = None) -> None:  # fmt: skip
        """Log a request; strings from clients may contain anything."""
        facts: dict[str, object] = {
            "protocol": protocol, "method": _text(method), "model": _text(model),
            "peer": _text(peer), "code": code, "milliseconds": round(seconds * 1000, 3),
        }  # fmt: skip
        if bytes_in is not None:
            facts["bytes_in"] = bytes_in
        self._lines.add(_line(facts))

    def close(self) -> None:
        """Write the queued lines, and stop. A second call has no effect."""
        self._file.last_moment = time.monotonic() + _LAST_WAIT
        self._writer.stop()


class _Lines:
    """Queues lines without waiting, and counts those that are lost.

    A `QueueHandler` would make a LogRecord of each, at 4 % of the throughput of small requests.
    """

    def __init__(self, dropped: Callable[[int], None]) -> None:
        self.queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._dropped, self.lost, self.why = dropped, 0, ""
        self.queued = 0  # bytes
        self.taken = 0  # bytes that the thread of the writer has removed

    def add(self, line: bytes) -> None:
        """Queue a line, which ends with a newline, or drop it if too many bytes wait."""
        with self._lock:
            has_room = self.queued + len(line) <= self.taken + _MAX_WAITING
            if has_room:
                self.queued += len(line)
        if has_room:
            self.queue.put(line)
        else:
            self.drop(1, _SLOW)

    def drop(self, count: int, why: str) -> None:
        """Count lost lines, and keep the reason for the latest ones."""
        with self._lock:
            self.lost, self.why = self.lost + count, why
        self._dropped(count)


class _Writer(QueueListener):
    """Writes queued lines in batches, so that its thread seldom competes with requests."""

    queue: "SimpleQueue[bytes | None]"

    def __init__(self, lines: _Lines, file: "_LineFile") -> None:
        super().__init__(lines.queue, file)
        self._lines = lines

    def dequeue(self, block: bool) -> Any:
        """Return a record with the lines of a batch; None after the last ones."""
        line = self.queue.get(block)
        if line is None:
            return None
        if self._lines.queued - self._lines.taken < _BATCH:
            time.sleep(_PAUSE)  # for further lines
        batch = bytearray(line)
        with contextlib.suppress(Empty):
            while len(batch) < _BATCH:
                line = self.queue.get_nowait()
                if line is None:
                    self.enqueue_sentinel()  # again, for the next call
                    break
                batch += line
        self._lines.taken += len(batch)
        return logging.makeLogRecord({"msg": bytes(batch)})

    def handle(self, record: logging.LogRecord) -> None:
        """Write lines without the handler's lock: on exit, logging would wait for it."""
        self.handlers[0].emit(record)

    def stop(self) -> None:
        """Write or count the queued lines, and close the file, unless a write hangs."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.enqueue_sentinel()
        thread.join(2 * _LAST_WAIT)
        lost = 0
        with contextlib.suppress(Empty):
            while True:
                lost += self.queue.get_nowait() is not None
        if lost:
            self._lines.drop(lost, "a write hangs")
        self.enqueue_sentinel()  # again, for a thread that is still alive
        if not thread.is_alive():
            self.handlers[0].close()


class _LineFile(WatchedFileHandler):
    """Appends whole lines to a file or pipe, and a line with the number of those that it lacks."""

    def __init__(self, path: str, lines: _Lines) -> None:
        """Open it. OSError: it cannot be opened, or no process reads the pipe."""
        self._path, self._lines = path, lines
        self._reported = 0  # lost lines, in the file
        self._rest = b""  # of a partly written line
        self._error = ""  # of the last failed write
        self._failing = self._warned = False
        self._warned_at = -_WARNING_SECONDS
        self.last_moment = float("inf")  # to wait for a reader that has stalled
        super().__init__(path)

    def emit(self, record: logging.LogRecord) -> None:
        """Write lines; after an error, drop them, and retry with the next ones."""
        lines: Any = record.msg  # bytes
        missing = self._lines.lost - self._reported
        if missing:
            self._warn(self._lines.why)
            if not self._put(_line({"dropped": missing})):
                self._reported += missing
        if lost := self._put(lines):
            self._lines.drop(lost, self._error)

    def _put(self, lines: bytes) -> int:
        """Write lines, after the rest of a truncated one; return how many are not written."""
        done = 0
        try:
            if self._path != STANDARD_OUTPUT:
                self.reopenIfNeeded()
            self.stream = self.stream or self._open()  # else an earlier attempt has failed
            file = self.stream.fileno()
            data = self._rest + lines
            while done < len(data):
                self._wait_for_room(file)
                end = data.rfind(b"\n", done, done + _AT_ONCE) + 1 or data.index(b"\n", done) + 1
                with contextlib.suppress(BlockingIOError):  # another process has filled the pipe
                    done += os.write(file, data[done:end])
        except OSError as error:
            self._error = error.strerror or str(error)
            self._warn(self._error)
            data = self._rest + lines
            is_inside = data[done - 1 : done] != b"\n" if done else bool(self._rest)
            end = data.index(b"\n", done) + 1 if is_inside else done
            self._rest = data[done:end]
            return data.count(b"\n", end)
        self._rest = b""
        if self._failing and self._warned:
            logger.warning("the access log %s is written again; it contains the number of "
                           "missing lines", self._path)  # fmt: skip
        self._failing = False
        return 0

    def _wait_for_room(self, file: int) -> None:
        """Wait until a reader has capacity. TimeoutError: it stalled and must be given up."""
        poll = select.poll()
        poll.register(file, select.POLLOUT)
        while not poll.poll(max(0, min(_STALLED, self.last_moment - time.monotonic())) * 1000):
            if self._lines.lost > self._reported:
                self._warn(self._lines.why)
            if time.monotonic() > self.last_moment:
                raise TimeoutError(errno.ETIMEDOUT, _SLOW)

    def _open(self) -> TextIOWrapper:
        """Open a file to append to, or a pipe with a reader; only its descriptor is used."""
        if self._path == STANDARD_OUTPUT:
            file = os.dup(1)  # blocking, as other processes share it
        else:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            # Do not wait for a pipe's reader, neither here nor in a write.
            file = os.open(self.baseFilename, flags | os.O_NONBLOCK, 0o666)
        if self._rest:  # the file was moved with a truncated line
            self._rest = b""
            self._lines.drop(1, "a line was truncated when the file was moved")
        return open(file, "w", encoding="ascii")

    def _warn(self, why: str) -> None:
        if self._failing:
            return
        self._failing, now = True, time.monotonic()
        self._warned = now - self._warned_at >= _WARNING_SECONDS
        if self._warned:
            self._warned_at = now
            logger.warning("the access log %s cannot be written: %s; requests continue, but their "
                           "lines are dropped", self._path, why)  # fmt: skip


def _line(facts: dict[str, object]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"{json.dumps({'time': now, **facts})}\n".encode()  # ASCII: no reader splits a line


def _text(text: str) -> str:
    """Return a string that is short and valid in JSON."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode(errors="replace").decode()
