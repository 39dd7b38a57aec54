"""Functions of the user's own: `package.module:function`, of the current folder or installed.

Importing a module runs it.
"""

import importlib
import importlib.util
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from deploykit.transforms.core.errors import Error, nearest

logger = logging.getLogger("deploykit")


def user_function(name: str) -> Callable[..., Any]:
    """Return the function of this name. Error: there is none, or its module cannot be imported."""
    module_name, _, function_name = name.partition(":")
    module = _module(module_name)
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if function is None:
        there = tuple(each for each, found in vars(module).items() if inspect.isfunction(found))
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
    """Return what was raised, and where: the last line of the function's file that led there."""
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")
    if isinstance(error, SyntaxError):  # it names its own place
        return said
    code = getattr(inspect.unwrap(function), "__code__", None) if function else None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    own = own or [frame for frame in frames if not frame.filename.startswith("<")] or frames
    return f"{said} ({own[-1].filename}, line {own[-1].lineno})"


def _module(name: str) -> ModuleType:
    try:
        _take_from_current_folder(name.partition(".")[0])
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Error("module-missing", name=error.name) from None
        raise _not_imported(name, error) from None
    except (Exception, SystemExit) as error:
        raise _not_imported(name, error) from None


def _take_from_current_folder(name: str) -> None:
    """Import a module or package that lies in the current folder, whatever else has its name.

    What it imports itself is found there last, so that no other file there hides an installed one.
    """
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was removed meanwhile
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


def _not_imported(name: str, error: BaseException) -> Error:
    logger.debug("%s cannot be imported", name, exc_info=error)
    return Error("module-not-importable", name=name, reason=raised(error))
