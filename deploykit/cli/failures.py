"""Errors of a command: a sentence on standard error, and with --json a JSON document too."""

import itertools
import json
import logging
import sys
from collections.abc import Sequence

import click
from click.core import ParameterSource

from deploykit.cli.standard_output import replaced
from deploykit.transforms.common.errors import (
    BugError,
    CodedError,
    Error,
    FileError,
    LimitError,
    PipelineError,
    lacks_memory,
)
from deploykit.transforms.common.messages import escaped
from deploykit.transforms.engines.packages import missing_package

_printed = False  # whether the running command has printed its JSON document
_context: click.Context | None = None  # of the running command
_shared: memoryview | None = None  # what the process that waits for this one can read
PROJECT_FILE = "deploykit.toml"
SHARED = 2
"""The number of flags that are shared with a waiting process: `share_with`."""
_UNKNOWN, _JSON, _TEXT = range(3)  # values of the first flag: what standard output is


def share_with(flags: memoryview) -> None:
    """Keep flags up to date: what this command prints, and whether it has printed its document.

    A process that waits for this one and shares the flags passes them to `fail_for_another`.
    """
    global _shared
    _shared = flags


def note_options() -> None:
    """Share whether the command, whose options are known now, prints JSON."""
    if _shared is not None:
        _shared[0] = _JSON if _prints_json(()) else _TEXT


def begin() -> None:
    """Reset the state of an earlier command in this process."""
    note_document(False)
    note_context(None)


def note_context(context: click.Context | None) -> None:
    """Set the context of the running command, which determines whether errors are JSON."""
    global _context
    _context = context


def note_document(printed: bool = True) -> None:
    """Note that the JSON document was printed, so that an error does not print a second one."""
    global _printed
    _printed = printed
    if _shared is not None and printed:
        sys.stdout.flush()  # what is not written is lost if this process is killed
        _shared[1] = True


def fail(error: Exception, arguments: Sequence[str], status: int = 0) -> int:
    """Print an error and return the exit status; with --debug, a bug is raised instead.

    The error is also printed as JSON if the command prints JSON and has not done so. `arguments`
    are the command-line arguments. A nonzero `status` of an earlier error is returned unchanged.
    """
    result = _coded(error)
    is_bug = isinstance(result, BugError)
    if is_bug and logging.getLogger("deploykit").isEnabledFor(logging.DEBUG):
        raise error
    if is_bug:
        complain(f"bug: {result} (please report it; --debug shows the traceback)")
    else:
        complain(f"error: {result}", keep="\n" if isinstance(result, PipelineError) else "")
    if not _printed and _prints_json(arguments):
        print(json.dumps({"error": result.document()}, indent=2))
        note_document()
    return status or result.exit_status


def fail_for_another(error: CodedError, arguments: Sequence[str], flags: Sequence[int]) -> int:
    """Print an error as `fail`, for a command in another process that could not; return the status.

    `flags` are those that the other process passed to `share_with`.
    """
    note_document(bool(flags[1]))
    if flags[0] != _UNKNOWN:
        arguments = ["--json"] if flags[0] == _JSON else []
    with replaced():
        return fail(error, arguments)


def _prints_json(arguments: Sequence[str]) -> bool:
    """Return whether standard output is JSON: --json or `-o -`, even if parsing has failed."""
    values = {} if _context is None else _context.params
    if _context is None or "as_json" not in values:
        defaults = None if _context is None else _context.default_map
        options = itertools.takewhile(lambda argument: argument != "--", arguments)
        return "--json" in options or bool((defaults or {}).get("as_json"))
    reports = [p.name for p in _context.command.params if getattr(p.type, "is_report", False)]
    return bool(values["as_json"]) or any(values.get(str(name)) == "-" for name in reports)


def complain(message: str, keep: str = "") -> None:
    """Print a line on standard error."""
    click.echo(f"deploykit: {escaped(message, keep)}", err=True)


def option_error(
    parameter: click.Parameter | None, context: click.Context | None, got: object, expected: str
) -> Error:
    """Return the error for an option or argument with an invalid value."""
    option = "the value" if parameter is None else parameter.human_readable_name
    if isinstance(parameter, click.Option):
        hidden = getattr(parameter, "hidden_spellings", ())
        shown = [opt for opt in parameter.opts[::-1] if opt not in hidden]
        option = (shown or parameter.opts)[0]
        source = context.get_parameter_source(str(parameter.name)) if context else None
        option += f" (set in {PROJECT_FILE})" * (source is ParameterSource.DEFAULT_MAP)
    return Error("option-value", option=option, got=got, expected=expected, hint=see_help(context))


def see_help(context: click.Context | None) -> str:
    """Return a hint at the help of a command; empty if the command is unknown."""
    return f" (see {context.command_path} --help)" if context is not None else ""


def _coded(error: Exception) -> CodedError:
    """Return an error as a CodedError, converting errors of click and Python."""
    if isinstance(error, CodedError):
        return error
    if isinstance(error, click.ClickException):
        reason = " ".join(error.format_message().split()).rstrip(".")
        return Error("usage", reason=reason, hint=see_help(getattr(error, "ctx", None)))
    if lacks_memory(error):
        return LimitError("out-of-memory-here")
    if isinstance(error, ImportError) and (missing := missing_package(error)) is not None:
        return missing
    if isinstance(error, OSError) and error.filename is not None:
        source = str(error.filename)[:300]
        return FileError("file-error", source=source, reason=error.strerror or error)
    return BugError("child-bug", kind=type(error).__name__, reason=error)
