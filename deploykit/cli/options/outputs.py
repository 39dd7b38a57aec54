"""Options for files that a command writes: it first says which of them cannot be written."""

import functools
from collections.abc import Callable
from typing import Any

import click

from deploykit.cli.options.grouping import Option, add

Command = Callable[..., Any]

_READ = (
    "model", "models", "graph", "graph_file", "in_graph", "image", "image_file", "data",
    "first", "second", "reference", "result", "a", "b",
)  # fmt: skip
_FORCE = click.option("--force", is_flag=True, help="Replace an existing output file.")


def writes(*options: Option, act: str = "", end: str = ".pb") -> Option:
    """Return a decorator that adds options that name files to write, and `--force`.

    The command only runs if it can write them all. With `act`, the last of them is by default
    `X.act` with this end, beside the model X.
    """

    def apply(command: Command) -> Command:
        @functools.wraps(command)
        def checked(**values: Any) -> Any:
            given = click.get_current_context().params
            files = {name: values[name] for name in names if values[name] is not None}
            for path in files.values():
                _check(path, values["force"], given)
            if act and names[-1] not in files:
                values[names[-1]] = path = _beside(given["model"], act, end)
                _check(path, values["force"], given)
            return command(**values)

        add(checked, [_FORCE])
        names = add(checked, options)
        return checked

    return apply


def _beside(model: str, act: str, end: str) -> str:
    from deploykit.storage.files import default_output

    return str(default_output(model, act, end))


def _check(path: str, force: bool, given: dict[str, Any]) -> None:
    """Raise FileError for a file that cannot be written, or that the command is to read."""
    from deploykit.storage.files import check_output

    read: list[str] = []
    for value in map(given.get, _READ):
        read += [value] if isinstance(value, str) else value or ()
    check_output(path, force, *read)


def output(act: str, end: str = ".pb") -> Option:
    """Return the options of a command that writes `X.act` with this end, unless told otherwise."""
    text = f"File to write [default: beside the model, X.{act}{end}]."
    return writes(click.option("-o", "--output", metavar="FILE", help=text), act=act, end=end)


def results(*more: Option) -> Option:
    """Return the options of a command that only writes what is asked for: JSON, or more files."""
    text = "Write the JSON document to a file too."
    return writes(*more, click.option("-o", "--output", metavar="FILE", help=text))


result_file = results()
