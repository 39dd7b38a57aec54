"""The table of commands that the command line is built from: deploykit/cli/commands.json.

It is generated from the public functions, their option classes and the presenters, so that
`deploykit --help` imports none of them.
"""

import inspect
import json
import os
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import deploykit
from deploykit.api.public import Command
from deploykit.cli.presenters import graphs, measuring, serving
from deploykit.importers.model_source import ModelSource
from deploykit.storage.parameters import option_fields
from deploykit.transforms.common.flag import Flag, alternatives, declared
from docs.generator.markdown import docstring, raw_docstring
from docs.generator.signatures import declared_fields, imported_for_types

PATH = Path(__file__).parents[2] / "deploykit" / "cli" / "commands.json"


def text() -> str:
    """Return the content of the file."""
    return json.dumps(table(), indent=1, ensure_ascii=False) + "\n"


def table() -> dict[str, Any]:
    """Return the command-line definition of each command, by name."""
    found = {}
    for name in deploykit.__all__:
        function = getattr(deploykit, name)
        command: Command | None = getattr(function, "command", None)
        if command is not None:
            found[command.name or name.replace("_", "-")] = _entry(name, function, command)
    return dict(sorted(found.items()))


def _entry(name: str, function: Any, command: Command) -> dict[str, Any]:
    module = _presenting(name)
    parameters = [
        *_parameters(function, command.heading, "function"),
        *_parameters(getattr(module, name), command.heading, "presenter"),
    ]
    said = docstring(inspect.unwrap(function), is_raw=True)
    known = {each["name"]: _first(each) for each in parameters}
    for each in parameters:
        each["help"] = as_options(each["help"], known)
    return {
        "function": name,
        "presenter": module.__name__.rpartition(".")[2],
        "help": as_options(raw_docstring(function), known),
        "examples": [each.replace("\n", " \\\n  ") for each in said.commands],
        "requires": list(command.requires),
        "runs_graph": command.runs_graph,
        "has_limits": command.has_limits,
        "writes_result": command.writes_result,
        "parameters": parameters,
    }


def _presenting(name: str) -> types.ModuleType:
    """Return the module that defines the presenter of a function, not one that imports the name."""
    for module in (graphs, measuring, serving):
        if getattr(vars(module).get(name), "__module__", None) == module.__name__:
            return module
    raise LookupError(f"no module of deploykit.cli.presenters defines {name}")


def _first(parameter: Mapping[str, Any]) -> str:
    """Return the name of a parameter on the command line."""
    options = parameter["options"]
    return str(options[0] if options else parameter["metavar"] or parameter["name"].upper())


def as_options(text: str, known: Mapping[str, str]) -> str:
    """Replace parameter names between backticks by their names on the command line."""
    return re.sub(r"`(\w+)`", lambda found: known.get(found[1], found[0]), text)


def _parameters(function: Any, heading: str, owner: str) -> Iterator[dict[str, Any]]:
    """Yield the command-line definition of each parameter of a function."""
    plain = inspect.unwrap(function)
    said = docstring(function, is_raw=True).arguments
    hints = typing.get_type_hints(plain, localns=imported_for_types(plain), include_extras=True)
    own = inspect.signature(plain).parameters
    for name, parameter in own.items():
        if parameter.kind is parameter.VAR_KEYWORD or name == "call":
            continue
        if is_dataclass(parameter.default):
            kind = type(parameter.default)
            yield from _fields(kind, "function", [*own], _subset(hints[name], kind))
            continue
        annotation, flag = declared(hints[name])
        if not flag.is_python_only:
            is_argument = (
                owner == "function"
                and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
                and not flag.spelling
            )
            yield {"owner": owner} | _spec(
                name, annotation, flag, parameter.default, said.get(name, ""), heading, is_argument
            )
    if getattr(function, "models", ()):
        shown = function.interface or [each.name for each in option_fields(ModelSource)]
        yield from _fields(ModelSource, "model", [*own], shown)


def _subset(annotation: Any, kind: type) -> Sequence[str]:
    """Return the fields of an option class that are options of the command line."""
    _, flag = declared(annotation)
    return flag.only.split() or [each.name for each in option_fields(kind)]


def _fields(
    kind: Any, owner: str, taken: Sequence[str], shown: Sequence[str]
) -> Iterator[dict[str, Any]]:
    hints = typing.get_type_hints(kind, localns=imported_for_types(kind), include_extras=True)
    said = {name: (text, vars(home)["HEADING"]) for name, _, text, home in declared_fields(kind)}
    for field in option_fields(kind):
        annotation, flag = declared(hints[field.name])
        if field.name in taken or field.name not in shown or flag.is_python_only:
            continue
        default = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        text, heading = said[field.name]
        if getattr(kind, "KEEPS_UNDERSCORES", False) and not flag.spelling:
            flag = replace(flag, spelling=f"--{field.name}")
        yield {"owner": owner} | _spec(field.name, annotation, flag, default, text, heading, False)


def _spec(
    name: str, annotation: Any, flag: Flag, default: Any, said: str, heading: str, is_argument: bool
) -> dict[str, Any]:
    """Return the command-line definition of one parameter."""
    has_default = default is not inspect.Parameter.empty and default is not MISSING
    is_required = not has_default if flag.is_required is None else flag.is_required
    spelling = flag.spelling.split() or [f"--{name.replace('_', '-')}"]
    value = default if has_default and not is_required else None
    return {
        "name": name,
        "options": [] if is_argument else spelling,
        "hidden": flag.hidden.split(),
        "is_required": is_required,
        "default": dict(value) if isinstance(value, Mapping) else value,
        "help": " ".join(said.split()),
        "metavar": flag.metavar,
        "heading": flag.heading or heading,
        "beside": flag.beside,
        **_format(annotation, flag),
    }


def _format(annotation: Any, flag: Flag) -> dict[str, Any]:
    """Return the format of a value, and its bounds or choices."""
    kinds = [*alternatives(annotation)]
    words = _words(annotation)
    bounds = {"at_least": flag.at_least, "at_most": flag.at_most, "above": flag.above}
    if flag.format:
        chosen = flag.format
    elif _words(kinds[0]) and len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        chosen = "choice"
    elif kinds == [bool]:
        chosen = "flag"
    elif kinds == [int]:
        chosen = "whole"
    elif float in kinds:
        chosen = "number"
    elif kinds == [str]:
        chosen = "text"
    elif get_origin(kinds[0]) is not None and get_args(kinds[0])[:1] == (str,):
        chosen = "texts"
    elif any(get_origin(each) is os.PathLike or each is Path for each in kinds):
        chosen = "path"
    else:
        raise TypeError(f"no format for values of {annotation}: give its Flag a format")
    return {"format": chosen, "choices": list(words), **bounds}


def _words(annotation: Any) -> tuple[str, ...]:
    """Return the values of the first Literal in a type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next(filter(None, map(_words, get_args(annotation))), ())
