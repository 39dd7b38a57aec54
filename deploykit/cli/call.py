"""One run of a command: calls the public function and prints the result."""

import contextlib
import importlib
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from deploykit.cli.common_options import check_outputs
from deploykit.cli.formats import WRITTEN, Spec
from deploykit.transforms.common.errors import Error

if TYPE_CHECKING:
    from deploykit.cli.output import Report
    from deploykit.rendering.tables import Table


class Invocation:
    """A public function with its arguments from the command line."""

    def __init__(
        self, report: "Report", entry: Spec, specs: Sequence[Spec], values: dict[str, Any]
    ) -> None:
        """Store the report to print, the command's entry in the table, and the values."""
        self.report, self.values = report, values
        self.as_json: bool = values["as_json"]
        self._entry, self._specs = entry, specs

    def of(self, owner: str) -> dict[str, Any]:
        """Return the values of one owner: function, model or presenter."""
        return {
            spec["name"]: self.values[spec["name"]]
            for spec in self._specs
            if spec["owner"] == owner
        }

    def result(self, **more: Any) -> Any:
        """Call the function, with the additional arguments, and return its result."""
        import deploykit

        part = {name: value for name, value in self.of("model").items() if value}
        return getattr(deploykit, self._entry["function"])(**self.of("function"), **part, **more)

    def show(
        self,
        result: Any = None,
        *,
        text: "Iterable[str | Table] | None" = None,
        written: str | None = None,
        **options: Any,
    ) -> None:
        """Print the report as JSON or as text; the default text is that of the result.

        `written` is an output file to name below the text. `options` are passed to the formatter.
        Without a result, the report prints its own tables.
        """
        from deploykit.cli.output import show
        from deploykit.rendering.formatters.shown import text_of
        from deploykit.transforms.common.documents import document

        if result is not None:
            self.report.more = document(result)
            self.report.fed = getattr(result, "fed", None) or self.report.fed
            text = text_of(result, **options) if text is None else text
        if text is not None and written is not None:
            text = [*text, f"written: {written}"]
        output = self.values["output"] if self._entry["writes_result"] else None
        show(
            self.report,
            self.as_json,
            text=text,
            output=output,
            force=self.values.get("force", False),
        )


def run(words: str, entry: Spec, specs: Sequence[Spec], **values: Any) -> None:
    """Run a command, after checking that its output files can be written."""
    module = importlib.import_module(f"deploykit.cli.presenters.{entry['presenter']}")
    from deploykit.cli.output import Report

    read = check_outputs(specs, values)
    output = None if entry["writes_result"] else values.get("output")
    with _child_of(entry, specs, read):
        report = Report(words, next(iter(read), None), output)
        invocation = Invocation(report, entry, specs, values)
        getattr(module, entry["function"])(invocation, **invocation.of("presenter"))


def _child_of(
    entry: Spec, specs: Sequence[Spec], read: Sequence[str]
) -> contextlib.AbstractContextManager[None]:
    """Start TensorFlow early for a command that runs a graph and writes files."""
    writes = any(spec["format"] in WRITTEN for spec in specs)
    are_there = all(os.path.exists(path) or os.path.exists(f"{path}.index") for path in read)
    if not (writes and entry["runs_graph"] and are_there):  # .index: of a checkpoint
        return contextlib.nullcontext()
    from deploykit.transforms.runtime.child_process import started_ahead

    return started_ahead()


def refuse_twice(paths: Sequence[str]) -> None:
    """Raise Error for a path that is given more than once."""
    for path in paths:
        if paths.count(path) > 1:
            raise Error("given-twice", what="the path", name=path)
