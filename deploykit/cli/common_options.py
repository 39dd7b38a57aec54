"""Options of all commands, and checks of output files before any input is read."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from deploykit.cli.formats import READ, WRITTEN, Spec
from deploykit.cli.help import Headed
from deploykit.cli.value_types import number, whole
from deploykit.transforms.common.errors import Error


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from deploykit.transforms.runtime.child_process import limits

        limits.show_log = True
        logging.getLogger("deploykit").setLevel(logging.DEBUG)


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> None:
    from deploykit.transforms.runtime import child_process, process_limits

    child_process.limits.seconds = value
    if ctx.get_parameter_source("timeout") is not ParameterSource.DEFAULT:
        child_process.limits.internal_seconds = value
    process_limits.bound(seconds=value)


def _memory(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    from deploykit.transforms.runtime import child_process, process_limits

    child_process.limits.memory = None if value is None else value << 20
    process_limits.bound(memory=child_process.limits.memory)


EVERYWHERE = (
    Headed(["as_json", "--json"], heading="Output", is_flag=True, is_eager=True,
           help="Print one JSON document instead of text."),
    Headed(["--debug"], heading="Output", is_flag=True, expose_value=False, is_eager=True,
           callback=_debug, help="Show TensorFlow's log, what transforms skipped and why, and "
           "Python tracebacks."),
)  # fmt: skip


LIMITS = (
    Headed(["--timeout"], heading="Limits", type=number(above=0), default=600, show_default=True,
           metavar="SECONDS", expose_value=False, callback=_timeout,
           help="Time limit of each TensorFlow run, and of deploykit's work between two runs. "
           "Without this option, runs on synthetic inputs and constant folding have 30 s."),
    Headed(["--memory-limit"], heading="Limits", type=whole(1), metavar="MIB", expose_value=False,
           callback=_memory, help="Stop if a process of TensorFlow or deploykit holds more "
           "memory than this, beyond the engine itself.  [default: 70 % of the available memory]"),
)  # fmt: skip


_TAKEN = "deploykit.standard_output"


def check_outputs(specs: Sequence[Spec], values: dict[str, Any]) -> list[str]:
    """Check the output files, set their defaults, and return the paths that the command reads.

    A text file may be `-` for standard output, which then contains nothing else. FileError: a file
    cannot be written, or is also an input. Error: two options write to standard output.
    """
    from deploykit.storage.files import check_output, default_output

    written = [spec for spec in specs if spec["format"] in WRITTEN]
    _check_standard_output(written, values)
    given = [values[spec["name"]] for spec in specs if spec["format"] in READ]
    listed = [path for value in given for path in (value if isinstance(value, tuple) else (value,))]
    read = [path for path in listed if isinstance(path, str)]
    for spec in written:
        if values[spec["name"]] is not None:
            check_output(values[spec["name"]], values["force"], *read)
    for spec in written:
        if spec["beside"] and values[spec["name"]] is None:
            _, act, end = spec["beside"].split(".")
            values[spec["name"]] = path = str(default_output(values["model"], act, f".{end}"))
            check_output(path, values["force"], *read)
    return read


def _check_standard_output(written: Sequence[Spec], values: Mapping[str, Any]) -> None:
    """Note whether an option writes to standard output. Error: two do."""
    taking = [spec for spec in written if values[spec["name"]] == "-"]
    expected = [spec["options"][0] for spec in taking]
    if values["as_json"] and any(spec["format"] != "report" for spec in taking):
        expected.append("--json")
    if len(expected) > 1:
        raise Error("standard-output-twice", options=expected)
    click.get_current_context().meta[_TAKEN] = bool(taking)


def standard_output_is_used() -> bool:
    """Return whether an option of the running command writes to standard output."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_TAKEN, False)
