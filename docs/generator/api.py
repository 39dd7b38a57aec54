"""The page of the Python API: signatures and docstrings of `deploykit.__all__`."""

import ast
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

import deploykit
from deploykit.importers import open_model
from deploykit.verification import samples
from docs.generator import commands
from docs.generator.markdown import docstring, fence, link
from docs.generator.signatures import Member, inner, members, signature

INTRODUCTION = """
Import everything here from `deploykit`, which starts TensorFlow only if a model has to run, and
then in a child process. A function with the name of a command does the same as the command, with
the same defaults. Arrays are NumPy arrays. Errors are subclasses of `Error` in
`deploykit.transforms.common.errors`; the docstrings name them.

The examples follow `import deploykit` and `import numpy as np` in a folder with the files of
`models/fashion`. There, `fashion.pb` is the frozen `fashion.keras`, `before.json` and `after.json`
are results of two benchmarks, and the server at 127.0.0.1:8500 serves that model.
`tests/deploykit/test_examples.py` runs all of them.
"""
SECTIONS = {
    "Functions of the commands": "In the order of the workflow.",
    "Other functions": "",
    "Classes": "",
    "Parameter and result classes": "With the module to import them from.",
}


def page() -> str:
    """Return the page."""
    aliases = attribute_texts(open_model) | attribute_texts(samples)
    names = [name for name in deploykit.__all__ if name not in aliases]
    public = {name: getattr(deploykit, name) for name in names}
    classes = [name for name, thing in public.items() if inspect.isclass(thing)]
    called = {name: command_of(name) for name in public if name not in classes}
    acts = sorted((name for name in called if called[name]), key=lambda n: _place(called[n]))
    others = [name for name in called if not called[name]]
    met = inner(public.values())
    groups = (acts, others, classes, [thing.__name__ for thing in met])
    things = public | {thing.__name__: thing for thing in met}
    parts = ["# Python API", INTRODUCTION.strip()]
    for (title, text), names in zip(SECTIONS.items(), groups, strict=True):
        if names:
            listed = ", ".join(link(f"`{name}`", f"#{name.lower()}") for name in names)
            parts += [f"## {title}", *([text] if text else []), f"{listed}."]
        for name in names:
            parts += filter(None, _entry(name, things[name], called.get(name, "")))
    return "\n\n".join([*parts, "## Types of parameters", _list(aliases)]) + "\n"


def attribute_texts(module: Any) -> dict[str, str]:
    """Return the docstrings of the values of a module, by name."""
    body = ast.parse(inspect.getsource(module)).body
    return {
        ast.unparse(node.target): " ".join(str(behind.value.value).split())
        for node, behind in itertools.pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(behind, ast.Expr)
        and isinstance(behind.value, ast.Constant)
    }


def command_of(name: str) -> str:
    """Return the command of a function, or an empty string."""
    words = set(name.split("_"))
    for command in commands.names():
        if words - {"list"} == set(command.replace("-", " ").split()):
            return command
    return ""


def _place(command: str) -> int:
    return commands.names().index(command)


def _entry(name: str, thing: object, command: str) -> Iterator[str]:
    said, made = docstring(thing), docstring(getattr(thing, "__init__", None))
    yield f"### {name}"
    if name in deploykit.__all__:
        yield fence(f"deploykit.{signature(thing)}", "python")
    else:
        yield fence(f"from {thing.__module__} import {name}", "python")
    yield said.text
    if command:
        address = f"commands.md#{commands.anchor(command)}"
        yield f"On the command line: {link(f'`deploykit {command}`', address)}."
    if name in deploykit.__all__ and made.arguments:
        yield _list(made.arguments)
        yield made.rest
    yield _list(said.arguments)
    if kinds := option_kinds(thing):
        listed = ", ".join(link(f"`{kind}`", f"#{kind.lower()}") for kind in kinds)
        yield f"Fields of {listed} are keyword arguments too."
    yield said.rest
    if inspect.isclass(thing):
        yield "\n".join(map(_member, members(thing)))
    if said.example:
        yield fence(said.example, "pycon")


def option_kinds(thing: Any) -> list[str]:
    """Return the classes whose fields are keyword arguments of a function."""
    if getattr(thing, "command", None) is None:
        return []
    parameters = inspect.signature(inspect.unwrap(thing)).parameters.values()
    found = [type(each.default).__name__ for each in parameters if is_dataclass(each.default)]
    return [*found, *(["ModelSource"] if thing.models else [])]


def _list(arguments: dict[str, str]) -> str:
    return "\n".join(f"* `{name}`: {text}" for name, text in arguments.items())


def _member(member: Member) -> str:
    """Return a list entry; its details are indented."""
    said = member.said
    head = f"* `{member.code}`" + (f": {said.text}" if said.text else "")
    parts = [part for part in (head, _list(said.arguments), said.rest) if part]
    if said.example:
        parts.append(fence(said.example, "pycon"))
    first, *others = "\n\n".join(parts).splitlines()
    return "\n".join([first, *(f"  {line}".rstrip() for line in others)])
