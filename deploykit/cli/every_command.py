"""What every command takes, and every command that runs TensorFlow."""

import logging

import click
from click.core import ParameterSource

from deploykit.cli.help import Headed
from deploykit.cli.value_types import number, whole


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from deploykit.transforms.core.running.child import limits

        limits.show_log = True
        logging.getLogger("deploykit").setLevel(logging.DEBUG)


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> None:
    from deploykit.transforms.core.running import child, own_work

    child.limits.seconds = value
    if ctx.get_parameter_source("timeout") is not ParameterSource.DEFAULT:
        child.limits.internal_seconds = value
    own_work.bound(seconds=value)


def _memory(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    from deploykit.transforms.core.running import child, own_work

    child.limits.memory = None if value is None else value << 20
    own_work.bound(memory=child.limits.memory)


EVERYWHERE = (
    Headed(["as_json", "--json"], heading="Output", is_flag=True, is_eager=True,
           help="Print one JSON document instead of text."),
    Headed(["--debug"], heading="Output", is_flag=True, expose_value=False, is_eager=True,
           callback=_debug, help="Show TensorFlow's log, what transforms skipped and why, and "
           "tracebacks."),
)  # fmt: skip


LIMITS = (
    Headed(["--timeout"], heading="Limits", type=number(above=0), default=600, show_default=True,
           metavar="SECONDS", expose_value=False, callback=_timeout,
           help="Stop a TensorFlow run, or the work between two, after this long. Runs "
           "on synthetic inputs and constant folding stop after 30 s without this option."),
    Headed(["--memory-limit"], heading="Limits", type=whole(1), metavar="MIB", expose_value=False,
           callback=_memory, help="Stop if TensorFlow or deploykit takes more memory than "
           "this.  [default: 70 % of the available memory]"),
)  # fmt: skip
