"""Public functions: fields of their option values are keyword arguments too.

`quantize(model, QuantizeOptions(isa="avx2"))` and `quantize(model, isa="avx2")` are the same. The
command line, the documentation and the type stub are generated from the signatures, the
docstrings and the `Command` values.
"""

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass, replace
from typing import Any, TypeVar

from deploykit.api.arguments import check_arguments
from deploykit.importers.model_source import ModelSource, source_of
from deploykit.storage.parameters import former_names, option_fields, renamed, with_options
from deploykit.transforms.common.flag import alternatives, declared
from deploykit.transforms.common.messages import each_once

R = TypeVar("R")
INTERFACE = ("inputs", "outputs", "tags", "signature")
"""The fields of `ModelSource` that select a part of a model."""


@dataclass(frozen=True)
class Command:
    """The properties of a public function on the command line."""

    name: str = ""
    """The words of the command. Default: the name of the function, with hyphens."""
    heading: str = "Options"
    """The heading in `--help` above the function's own parameters."""
    requires: Sequence[str] = ("tensorflow",)
    """The packages that the command always needs."""
    runs_graph: bool = False
    """Whether the command always runs a graph in TensorFlow."""
    has_limits: bool = True
    """Whether the command has `--timeout` and `--memory-limit`."""
    writes_result: bool = True
    """Whether the command has `-o FILE`, which writes the JSON document."""


def public(
    command: Command | None = None, *, interface: Sequence[str] = INTERFACE
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Return a decorator for a public function.

    Args:
        command: the properties of the command; None: the function is not a command.
        interface: the fields of `ModelSource` that are command-line options; empty: all. In Python,
            they are keyword arguments that apply to every model passed to the function.

    The decorated function raises TypeError for an unknown keyword argument.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(function)
        takers = _models(signature)
        former = _former_names(signature)

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> R:
            keywords = renamed(function.__name__, keywords, former)
            own = signature.parameters
            options = {name: keywords.pop(name) for name in [*keywords] if name not in own}
            bound = signature.bind(*args, **keywords)
            given = dict(bound.arguments)
            bound.apply_defaults()
            groups = _groups(function.__name__, bound, options)
            part = ModelSource(None)
            if options:
                values = [*groups.values(), *([part] if takers else [])]
                changed = with_options(function.__name__, options, *values)
                bound.arguments.update(zip(groups, changed, strict=False))
                for name in takers:
                    bound.arguments[name] = _with_part(bound.arguments[name], options)
                part = changed[-1] if takers else part
            checked = {name: bound.arguments[name] for name in {*given, *groups}}
            check_arguments(function.__name__, own, checked | {"model source": part})
            with each_once():
                return function(*bound.args, **bound.kwargs)

        call.__doc__ = _documented(function.__doc__, signature)
        call.__dict__.update(
            __signature__=expanded(signature, bool(takers)),
            command=command,
            models=tuple(takers),
            interface=tuple(interface),
        )
        return call

    return decorate


def _models(signature: inspect.Signature) -> list[str]:
    """Return the names of the parameters that take a model."""
    return [
        name
        for name, item in signature.parameters.items()
        if ModelSource in alternatives(declared(item.annotation)[0])
    ]


def _documented(text: str | None, signature: inspect.Signature) -> str:
    """Return a docstring whose Args section includes `Flag.help`, in the order of parameters."""
    head, title, tail = inspect.cleandoc(text or "").partition("\nArgs:\n")
    message, gap, rest = tail.partition("\n\n")
    entries = {
        name: textwrap.fill(f"{name}: {flag.help}", 96, initial_indent=" " * 4,
                            subsequent_indent=" " * 8)
        for name, item in signature.parameters.items()
        if (flag := declared(item.annotation)[1]).help
    }  # fmt: skip
    for entry in re.split(r"\n(?= {4}\w)", message):
        entries[entry.strip().partition(":")[0]] = entry
    title = title or ("\n\nArgs:\n" if any(entries) else "")
    args = "\n".join(entries[name] for name in signature.parameters if name in entries)
    return f"{head}{title}{args}{gap}{rest}"


def _former_names(signature: inspect.Signature) -> dict[str, str]:
    """Return a mapping from former to current names of parameters and option fields."""
    names: dict[str, str] = {}
    for name, parameter in signature.parameters.items():
        if is_dataclass(parameter.default):
            names |= former_names(type(parameter.default))
        names |= dict.fromkeys(declared(parameter.annotation)[1].formerly.split(), name)
    return names


def _groups(
    function: str, bound: inspect.BoundArguments, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments that are option values (dataclass instances), by name.

    TypeError: an argument has another type that the function does not accept, or it is combined
    with one of the fields of the option value.
    """
    results: dict[str, Any] = {}
    for name, parameter in bound.signature.parameters.items():
        if not is_dataclass(parameter.default):
            continue
        kind, value = type(parameter.default), bound.arguments[name]
        coerced: Any = getattr(kind, "coerced", lambda value: None)
        if (option := value if isinstance(value, kind) else coerced(value)) is not None:
            results[name] = option
        elif parameter.annotation is kind:
            got = type(value).__name__
            raise TypeError(f"{function}(): {name} must be of class {kind.__name__}, got {got}")
        else:
            for option_field in option_fields(kind):
                if option_field.name in options:
                    got = type(value).__name__
                    raise TypeError(
                        f"{function}(): {option_field.name} cannot be combined with {name} "
                        f"of type {got}"
                    )
    return results


def _with_part(models: Any, options: Mapping[str, Any]) -> Any:
    """Return one or several models as `ModelSource` values that select the named part."""
    part = {
        option_field.name: options[option_field.name]
        for option_field in option_fields(ModelSource)
        if option_field.name in options
    }
    if not part:
        return models
    if isinstance(models, Mapping):
        return {name: _with_part(item, part) for name, item in models.items()}
    if isinstance(models, list | tuple):
        return [_with_part(model, part) for model in models]
    return replace(source_of(models), **part)


def expanded(signature: inspect.Signature, has_model: bool) -> inspect.Signature:
    """Return a signature with the fields of its option values as keyword arguments."""
    results = dict(signature.parameters)
    kinds: list[Any] = [
        type(result.default) for result in results.values() if is_dataclass(result.default)
    ]
    for kind in (*kinds, *([ModelSource] if has_model else [])):
        for field in option_fields(kind):
            if field.name not in results:
                makes = field.default_factory
                results[field.name] = inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default if makes is MISSING else makes(),
                    annotation=field.type,
                )
    return signature.replace(parameters=list(results.values()))
