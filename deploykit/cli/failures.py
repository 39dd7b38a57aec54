"""What a command that fails says: a sentence on standard error, and with --json a document too."""

import json
import logging
from collections.abc import Sequence

import click

from deploykit.transforms.core.display.escaped import escaped
from deploykit.transforms.core.engines.extras import missing_package
from deploykit.transforms.core.errors import (
    BugError,
    CodedError,
    Error,
    FileError,
    LimitError,
    PipelineError,
    lacks_memory,
)

_printed = False  # the one JSON document of the command that runs


def begin() -> None:
    """Forget what an earlier command of this process printed."""
    note_document(False)


def note_document(printed: bool = True) -> None:
    """Note that the JSON document is on standard output, so that there is no second one."""
    global _printed
    _printed = printed


def fail(error: Exception, arguments: Sequence[str]) -> int:
    """Print what is wrong, and return the exit status. A bug is raised if its traceback is to show.

    `arguments` are those of the command line: --json prints the error as JSON, unless the command
    has printed its document.
    """
    found = _coded(error)
    is_bug = isinstance(found, BugError)
    if is_bug and logging.getLogger("deploykit").isEnabledFor(logging.DEBUG):
        raise error
    if is_bug:
        complain(f"bug: {found} (please report it; --debug shows the traceback)")
    else:
        complain(f"error: {found}", keep="\n" if isinstance(found, PipelineError) else "")
    if "--json" in arguments and not _printed:
        click.echo(json.dumps({"error": found.document()}, indent=2))
    return found.exit_status


def complain(message: str, keep: str = "") -> None:
    """Print a line on standard error."""
    click.echo(f"deploykit: {escaped(message, keep)}", err=True)


def option_error(
    parameter: click.Parameter | None, context: click.Context | None, got: object, expected: str
) -> Error:
    """Return the error of an option, or argument, whose value is not what it must be."""
    option = "the value" if parameter is None else parameter.human_readable_name
    if isinstance(parameter, click.Option):
        hidden = getattr(parameter, "hidden_spellings", ())
        option = next((each for each in parameter.opts[::-1] if each not in hidden), option)
    return Error("option-value", option=option, got=got, expected=expected, hint=see_help(context))


def see_help(context: click.Context | None) -> str:
    """Return which help describes the options of a command; empty: it is not known."""
    return f" (see {context.command_path} --help)" if context is not None else ""


def _coded(error: Exception) -> CodedError:
    """Return what is shown of an error: itself, where it is one of ours."""
    if isinstance(error, CodedError):
        return error
    if isinstance(error, click.ClickException):
        reason = " ".join(error.format_message().split()).rstrip(".")
        return Error("usage", reason=reason, hint=see_help(getattr(error, "ctx", None)))
    if isinstance(error, ImportError) and (missing := missing_package(error)) is not None:
        return missing
    if lacks_memory(error):
        return LimitError("out-of-memory-here")
    if isinstance(error, OSError) and error.filename is not None:
        source = str(error.filename)[:300]
        return FileError("file-error", source=source, reason=error.strerror or error)
    return BugError("child-bug", kind=type(error).__name__, reason=error)
