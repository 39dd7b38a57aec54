"""Custom functions and transforms, `package.module:function`, from the current folder or an
installed package.
"""

import functools
import importlib
import importlib.util
import inspect
import logging
import os
import sys
import traceback
import typing
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType, NoneType, SimpleNamespace, UnionType
from typing import Any

from deploykit.transforms.common.errors import (
    Error,
    LimitError,
    PipelineError,
    lacks_memory,
    nearest,
)

logger = logging.getLogger("deploykit")


def user_function(name: str) -> Callable[..., Any]:
    """Return the function of this name. Error: it is missing, or its module cannot be imported."""
    module_name, _, function_name = name.partition(":")
    module = _module(module_name)
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        there = tuple(item for item, result in vars(module).items() if inspect.isfunction(result))
        where = f" ({module.__file__})" if getattr(module, "__file__", None) else ""
        raise Error(
            "module-function-missing",
            module=module_name,
            where=where,
            function=function_name,
            hint=nearest(function_name, there),
        )
    if not callable(function):
        raise Error("not-a-function", name=name, kind=type(function).__name__)
    return function


def raised(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """Return the exception and its position: the last line of the function's file in the trace."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")
    if isinstance(error, SyntaxError):  # its message contains the position
        return text
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    own = own or [frame for frame in frames if not frame.filename.startswith("<")] or frames
    return f"{text} ({own[-1].filename}, line {own[-1].lineno})"


def _module(name: str) -> ModuleType:
    try:
        _take_from_current_folder(name.partition(".")[0])
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise Error("module-missing", name=missing) from None
        logger.debug("%s cannot be imported", name, exc_info=error)
        raise Error("module-not-importable", name=name, reason=raised(error)) from None


def _take_from_current_folder(name: str) -> None:
    """Import a module or package from the current folder, before others of the same name.

    Its imports search that folder last, so that no other file there hides an installed module.
    """
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # the folder was removed
        return
    if folder not in sys.path:
        sys.path.append(folder)
    spec = None if name in sys.modules else PathFinder.find_spec(name, [folder])
    if spec is None or spec.loader is None or spec.origin is None:
        return
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


TYPES = (str, int, float, bool)
_FREE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def load(name: str) -> Callable[..., None]:
    """Return the function of this name, `package.module:function`.

    Its exceptions become a PipelineError that names the line. PipelineError on loading: the module
    or function does not exist, or it cannot be a transform.
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
            if lacks_memory(error):
                raise LimitError("memory-cap-reached") from None
            raise PipelineError("transform-raised", reason=raised(error, function)) from None
        if returned is not None:
            raise PipelineError("transform-returned", kind=type(returned).__name__)

    return guarded


def parameters(function: Callable[..., Any], name: str) -> dict[str, tuple[Any, Any]]:
    """Return the parameters of a transform after its graph: name -> (type, default).

    Without an annotation, the default determines the type. PipelineError: a parameter has no type,
    or one that a transform string cannot contain; or the function takes no graph.
    """
    try:
        first, *others = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PipelineError("transform-without-graph", name=name) from None
    if first.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
        raise PipelineError("transform-without-graph", name=name)
    results = {}
    for parameter in others:
        if parameter.kind in _FREE:
            continue
        type_ = _type(function, parameter)
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY or value_type(type_) not in TYPES:
            raise PipelineError("transform-parameter-type", source=name, parameter=parameter.name)
        results[parameter.name] = type_, parameter.default
    return results


def _type(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """Return the type of a parameter, or None; other annotations are not evaluated."""
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
        inner = tuple(part for part in typing.get_args(type_) if part is not NoneType)
        return inner[0] if len(inner) == 1 else None
    return type_
