"""Options that only have an effect together with other options, and errors for all other uses.

A TensorFlow Serving flag without effect logs a warning instead, so that existing command lines of
TensorFlow Serving still start a server.
"""

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from deploykit.cli.failures import see_help
from deploykit.transforms.common.errors import Error

Values = Mapping[str, Any]

logger = logging.getLogger("deploykit")

_COMMAND_LINE, _FILE = ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP


@dataclass(frozen=True)
class Condition:
    """The condition under which some options have an effect."""

    options: tuple[str, ...]
    """The names of the parameters."""
    holds: Callable[[Values], Any]
    """Returns a true value if the options have an effect."""
    where: str
    """The condition as text that follows "has an effect", such as `with --profile`."""
    is_warning: bool = False
    """Whether the command logs a warning and runs, instead of failing."""


def _with(option: str, *names: str, word: str = "with") -> Condition:
    """Return a condition: the parameters `names` only have an effect with, or without, `option`."""
    name = option.lstrip("-").replace("-", "_")
    return Condition(
        names,
        lambda values: (values[name] in (None, (), False)) == (word == "without"),
        f"{word} {option}",
    )


_without = functools.partial(_with, word="without")


_ENCRYPTED = (
    _with("--certificate", "key"),
    Condition(("server_name",), lambda v: v["tls"] or v["ca"] or v["certificate"],
              "with --tls, --ca or --certificate"),
)  # fmt: skip
_NO_DATA = _without("--data", "input_range", "shapes")


def _serves_others(values: Values) -> bool:
    """Return whether other machines can reach the server, and it can load new models."""
    host = str(values["host"]).strip("[]")
    return values["workers"] == 1 and host not in ("localhost", "::1") and host[:4] != "127."


_REST = "with --rest_api_port"
_SERVE = (
    Condition(("model_config_file_poll_wait_seconds",), lambda v: v["model_config_file"],
              "with --model_config_file", is_warning=True),
    Condition(("model_name",), lambda v: not v["model_config_file"],
              "without --model_config_file", is_warning=True),
    Condition(("rest_api_timeout_in_ms", "rest_api_enable_cors_support", "monitoring_config_file"),
              lambda v: v["rest_api_port"], _REST, is_warning=True),
    Condition(("max_json_mb",), lambda v: v["rest_api_port"], _REST),
    Condition(("load_retry_interval_micros",), lambda v: v["max_num_load_retries"] != 0,
              "with --max_num_load_retries above 0", is_warning=True),
    Condition(("num_request_iterations_for_warmup",), lambda v: v["enable_model_warmup"],
              "with --enable_model_warmup", is_warning=True),
    Condition(("allow_reload",), _serves_others,
              "with --workers=1 and a --host that other machines can reach"),
)  # fmt: skip
CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    "benchmark": (
        _NO_DATA,
        Condition(("top",), lambda v: v["profile"] or v["trace_file"],
                  "with --profile or --trace"),
        _without("--runs", "seconds"),
    ),
    "export": (
        _with("--warmup", "warmup_samples", "warmup_preprocess"),
        _with("--preprocess", "max_pixels"),
        Condition(("force",), lambda v: v["manifests"] or v["batching"],
                  "with --manifests or --batching"),
    ),
    "freeze": (_NO_DATA,),
    "input write": (
        _with("--model", "inputs", "outputs", "tags", "signature"),
        Condition(("force",), lambda v: v["output"], "with -o"),
    ),
    "load-test": (
        *_ENCRYPTED,
        Condition(("concurrency",), lambda v: v["rate"] is None and v["latency_limit"] is None,
                  "without --rate and --latency-limit"),
        Condition(("rate",), lambda v: v["latency_limit"] is None,
                  "without --latency-limit"),
    ),
    "optimize": (_NO_DATA,),
    "placement": (
        _NO_DATA,
        Condition(("cpu_devices", "soft_placement"), lambda v: v["engine"] != "openvino",
                  "with --engine tensorflow"),
    ),
    "predict": _ENCRYPTED,
    "quantize": (Condition(("input_range",), lambda v: v["data"] is None, "without --data"),),
    "serve": _SERVE,
    "ship": (
        Condition(("max_drop",), lambda v: v["evaluation"] and v["calibration"],
                  "with --calibration and --evaluation"),
    ),
    "status": (
        *_ENCRYPTED,
        Condition(("version", "version_label"), lambda v: v["model"], "with MODEL"),
    ),
    "transform": (
        _NO_DATA,
        _with("--verify", "tolerance", "data", "preprocess", "labels", "shapes", "input_range",
              "allow_unverified"),
    ),
    "tune": (_NO_DATA,),
    "verify": (_NO_DATA, _without("--min-sqnr", "tolerance")),
}  # fmt: skip
"""The conditions by the words of a command, except those of `--force`."""


def conditions_of(words: str, command: click.Command) -> list[Condition]:
    """Return the conditions of a command. If -o writes the result, --force needs an output file."""
    results = [*CONDITIONS.get(words, ())]
    files = [param for param in command.params if getattr(param, "is_output", False)]
    files.sort(key=lambda item: not getattr(item.type, "is_report", False))
    if files and getattr(files[0].type, "is_report", False):
        *others, last = (file.opts[0] for file in files)
        where = f"with {', '.join(others)} or {last}" if others else f"with {last}"
        names = [str(file.name) for file in files]
        results.append(Condition(("force",), lambda v: any(v[name] for name in names), where))
    return results


def check_conditions(context: click.Context) -> None:
    """Raise Error for a command-line option that has no effect in this combination.

    The command line overrides deploykit.toml: its options are ignored if they have no effect, or
    if they would disable an option of the command line.
    """
    conditions = conditions_of(_words(context), context.command)
    for condition in conditions:
        if not condition.holds(context.params) and _given(context, condition, _COMMAND_LINE):
            _ignore_conflicting(context, condition)
    for condition in conditions:
        if condition.holds(context.params):
            continue
        for parameter in _given(context, condition, _FILE):
            _ignore(context, parameter)
        for parameter in _given(context, condition, _COMMAND_LINE):
            option = parameter.opts[0]
            if not condition.is_warning:
                hint = see_help(context)
                raise Error("option-no-effect", option=option, where=condition.where, hint=hint)
            logger.warning("%s", Error("no-effect", option=option, where=condition.where))


def _words(context: click.Context) -> str:
    """Return the words of a command after `deploykit`, such as `records verify`."""
    words: list[str] = []
    here: click.Context | None = context
    while here is not None and (here.parent is not None or not words):
        words.insert(0, str(here.command.name))
        here = here.parent
    return " ".join(words)


def _given(
    context: click.Context, condition: Condition, source: ParameterSource
) -> list[click.Parameter]:
    """Return the options of a condition that come from a source; flags that are off are omitted."""
    return [
        parameter
        for parameter in context.command.params
        if parameter.name in condition.options
        and context.get_parameter_source(parameter.name) is source
        and not (context.params.get(parameter.name) is False and parameter.default is not True)
    ]


def _ignore_conflicting(context: click.Context, condition: Condition) -> None:
    """Ignore as few options of deploykit.toml as needed to make a condition true, if possible."""
    given = [
        parameter
        for parameter in context.command.params
        if parameter.name in context.params
        and context.get_parameter_source(parameter.name) is _FILE
    ]
    ignored = {str(parameter.name): _default(context, parameter) for parameter in given}
    if not condition.holds({**context.params, **ignored}):
        return
    for name in [*ignored]:
        fewer = {other: value for other, value in ignored.items() if other != name}
        if condition.holds({**context.params, **fewer}):
            ignored = fewer
    for parameter in given:
        if parameter.name in ignored:
            _ignore(context, parameter)


def _ignore(context: click.Context, parameter: click.Parameter) -> None:
    """Replace a value from deploykit.toml by the default."""
    name = str(parameter.name)
    context.set_parameter_source(name, ParameterSource.DEFAULT)
    default = _default(context, parameter)
    if name in context.params:
        context.params[name] = default


def _default(context: click.Context, parameter: click.Parameter) -> Any:
    """Return the converted default of a parameter; None for a required parameter."""
    default = parameter.to_info_dict()["default"]
    value = parameter.type_cast_value(context, default)
    return parameter.callback(context, parameter, value) if parameter.callback else value
