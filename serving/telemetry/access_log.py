"""A line of JSON for each call: when, who, what, how long, and what became of it."""

import errno
import json
import os
import sys
import threading
from datetime import UTC, datetime
from typing import TextIO

from deploykit.transforms.core.errors import FileError

STANDARD_OUTPUT = "-"


class AccessLog:
    """A file that grows by a line a call."""

    def __init__(self, path: str) -> None:
        """Open it. FileError: it cannot be."""
        self._lock = threading.Lock()
        self._file = sys.stdout if path == STANDARD_OUTPUT else _opened(path)

    def write(self, protocol: str, method: str, peer: str, code: str, seconds: float,
              model: str = "", bytes_in: int | None = None) -> None:  # fmt: skip
        """Add a call."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "protocol": protocol, "method": method, "model": model, "peer": peer,
                "code": code, "milliseconds": round(seconds * 1000, 3)}  # fmt: skip
        if bytes_in is not None:
            line["bytes_in"] = bytes_in
        with self._lock:
            self._file.write(f"{json.dumps(line)}\n")
            self._file.flush()


def _opened(path: str) -> TextIO:
    """Open a file to append to, or a pipe that somebody reads; it is open as long as we live."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe's reader is not waited for
    except OSError as error:
        reason = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise FileError(f"{path}: {reason}") from None
    os.set_blocking(file, True)
    return os.fdopen(file, "a")
