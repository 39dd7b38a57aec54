"""A line of JSON for each call: when, who, what, how long, and what became of it."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from deploykit.serving.telemetry.line_file import LineFile

_LONGEST = 256  # characters of a text that a caller sends


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


def _line(facts: dict[str, object]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"{json.dumps({'time': now, **facts})}\n".encode()  # ASCII: one line for every reader


def _text(text: str) -> str:
    """Return a text as JSON may hold it: not long, and without halves of characters."""
    text = text[:_LONGEST]
    return text if text.isascii() else text.encode(errors="replace").decode()
