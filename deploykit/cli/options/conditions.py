"""Options that only have an effect together with others: elsewhere they are an error.

Each condition stands for the options of one command, or of all commands that have these options.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Condition:
    """Where options have an effect."""

    options: tuple[str, ...]
    """Names of parameters."""
    holds: Callable[[Values], Any]
    """Returns something true where they have one."""
    where: str
    """That in words, behind "they have an effect": `with --profile`."""


def _with(option: str, *names: str) -> Condition:
    """Return the condition that an option is given with these."""
    name = option.lstrip("-").replace("-", "_")
    return Condition(names, lambda values: values[name] not in (None, (), False), f"with {option}")


def _without(option: str, *names: str) -> Condition:
    name = option.lstrip("-").replace("-", "_")
    return Condition(names, lambda values: values[name] in (None, (), False), f"without {option}")


_ENCRYPTED = (
    _with("--certificate", "key"),
    Condition(("server_name",), lambda v: v["tls"] or v["ca"] or v["certificate"],
              "with --tls, --ca or --certificate"),
)  # fmt: skip
_NO_DATA = _without("--data", "input_range", "shapes")
CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    "benchmark": (
        _NO_DATA,
        Condition(("top",), lambda v: v["profile"] or v["trace_file"],
                  "with --profile or --trace"),
        _without("--runs", "seconds"),
    ),
    "export": (
        _with("--warmup", "warmup_samples", "warmup_preprocess"),
        _with("--preprocess", "most_pixels"),
    ),
    "freeze": (_NO_DATA,),
    "load-test": (
        *_ENCRYPTED,
        Condition(("concurrency",), lambda v: v["rate"] is None and v["latency_limit_ms"] is None,
                  "without --rate and --search-latency-limit"),
        Condition(("rate",), lambda v: v["latency_limit_ms"] is None,
                  "without --search-latency-limit"),
    ),
    "optimize": (_NO_DATA,),
    "placement": (
        _NO_DATA,
        Condition(("cpu_devices", "no_soft_placement"), lambda v: v["engine"] != "openvino",
                  "with --engine tensorflow"),
    ),
    "plan": (
        *_ENCRYPTED,
        Condition(("data", "preprocess", "batch", "seconds", "processes", "signature", "version",
                   "version_label", "tls", "ca", "certificate", "key", "server_name", "timeout"),
                  lambda v: v["model"] is not None, "where a server is measured: ADDRESS MODEL"),
        Condition(("zones",), lambda v: v["survive"] == "zone", "with --survive zone"),
    ),
    "predict": _ENCRYPTED,
    "status": (
        *_ENCRYPTED,
        Condition(("version", "version_label"), lambda v: v["model"], "with MODEL"),
    ),
    "quantize": (Condition(("input_range",), lambda v: v["data"] is None, "without --data"),),
    "ship": (
        Condition(("max_drop",), lambda v: v["evaluation"] and v["calibration"],
                  "with --calibration and --eval"),
    ),
    "transform": (
        _NO_DATA,
        _with("--verify", "tolerance"),
    ),
    "tune": (_NO_DATA,),
    "verify": (
        _NO_DATA,
        _without("--min-sqnr", "tolerance"),
    ),
}  # fmt: skip


def check_conditions(context: click.Context) -> None:
    """Raise UsageError for an option that was given and has no effect in this combination."""
    for condition in CONDITIONS.get(str(context.command.name), ()):
        for option in _given(context, condition):
            if not condition.holds(context.params):
                raise click.UsageError(
                    f"{option} has no effect here, only {condition.where}; leave it out or change "
                    "the other options",
                    context,
                )


def _given(context: click.Context, condition: Condition) -> Iterator[str]:
    """Yield the options of a condition that the command line or deploykit.toml gives."""
    stated = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in condition.options and context.get_parameter_source(name) in stated:
            yield parameter.opts[0]
