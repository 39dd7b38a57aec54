"""Standard output of a command: text with tables, or one JSON document."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from deploykit.cli.common_options import standard_output_is_used
from deploykit.cli.failures import note_document
from deploykit.rendering.tables import drawn
from deploykit.transforms.common.documents import Flat, Hidden, document, written
from deploykit.transforms.common.errors import Error

if TYPE_CHECKING:
    from deploykit.importers.open_model import OpenedModel
    from deploykit.pipelines.rewrite import Rewriting
    from deploykit.rendering.tables import Table
    from deploykit.transforms.ir.graph import Graph


SCHEMA = 1  # version of the JSON document; incremented if a key is removed or changes its meaning


@dataclass
class Report:
    """The result of one run of a command; its clock starts when it is created."""

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
    """The steps that made the result from another graph."""
    more: Hidden[dict[str, Any]] = field(default_factory=dict)
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of files for each input, as text."""
    error: Hidden[Error | None] = None
    """The error of the command, which `show` raises after printing the report."""
    started: Hidden[float] = field(default_factory=time.perf_counter)

    @property
    @written(digits=4)
    def seconds(self) -> float:
        """The seconds since the report was created."""
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
        """Set inputs, outputs, size and number of nodes from a model that was read."""
        graph: Any = getattr(model, "graph", model)
        self.inputs, self.outputs, self.nodes_in = graph.inputs, graph.outputs, len(graph)
        self.bytes_in = getattr(model, "bytes", None)

    def between(self, first: "OpenedModel", second: "OpenedModel") -> None:
        """Set the properties of two models that were compared."""
        self.of(first)
        self.nodes_out, self.bytes_out = len(second.graph), second.bytes

    def check(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run a check and store the Error that it raises."""
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

    With `output`, the JSON document is written to that file first. Nothing is printed if an option
    writes to standard output. FileError: the file cannot be written. Error: that of the report.
    """
    text_of_document = json.dumps(document(report), indent=2, allow_nan=False)
    if output is not None:
        from deploykit.storage.files import write

        write(output, [f"{text_of_document}\n".encode()], force)
        note_document(output == "-")
    if standard_output_is_used():
        pass
    elif as_json:
        print(text_of_document)
        note_document()
    else:
        is_limited = sys.stdout.isatty() or os.environ.get("COLUMNS")
        width = shutil.get_terminal_size().columns if is_limited else None
        for line in drawn(own_text(report) if text is None else text, width):
            print(line)
    if report.error is not None:
        raise report.error


def own_text(report: Report) -> "Iterator[str | Table]":
    """Yield the default text of a report, for a command without its own text."""
    from deploykit.rendering.formatters.models import steps_table, verification_lines

    yield files_table(report)
    if report.made is not None and report.made.steps:
        yield steps_table(report.made.steps)
    if report.made is not None and report.made.verification is not None:
        yield from verification_lines(report.made.verification)


def files_table(report: Report) -> "Table":
    """Return the table of the files that were read and written."""
    from deploykit.rendering.formatters.models import files_table as table_of

    facts = document(report)
    files = [(str(report.input_file), facts["bytes_in"], facts["nodes_in"])]
    if report.output_file is not None:
        files.append((report.output_file, facts["bytes_out"], facts["nodes_out"]))
    return table_of(report.command, files, facts["inputs"], facts["outputs"])
