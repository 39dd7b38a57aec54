"""Standard output of a command: only this module writes to it."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

from deploykit.transforms.common.errors import FileError, cannot_be

if TYPE_CHECKING:
    pass


class StandardOutput:
    """A text stream that keeps the first error of a write, and then discards what is printed.

    So a command always runs to its end, and its own error decides the exit status.
    """

    buffer = None  # click and libraries would write bytes past this stream

    def __init__(self, stream: TextIO | None) -> None:
        """Take the stream; None: standard output is closed."""
        self._stream = io.StringIO() if stream is None else stream
        self._is_closed = stream is None
        self._is_stopped = False
        self.error: FileError | None = None
        """Why the output could not be written. None: it was, or its reader has closed it."""

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks are replaced."""
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
        """Write what is buffered."""
        try:
            self._stream.flush()
        except OSError as error:
            self._stop(error)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def _stop(self, error: OSError) -> None:
        """Discard what is buffered, and all that follows."""
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
    """Put a StandardOutput in the place of sys.stdout."""
    stream = sys.stdout
    output = StandardOutput(stream)
    sys.stdout = cast(TextIO, output)
    try:
        yield output
    finally:
        output.flush()
        sys.stdout = stream


def open_missing() -> None:
    """Open /dev/null as each standard stream that is closed: no file gets its descriptor."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
