"""Transforms from outside: `package.module:function` in a transform string.

Such a function takes a graph first, edits it, and returns nothing; what else it takes are its
parameters, as for deploykit's own transforms.
"""

import functools
import inspect
import logging
import typing
from collections.abc import Callable
from types import NoneType, SimpleNamespace, UnionType
from typing import Any

from deploykit.transforms.core.errors import Error, PipelineError
from deploykit.transforms.core.user_functions import raised, user_function

logger = logging.getLogger("deploykit")

TYPES = (str, int, float, bool)
_FREE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def load(name: str) -> Callable[..., None]:
    """Return the function of this name, `package.module:function`.

    What it raises when it runs becomes a PipelineError that names the line. PipelineError, when it
    is loaded: there is no such module or function, or it cannot be a transform.
    """
    try:
        function = user_function(name)
    except Error as error:
        raise error.within(name, PipelineError) from None
    parameters(function, name)

    @functools.wraps(function)
    def guarded(graph: Any, **arguments: Any) -> None:
        try:
            returned = function(graph, **arguments)
        except Error:
            raise
        except (Exception, SystemExit) as error:
            logger.debug("%s failed", name, exc_info=True)
            raise PipelineError("transform-raised", reason=raised(error, function)) from None
        if returned is not None:
            raise PipelineError("transform-returned", kind=type(returned).__name__)

    return guarded


def parameters(function: Callable[..., Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a transform behind its graph: name -> (type, default).

    Without an annotation, the default tells the type. PipelineError: one has none, or another type
    than a transform string can give; or the function takes no graph.
    """
    try:
        first, *others = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PipelineError("transform-without-graph", name=name) from None
    if first.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise PipelineError("transform-without-graph", name=name)
    found = {}
    for parameter in others:
        if parameter.kind in _FREE:
            continue
        type_ = _type(function, parameter)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY or value_type(type_) not in TYPES:
            raise PipelineError("transform-parameter-type", source=name, parameter=parameter.name)
        found[parameter.name] = type_, parameter.default
    return found


def _type(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, or None; other annotations need not be known here."""
    annotation, default = parameter.annotation, parameter.default
    if annotation is inspect.Parameter.empty:
        return type(default) if type(default) in TYPES else None
    own = SimpleNamespace(__annotations__={parameter.name: annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(own, names)[parameter.name]
    except (NameError, SyntaxError, TypeError):
        return None


def value_type(type_: Any) -> Any:
    """Return the type of one value: T of T, of tuple[T, ...] and of T | None."""
    if typing.get_origin(type_) is tuple:
        inner = typing.get_args(type_)
        return inner[0] if inner[1:] == (...,) else None
    if isinstance(type_, UnionType) or typing.get_origin(type_) is typing.Union:
        inner = tuple(each for each in typing.get_args(type_) if each is not NoneType)
        return inner[0] if len(inner) == 1 else None
    return type_
