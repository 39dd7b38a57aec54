"""Options for files that a command writes: it first says which of them cannot be written."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from deploykit.cli.options.grouping import Option, add
from deploykit.cli.options.headings import output_option
from deploykit.cli.options.types import PathName, TextOutput

Command = Callable[..., Any]

_TAKEN = "deploykit.standard_output"
_FORCE = output_option("--force", is_flag=True, help="Replace an existing output file.")


def writes(*options: Option, act: str = "", end: str = ".pb") -> Option:
    """Return a decorator that adds options that name files to write, and `--force`.

    The command only runs if it can write them all. One of type `TextOutput` may be `-`, standard
    output, which then holds nothing else. With `act`, the last of them is by default `X.act` with
    this end, beside the model X.
    """

    def apply(command: Command) -> Command:
        @functools.wraps(command)
        def checked(**values: Any) -> Any:
            context = click.get_current_context()
            files = {name: values[name] for name in names if values[name] is not None}
            _check_standard_output(context, [name for name in files if files[name] == "-"])
            read = _read(context, names)
            for path in files.values():
                _check(path, values["force"], read)
            if act and names[-1] not in files:
                values[names[-1]] = path = _beside(context.params["model"], act, end)
                _check(path, values["force"], read)
            with _child_of(context.command, read):
                return command(**values)

        add(checked, [_FORCE])
        names = add(checked, options)
        return checked

    return apply


def _child_of(
    command: click.Command, read: Sequence[str]
) -> contextlib.AbstractContextManager[None]:
    """Start TensorFlow for a command that runs a graph, before it reads its files."""
    if not getattr(command, "runs_graph", False) or not all(map(_is_there, read)):
        return contextlib.nullcontext()
    from deploykit.transforms.core.running.child import started_ahead

    return started_ahead()


def _is_there(path: str) -> bool:
    return os.path.exists(path) or os.path.exists(f"{path}.index")  # of a checkpoint


def _beside(model: str, act: str, end: str) -> str:
    from deploykit.storage.files import default_output

    return str(default_output(model, act, end))


def _check(path: str, force: bool, read: Sequence[str]) -> None:
    """Raise FileError for a file that cannot be written, or that the command is to read."""
    from deploykit.storage.files import check_output

    check_output(path, force, *read)


def _read(context: click.Context, written: Sequence[str]) -> list[str]:
    """Return the paths that a command was given, but for those of files that it writes."""
    found: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if isinstance(parameter.type, PathName) and parameter.name not in written:
            values = value if isinstance(value, tuple) else (value,)
            found += [each for each in values if isinstance(each, str)]
    return found


def _check_standard_output(context: click.Context, names: Sequence[str]) -> None:
    """Keep in mind whether an option takes standard output. UsageError: two want it."""
    options = [each for each in context.command.params if each.name in names]
    wanted = [option.opts[0] for option in options]
    if context.params["as_json"] and not all(
        isinstance(option.type, TextOutput) and option.type.is_report for option in options
    ):
        wanted.append("--json")
    if len(wanted) > 1:
        raise click.UsageError(f"{' and '.join(wanted)} cannot both write to standard output")
    if options:
        context.meta[_TAKEN] = True


def standard_output_is_taken() -> bool:
    """Say whether an option of the command that runs writes its text to standard output."""
    context = click.get_current_context(silent=True)
    return context is not None and _TAKEN in context.meta


def output(act: str, end: str = ".pb", is_report: bool = False) -> Option:
    """Return the options of a command that writes `X.act` with this end, unless told otherwise."""
    text = f"File to write [default: beside the model, X.{act}{end}]."
    kind: PathName | TextOutput = PathName("FILE")
    if end != ".pb":
        kind = TextOutput("FILE", is_report)
        text = text.replace(" [", ", - for standard output [")
    option = output_option("-o", "--output", type=kind, help=text)
    return writes(option, act=act, end=end)


def results(*more: Option) -> Option:
    """Return the options of a command that only writes what is asked for: JSON, or more files."""
    text = "Write the JSON document to a file too, or with - to standard output alone."
    kind = TextOutput("FILE", is_report=True)
    return writes(*more, output_option("-o", "--output", type=kind, help=text))


result_file = results()
