"""How the command line writes the value of a parameter, by the format that the table names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from deploykit.cli.value_types import (
    Alias,
    Blocktime,
    Counts,
    DeviceName,
    Finite,
    HomePath,
    Kinds,
    Names,
    OneOrMore,
    PathName,
    Pin,
    Range,
    Shape,
    Span,
    Switch,
    Tags,
    TextOutput,
    ThreadPair,
    Threads,
    TrueOrFalse,
    Whole,
)
from deploykit.transforms.core.errors import Error

Spec = Mapping[str, Any]
"""A parameter, as docs/generator/command_table.py describes it."""
READ = ("path", "paths", "home path", "named values")
"""Formats of files to read."""
WRITTEN = ("output", "home output", "text output", "report")
"""Formats of files to write."""


@dataclass(frozen=True)
class Format:
    """How a value is written."""

    type: Callable[[Spec], Any]
    """Returns the type of click."""
    repeats: bool = False
    convert: Callable[[click.Context, click.Parameter, Any], Any] | None = None
    show: Callable[[Any], str] | None = None
    """Writes a default; None: as it is."""


def _by_name(
    ctx: click.Context, param: click.Parameter, value: tuple[tuple[str, Any], ...]
) -> dict[str, Any]:
    names = [name for name, _ in value]
    for name in names:
        if names.count(name) > 1:
            raise Error("given-twice", what=f"{param.opts[-1]}:", name=name)
    return dict(value)


def _path(spec: Spec) -> PathName:
    return PathName(spec["metavar"] or ("FILE" if spec["options"] else None))


def _whole(spec: Spec) -> Whole:
    least, most = spec["at_least"], spec["at_most"]
    return Whole(1 if least is None else least, *(() if most is None else (most,)))


def _number(spec: Spec) -> Finite:
    bounds = {"least": spec["at_least"], "most": spec["at_most"], "above": spec["above"]}
    return Finite(**{name: value for name, value in bounds.items() if value is not None})


def _text(spec: Spec) -> Any:
    return click.STRING


FORMATS: Mapping[str, Format] = {
    "alias": Format(lambda spec: Alias(), True, _by_name),
    "blocktime": Format(lambda spec: Blocktime()),
    "choice": Format(lambda spec: click.Choice(spec["choices"])),
    "counts": Format(lambda spec: Counts(spec["at_most"])),
    "device": Format(lambda spec: DeviceName()),
    "flag": Format(lambda spec: None),
    "log": Format(lambda spec: TextOutput(spec["metavar"] or "FILE")),
    "home output": Format(lambda spec: HomePath(spec["metavar"] or "FILE")),
    "home path": Format(lambda spec: HomePath(spec["metavar"] or "FILE")),
    "kinds": Format(lambda spec: Kinds(spec["choices"])),
    "named values": Format(lambda spec: PathName(spec["metavar"], named=True), True),
    "names": Format(lambda spec: Names()),
    "number": Format(_number),
    "one or more": Format(lambda spec: OneOrMore(tuple(spec["choices"]))),
    "output": Format(_path),
    "path": Format(_path),
    "paths": Format(_path, True),
    "pin": Format(lambda spec: Pin(), True, _by_name),
    "range": Format(lambda spec: Range(), show=lambda value: ",".join(f"{x:g}" for x in value)),
    "report": Format(lambda spec: TextOutput("FILE", is_report=True)),
    "shape": Format(lambda spec: Shape(), True, _by_name),
    "span": Format(
        lambda spec: Span(spec["at_least"], spec["at_most"]),
        show=lambda value: "..".join(map(str, value)),
    ),
    "switch": Format(lambda spec: Switch()),
    "tags": Format(lambda spec: Tags()),
    "text": Format(_text),
    "text output": Format(lambda spec: TextOutput(spec["metavar"] or "FILE")),
    "texts": Format(_text, True),
    "thread pair": Format(lambda spec: ThreadPair()),
    "threads": Format(lambda spec: Threads()),
    "true or false": Format(lambda spec: TrueOrFalse()),
    "whole": Format(_whole),
}
