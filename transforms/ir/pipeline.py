"""Run transforms in order on a copy of a graph, and prune and check it after each.

The transform string is that of the Graph Transform Tool: `name(parameter=value, ...) name ...`.

    string    := (transform [ "(" [parameter ([","] parameter)*] ")" ])*
    transform := name | name ("." name)* ":" name
    parameter := name "=" value
    value     := "..." | '...' | characters out of A-Z a-z 0-9 . _ / : * ? ^ + -

Blanks, newlines, a backslash at the end of a line and `# comments` may be between any two parts.
Values may contain a colon, and an unclosed parenthesis is an error. As in the original, a backslash
inside quotes keeps the next character from ending them and is not removed.

The keyword-only parameters of a transform declare the parameters of the transform string, the
Python API and the help. Extensions of the original: `ignore_errors=true` is a parameter of every
step: a transform that fails is skipped, and the graph stays as before. `package.module:function` is
a custom transform.
"""

import functools
import importlib
import inspect
import pkgutil
import re
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deploykit import transforms
from deploykit.transforms.common.errors import Error, PipelineError, nearest
from deploykit.transforms.ir import user_functions

_BLANK = re.compile(r"(?:\s|\\(?=\s|$)|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TRANSFORM = re.compile(r"[A-Za-z0-9_]+(?:(?:\.\w+)*:\w+)?")
_VALUE = re.compile(r"[A-Za-z0-9._/:*?^+-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """One `name=value` and its position in the string."""

    name: str
    value: str
    position: int


@dataclass(frozen=True)
class Call:
    """One transform with its parameters and its position in the string."""

    name: str
    parameters: tuple[Parameter, ...]
    position: int


class _Scanner:
    """The string and the current position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip(self, count: int) -> None:
        """Skip characters, and the blanks after them."""
        match = _BLANK.match(self.text, self.position + count)
        assert match is not None
        self.position = match.end()

    def at(self, *characters: str) -> bool:
        return self.text.startswith(characters, self.position)

    def take(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(expected)
        self.skip(len(match[0]))
        return match

    def error(self, expected: str) -> PipelineError:
        text, position = self.text, self.position
        if position == len(text):
            return PipelineError("syntax-ends", text, position, expected=expected)
        found = text[position]
        return PipelineError("syntax-unexpected", text, position, expected=expected, found=found)


def parse_calls(text: str) -> list[Call]:
    """Return the calls of a transform string. PipelineError: a caret marks the position."""
    reader = _Scanner(text)
    reader.skip(0)
    calls = []
    while reader.position < len(text):
        position = reader.position
        name = reader.take(_TRANSFORM, "the name of a transform").group()
        parameters = _parameters(reader) if reader.at("(") else ()
        calls.append(Call(name, parameters, position))
    return calls


def _parameters(reader: _Scanner) -> tuple[Parameter, ...]:
    opened = reader.position
    reader.skip(1)
    parameters: list[Parameter] = []
    while not reader.at(")"):
        if reader.position == len(reader.text):
            raise PipelineError("parenthesis-open", text=reader.text, position=opened)
        parameters.append(_parameter(reader))
        if reader.at(","):
            reader.skip(1)
            if reader.at(")"):
                raise reader.error("the name of a parameter after the comma")
    reader.skip(1)
    return tuple(parameters)


def _parameter(reader: _Scanner) -> Parameter:
    position = reader.position
    name = reader.take(_NAME, "the name of a parameter").group()
    if not reader.at("="):
        raise reader.error(f"= after {name}")
    reader.skip(1)
    if reader.at('"', "'"):
        match = _QUOTED.match(reader.text, reader.position)
        if match is None:
            raise PipelineError("quote-open", text=reader.text, position=reader.position)
        reader.skip(len(match[0]))
        return Parameter(name, match.group(1) or match.group(2) or "", position)
    return Parameter(name, reader.take(_VALUE, f"a value for {name}").group(), position)


if TYPE_CHECKING:
    from deploykit.transforms.ir.graph import Graph

IGNORE_ERRORS = "ignore_errors"

# Names of the three fusions in the Graph Transform Tool's README, and its old spelling.
ALIASES = {
    "fuse_convolutions": ("fuse_resize_pad_and_conv", "fuse_resize_and_conv", "fuse_pad_and_conv"),
    "obsfucate_names": ("obfuscate_names",),
}


@dataclass(frozen=True)
class Step:
    """One transform with its arguments."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    ignore_errors: bool = False
    failure: str = ""
    """Why it cannot run with these arguments, if it ignores errors."""


@dataclass(frozen=True)
class Result:
    """The graph after a step, and the report of the step."""

    transform: str
    graph: "Graph"
    seconds: float
    skipped: tuple[str, ...]
    error: str | None = None


@functools.cache
def names() -> tuple[str, ...]:
    """Return the names of all transforms: the modules directly in `transforms`."""
    result = pkgutil.iter_modules(transforms.__path__)
    return tuple(sorted(module.name for module in result if not module.ispkg))


@functools.cache
def function(name: str) -> Callable[..., None]:
    """Return a transform by name. PipelineError: it does not exist; the message suggests names."""
    if ":" in name:
        return user_functions.load(name)
    if name not in names():
        raise PipelineError("missing", kind="transform", name=name, hint=nearest(name, names()))
    module: Any = importlib.import_module(f"deploykit.transforms.{name}")
    return getattr(module, name)  # type: ignore[no-any-return]


@functools.cache
def parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a transform: name -> (type, default)."""
    return user_functions.parameters(function(name), name)


def parse(text: str) -> list[Step]:
    """Return the steps of a transform string; an alias makes one step for each of its transforms.

    PipelineError, with a caret: the string does not parse, or it names an unknown transform or an
    unknown, repeated, missing or badly typed parameter. The last three make a step that fails if it
    ignores errors.
    """
    calls = parse_calls(text)
    known = (*names(), *ALIASES)
    for call in calls:
        if ":" in call.name:
            try:
                function(call.name)
            except PipelineError as error:
                raise error.at(text, call.position) from None
        elif call.name not in known:
            hint = nearest(call.name, known)
            raise PipelineError(
                "missing", text, call.position, kind="transform", name=call.name, hint=hint
            )
    return [step for call in calls for step in _bind(call, text)]


def _bind(call: Call, text: str) -> list[Step]:
    """Return the steps of a call; each transform of an alias gets the parameters that it has."""
    meant = ALIASES.get(call.name, (call.name,))
    own = {name: result for item in meant for name, result in parameters(item).items()}
    declared = own | {IGNORE_ERRORS: (bool, False)}
    flags: list[Parameter] = []
    others: list[Parameter] = []
    for given in call.parameters:
        if (name := given.name) not in declared:
            raise PipelineError(
                "parameter-unknown",
                text,
                given.position,
                transform=call.name,
                name=name,
                known=own,
                hint=nearest(name, tuple(declared)),
            )
        (flags if name == IGNORE_ERRORS else others).append(given)
    flag = _arguments(call, flags, {IGNORE_ERRORS: (bool, False)}, text)
    ignore_errors, failure, arguments = flag.get(IGNORE_ERRORS, False), "", dict[str, Any]()
    try:
        arguments = _arguments(call, others, own, text)
    except PipelineError as error:
        if not ignore_errors:
            raise
        failure = str(error).splitlines()[0]
    return [
        Step(
            item,
            {n: v for n, v in arguments.items() if n in parameters(item)},
            ignore_errors,
            failure,
        )
        for item in meant
    ]


def _arguments(
    call: Call, given_ones: list[Parameter], declared: dict[str, tuple[Any, Any]], text: str
) -> dict[str, Any]:
    """Return converted arguments. PipelineError: one is invalid, repeated or missing."""
    arguments: dict[str, Any] = {}
    transform = call.name
    for given in given_ones:
        name, at = given.name, given.position
        type_, _ = declared[name]
        try:
            value = _convert(given.value, type_)
        except ValueError as expected:
            got = given.value
            raise PipelineError(
                "parameter-value",
                text,
                at,
                transform=transform,
                name=name,
                expected=expected,
                got=got,
            ) from None
        if typing.get_origin(type_) is tuple:
            arguments[name] = (*arguments.get(name, ()), value)
        elif name in arguments:
            raise PipelineError("parameter-twice", text, at, transform=transform, name=name)
        else:
            arguments[name] = value
    for name, (_, default) in declared.items():
        if default is inspect.Parameter.empty and name not in arguments:
            raise PipelineError(
                "parameter-missing", text, call.position, transform=transform, name=name
            )
    return arguments


def _convert(value: str, type_: Any) -> Any:
    """Return `value` as a parameter of this type; for tuple[T, ...], as one element of type T."""
    type_ = user_functions.value_type(type_)
    if type_ is bool:
        known = {"true": True, "1": True, "false": False, "0": False}
        if value.lower() not in known:
            raise ValueError("true or false")
        return known[value.lower()]
    if type_ in (int, float):
        try:
            return type_(value)
        except ValueError:
            kind = "a whole number" if type_ is int else "a number"
            raise ValueError(kind) from None
    return value


# Unused nodes are pruned before each transform, except for transforms that look for them.
LOOKING_BEYOND = frozenset({"sparsify_gather"})


def run(graph: "Graph", steps: list[Step]) -> Iterator[Result]:
    """Yield the graph after each step; the given graph is not changed.

    GraphError: the graph is invalid, before the first step or after one.
    """
    graph.check()
    for step in steps:
        if step.failure:
            yield Result(step.name, graph.copy(), 0.0, (), step.failure)
            continue
        start = time.perf_counter()
        work, failure = graph.copy(), None
        try:
            if step.name not in LOOKING_BEYOND:
                work.prune()
            function(step.name)(work, **step.arguments)
            work.prune()
            work.check()
        except Error as error:
            if not step.ignore_errors:
                raise error.within(step.name) from None
            work, failure = graph.copy(), str(error)
        graph = work
        seconds = time.perf_counter() - start
        yield Result(step.name, graph, seconds, tuple(work.skipped), failure)
