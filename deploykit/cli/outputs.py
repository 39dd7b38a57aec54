"""Options for files that a command writes: it first says which of them cannot be written."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]
Option = Callable[[Any], Any]

_READ = (
    "model", "models", "graph", "graph_file", "in_graph", "image", "image_file", "data",
    "first", "second", "reference", "result", "a", "b",
)  # fmt: skip
_FORCE = click.option("--force", is_flag=True, help="Replace an existing output file.")


def add(command: Command, options: Sequence[Option]) -> list[str]:
    """Add options to a command, and return what it calls their values, in the options' order."""
    before = len(getattr(command, "__click_params__", ()))
    for option in reversed(options):
        option(command)
    parameters: list[click.Parameter] = command.__click_params__[before:]  # type: ignore[attr-defined]
    return [str(parameter.name) for parameter in reversed(parameters)]


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
                if Path(path).parent.is_dir():  # else there is no model either, which it will say
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
