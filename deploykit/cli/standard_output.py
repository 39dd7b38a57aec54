"""The standard streams of a command, which handle write errors."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from deploykit.transforms.common.errors import FileError, cannot_be


class StandardOutput:
    """A text stream that stores the first write error and then discards all output.

    So a command always runs to its end, and its own error determines the exit status.
    """

    buffer = None  # click and libraries would write bytes past this stream

    def __init__(self, stream: TextIO | None) -> None:
        """Wrap a stream; None means that standard output is closed."""
        self._stream = io.StringIO() if stream is None else stream
        self._is_closed = stream is None
        self._is_stopped = False
        self.error: FileError | None = None
        """Why the output could not be written; None after success or a closed pipe."""

    def write(self, text: str) -> int:
        """Write a text; characters outside the encoding are replaced."""
        if text and self._is_closed:
            self._stop(OSError("it is closed"))
        try:
            return len(text) if self._is_stopped else self._stream.write(text)
        except UnicodeEncodeError:
            plain = text.translate({ord("─"): "-", ord("…"): "~"})
            encoding = self._stream.encoding or "ascii"  # that of the error may be `charmap`
            return self.write(plain.encode(encoding, "backslashreplace").decode(encoding))
        except OSError as error:
            self._stop(error)
            return len(text)

    def flush(self) -> None:
        """Flush the buffer."""
        try:
            self._stream.flush()
        except OSError as error:
            self._stop(error)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def _stop(self, error: OSError) -> None:
        """Discard the buffer and all later output."""
        if not self._is_stopped and not isinstance(error, BrokenPipeError):
            self.error = cannot_be("written", "standard output", error)
        self._is_stopped = True
        with contextlib.suppress(OSError):  # a stream of a test has no descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._stream.fileno())
            finally:
                os.close(nowhere)


@contextlib.contextmanager
def replaced() -> Iterator[StandardOutput]:
    """Replace sys.stdout by a StandardOutput in this context."""
    stream = sys.stdout
    output = StandardOutput(stream)
    sys.stdout = cast(TextIO, output)
    try:
        yield output
    finally:
        output.flush()
        sys.stdout = stream


def open_missing() -> None:
    """Open /dev/null for each closed standard stream, so that no file gets its descriptor.

    Python has no object for a closed stream. What standard error does not take is discarded;
    `replaced` is for standard output, where an error matters.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    error_stream = sys.stderr or open(os.devnull, "w")  # noqa: SIM115  until the process ends
    sys.stderr = cast(TextIO, StandardOutput(error_stream))
