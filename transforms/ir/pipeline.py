"""Run transforms in order on a copy of a graph, and prune and check it after each.

The keyword-only parameters of a transform declare the parameters of the transform string, the
Python API and the help. `ignore_errors=true` is a parameter of every step: a transform that fails
is skipped, and the graph stays as before. `package.module:function` is a custom transform.
"""

import functools
import importlib
import inspect
import pkgutil
import time
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deploykit import transforms
from deploykit.transforms.common.errors import Error, PipelineError, nearest
from deploykit.transforms.ir import grammar, user_functions

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
    result: Callable[..., None] = getattr(
        importlib.import_module(f"deploykit.transforms.{name}"), name
    )
    return result


@functools.cache
def parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a transform: name -> (type, default)."""
    return user_functions.parameters(function(name), name)


def parse(text: str) -> list[Step]:
    """Return the steps of a transform string; an alias makes one step for each of its transforms.

    PipelineError, with a caret: the string does not parse, or it names an unknown transform or an
    unknown, repeated or badly typed parameter.
    """
    calls = grammar.parse(text)
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


def _bind(call: grammar.Call, text: str) -> list[Step]:
    """Return the steps of a call; each transform of an alias gets the parameters that it has."""
    meant = ALIASES.get(call.name, (call.name,))
    own = {name: result for item in meant for name, result in parameters(item).items()}
    declared = own | {IGNORE_ERRORS: (bool, False)}
    arguments: dict[str, Any] = {}
    for given in call.parameters:
        if given.name not in declared:
            raise PipelineError(
                "parameter-unknown",
                text,
                given.position,
                transform=call.name,
                name=given.name,
                known=own,
                hint=nearest(given.name, tuple(declared)),
            )
        type_, _ = declared[given.name]
        try:
            value = _convert(given.value, type_)
        except ValueError as error:
            raise PipelineError(
                "parameter-value",
                text,
                given.position,
                transform=call.name,
                name=given.name,
                expected=error,
                got=given.value,
            ) from None
        if typing.get_origin(type_) is tuple:
            arguments[given.name] = (*arguments.get(given.name, ()), value)
        elif given.name in arguments:
            raise PipelineError(
                "parameter-twice", text, given.position, transform=call.name, name=given.name
            )
        else:
            arguments[given.name] = value
    ignore_errors = arguments.pop(IGNORE_ERRORS, False)
    for name, (_, default) in own.items():
        if default is inspect.Parameter.empty and name not in arguments:
            raise PipelineError(
                "parameter-missing",
                text=text,
                position=call.position,
                transform=call.name,
                name=name,
            )
    return [
        Step(item, {n: v for n, v in arguments.items() if n in parameters(item)}, ignore_errors)
        for item in meant
    ]


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
