"""Formats of parameter values on the command line, by the names used in commands.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from deploykit.cli import value_types as of
from deploykit.cli.value_types import PathName, TextOutput, TrueOrFalse, Value
from deploykit.transforms.common.errors import Error

Spec = Mapping[str, Any]
"""The specification of a parameter, as docs/generator/command_table.py generates it."""
READ = ("path", "paths", "home path", "named values")
"""The formats of input files."""
WRITTEN = ("output", "home output", "text output", "report")
"""The formats of output files."""


@dataclass(frozen=True)
class Format:
    """The click type and the conversion of a value."""

    type: Callable[[Spec], Any]
    """Returns the click type for a specification."""
    repeats: bool = False
    convert: Callable[[click.Context, click.Parameter, Any], Any] | None = None
    show: Callable[[Any], str] | None = None
    """Formats a default value; None: the default is shown unchanged."""


def _by_name(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise Error("given-twice", what=f"{param.opts[-1]}:", name=name)
    return dict(value)


def _values_by_name(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]
) -> dict[str, list[Any]]:
    """Return every value of each name, without duplicates."""
    results: dict[str, list[Any]] = {}
    for name, item in value:
        values = results.setdefault(name, [])
        if item not in values:
            values.append(item)
    return results


def _path(spec: Spec) -> PathName:
    return PathName(spec["metavar"] or ("FILE" if spec["options"] else None))


def _home_path(spec: Spec) -> PathName:
    return PathName(spec["metavar"] or "FILE", in_home=True)


def _text_output(spec: Spec) -> TextOutput:
    return TextOutput(spec["metavar"] or "FILE")


def _bounds(spec: Spec, **names: str) -> dict[str, Any]:
    """Return the bounds of a parameter, by the given argument names."""
    return {name: spec[key] for name, key in names.items() if spec[key] is not None}


def _text(spec: Spec) -> Any:
    return click.STRING


FORMATS: Mapping[str, Format] = {
    "alias": Format(lambda spec: Value("ALIAS=TENSOR", of.alias), True, _by_name),
    "blocktime": Format(
        lambda spec: of.setting(
            "kmp_blocktime", "MS", "whole milliseconds or infinite", ["infinite"]
        )
    ),
    "choice": Format(lambda spec: click.Choice(spec["choices"])),
    "column": Format(lambda spec: Value("INPUT=COLUMN", of.column), True, _by_name),
    "counts": Format(lambda spec: of.counts(spec["at_most"])),
    "device": Format(
        lambda spec: of.setting(
            "device", "cpu|gpu|gpu:N|all", "one of cpu, gpu, gpu:N, all", ["cpu", "gpu", "all"]
        )
    ),
    "flag": Format(lambda spec: None),
    "log": Format(_text_output),
    "home output": Format(_home_path),
    "home path": Format(_home_path),
    "kinds": Format(lambda spec: of.one_or_more(spec["choices"], "all")),
    "named values": Format(lambda spec: PathName(spec["metavar"], named=True), True),
    "names": Format(lambda spec: Value("NAMES", of.names)),
    "number": Format(
        lambda spec: of.number(**_bounds(spec, least="at_least", most="at_most", above="above"))
    ),
    "one or more": Format(lambda spec: of.one_or_more(spec["choices"])),
    "output": Format(_path),
    "path": Format(_path),
    "paths": Format(_path, True),
    "percent": Format(
        lambda spec: of.percent(spec["at_least"], spec["at_most"]),
        show=lambda value: f"{100 * value:g}%",
    ),
    "pin": Format(lambda spec: Value("NAME=VALUE", of.pin), True, _by_name),
    "range": Format(
        lambda spec: Value("LO,HI", of.float_range),
        show=lambda value: ",".join(f"{x:g}" for x in value),
    ),
    "report": Format(lambda spec: TextOutput("FILE", is_report=True)),
    "shape": Format(lambda spec: Value("NAME=1,224,224,3", of.shape), True, _by_name),
    "span": Format(
        lambda spec: of.span(spec["at_least"], spec["at_most"]),
        show=lambda value: "..".join(map(str, value)),
    ),
    "switch": Format(lambda spec: Value("on|off|both", of.switch, ("on", "off", "both"))),
    "tags": Format(lambda spec: Value("TAGS", of.tags)),
    "text": Format(_text),
    "text output": Format(_text_output),
    "texts": Format(_text, True),
    "thread pair": Format(lambda spec: Value("AxB", of.thread_pair)),
    "threads": Format(lambda spec: Value("INTRA[xINTER],...", of.threads)),
    "true or false": Format(lambda spec: TrueOrFalse()),
    "variable": Format(lambda spec: Value("NAME=VALUE", of.variable), True, _values_by_name),
    "whole": Format(
        lambda spec: of.whole(**{"least": 1} | _bounds(spec, least="at_least", most="at_most"))
    ),
}
