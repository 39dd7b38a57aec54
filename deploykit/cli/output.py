"""Standard output of a command: a table for people, or one JSON document for programs."""

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

from deploykit.cli.common_options import standard_output_is_taken
from deploykit.cli.failures import note_document
from deploykit.rendering.tables import drawn
from deploykit.transforms.common.documents import Flat, Hidden, document, written
from deploykit.transforms.common.errors import Error, FileError, cannot_be
from deploykit.transforms.common.messages import escaped

if TYPE_CHECKING:
    from deploykit.importers.open_model import OpenedModel
    from deploykit.pipelines.rewrite import Rewriting
    from deploykit.rendering.tables import Table
    from deploykit.transforms.ir.graph import Graph


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


SCHEMA = 1  # of what is printed; it grows where a key goes or means something else


@dataclass
class Report:
    """The facts of one run of a command; the clock starts when it is made."""

    HEAD: ClassVar = {"schema": SCHEMA}

    command: str
    input_file: str | None = None
    output_file: str | None = None
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    bytes_in: int | None = None
    bytes_out: int | None = None
    nodes_in: int | None = None
    nodes_out: int | None = None
    made: Flat["Rewriting | None"] = None
    """How the result was made of another graph."""
    more: Hidden[dict[str, Any]] = field(default_factory=dict)
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    error: Hidden[Error | None] = None
    """What the command fails with; `show` raises it once this is shown."""
    started: Hidden[float] = field(default_factory=time.perf_counter)

    @property
    @written(digits=4)
    def seconds(self) -> float:
        """How long the run took until now."""
        return time.perf_counter() - self.started

    @property
    @written("fed", if_set=True)
    def _fed(self) -> Mapping[str, str]:
        return self.fed or getattr(self.made, "fed", {})

    @property
    @written("error", if_set=True)
    def _error(self) -> dict[str, Any] | None:
        return None if self.error is None else self.error.document()

    @property
    @written(flat=True)
    def _more(self) -> dict[str, Any]:
        return self.more

    def of(self, model: "OpenedModel | Graph | None") -> None:
        """Take inputs, outputs, size and the number of nodes from what was read."""
        graph: Any = getattr(model, "graph", model)
        self.inputs, self.outputs, self.nodes_in = graph.inputs, graph.outputs, len(graph)
        self.bytes_in = getattr(model, "bytes", None)

    def between(self, first: "OpenedModel", second: "OpenedModel") -> None:
        """Take the facts of two models that were compared."""
        self.of(first)
        self.nodes_out, self.bytes_out = len(second.graph), second.bytes

    def check(self, function: Callable[..., None], *arguments: Any) -> None:
        """Keep the Error that a check raises."""
        try:
            function(*arguments)
        except Error as error:
            self.error = error


def show(
    report: Report,
    as_json: bool,
    *,
    text: "Iterable[str | Table] | None" = None,
    output: str | None = None,
    force: bool = False,
) -> None:
    """Print a report on stdout: as JSON, as the lines and tables of `text`, or as its own tables.

    With `output`, the JSON document is written to that file first. Nothing is printed where an
    option takes standard output. FileError: the file cannot be written. Error: the report's own.
    """
    text_of_document = json.dumps(document(report), indent=2, allow_nan=False)
    if output is not None:
        from deploykit.storage.files import write

        write(output, [f"{text_of_document}\n".encode()], force)
        note_document(output == "-")
    if standard_output_is_taken():
        pass
    elif as_json:
        print(text_of_document)
        note_document()
    else:
        for line in drawn(own_text(report) if text is None else text, _width()):
            print(escaped(line, keep="\n"))
    if report.error is not None:
        raise report.error


def _width() -> int | None:
    """Return how wide tables may be: COLUMNS, or the terminal; without both, any width will do."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def own_text(report: Report) -> "Iterator[str | Table]":
    """Yield what is shown of a report whose command has no text of its own."""
    from deploykit.rendering.formatters.models import steps_table, verification_lines

    yield files_table(report)
    if report.made is not None and report.made.steps:
        yield steps_table(report.made.steps)
    if report.made is not None and report.made.verification is not None:
        yield from verification_lines(report.made.verification)


def files_table(report: Report) -> "Table":
    """Return the table of what was read and written."""
    from deploykit.rendering.formatters.models import files_table as table_of

    facts = document(report)
    files = [(str(report.input_file), facts["bytes_in"], facts["nodes_in"])]
    if report.output_file is not None:
        files.append((report.output_file, facts["bytes_out"], facts["nodes_out"]))
    return table_of(report.command, files, facts["inputs"], facts["outputs"])
