"""The page of errors, from the message catalogue and the code that raises them."""

import ast
import functools
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deploykit.transforms.common.errors import CodedError, default_code
from deploykit.transforms.common.messages import catalogue
from docs.generator.markdown import code, plain

ROOT = Path(__file__).parents[2]
_FOLDERS = ("deploykit", "serving", "transforms")
_LINKS = ("deploykit/serving", "deploykit/transforms")
_BASE = CodedError.__name__

INTRODUCTION = """
Each error has a stable `code` and `fields`; its message is rendered from them.
With `--json`, a failing command prints them as `{"error": {"code": ..., "fields": ...}}`.
In Python, they are attributes: `except deploykit.Error as error: error.code`. The field
`source` is the file or node of the error; the message begins with it.

An error with a custom text, for example from your own transform, has the code of its class.
"""


@dataclass(frozen=True)
class Maker:
    """A class of errors, or a function that returns one for a code and its fields."""

    name: str
    made: str
    """Name of the error class."""
    place: int
    """Index of the argument that is the code."""
    parameters: frozenset[str] = frozenset()
    """Names of the parameters that are not fields."""
    fields: frozenset[str] = frozenset()
    """Fields that the function adds."""


@dataclass(frozen=True)
class Site:
    """A call that creates an error."""

    path: Path
    line: int
    maker: Maker
    code: str | None
    """None for an error with a custom text."""
    fields: frozenset[str] | None
    """None if they are copied from another error."""

    @property
    def where(self) -> str:
        """Path and line, for messages."""
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def nodes_of(text: str) -> list[ast.AST]:
    """Return the classes, functions and calls of a module."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.Call)
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]


@functools.cache
def _modules() -> dict[Path, list[ast.AST]]:
    found = (path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    own = (path for path in found if not str(path.relative_to(ROOT)).startswith(_LINKS))
    return {path: nodes_of(path.read_text()) for path in own}


def _name(node: ast.expr) -> str:
    """Return the last name of a call's function or a class's base."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


@functools.cache
def classes() -> dict[str, tuple[ast.ClassDef, Path]]:
    """Return the classes of errors by name."""
    every = [
        (node, path)
        for path, nodes in _modules().items()
        for node in nodes
        if isinstance(node, ast.ClassDef)
    ]
    found: dict[str, tuple[ast.ClassDef, Path]] = {}
    names: set[str] = {_BASE}
    while fresh := {
        node.name: (node, path)
        for node, path in every
        if names & set(map(_name, node.bases)) and node.name not in names
    }:
        found |= fresh
        names |= fresh.keys()
    return found


def _arguments(function: ast.FunctionDef) -> tuple[list[str], frozenset[str]]:
    """Return the positional-only arguments, and the names of the others."""
    given = function.args
    inner = [each.arg for each in given.posonlyargs if each.arg not in ("self", "cls")]
    return inner, frozenset(each.arg for each in (*given.args, *given.kwonlyargs))


def _maker_of(name: str) -> Maker:
    """Return how a class is constructed: by its own `__init__`, or by that of a base class."""
    node, _ = classes()[name]
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            inner, names = _arguments(each)
            return Maker(name, name, inner.index("code"), names)
    base = next((found for each in node.bases if (found := _name(each)) in classes()), None)
    above = _maker_of(base) if base else Maker(name, name, 0)
    return Maker(name, name, above.place, above.parameters)


@functools.cache
def _helpers() -> dict[tuple[Path, str], ast.FunctionDef]:
    """Return the functions that take a code and its fields, by module and name."""
    return {
        (path, each.name): each
        for path, nodes in _modules().items()
        for each in nodes
        if isinstance(each, ast.FunctionDef) and each.name != "__init__"
        if each.args.kwarg and "code" in _arguments(each)[0]
    }


@functools.cache
def _makers() -> dict[str, Maker]:
    found = {name: _maker_of(name) for name in classes()}
    for (_, name), function in _helpers().items():
        inner, names = _arguments(function)
        made, added = _passed_on(function, found)
        found[name] = Maker(name, made, inner.index("code"), names, added)
    return found


def _passed_on(function: ast.FunctionDef, makers: dict[str, Maker]) -> tuple[str, frozenset[str]]:
    """Return the class of the error that a function returns, and the fields that it adds."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and _name(call.func) in makers:
            maker = makers[_name(call.func)]
            added = {each.arg for each in call.keywords if each.arg} - maker.parameters
            return maker.made, frozenset(added)
    raise AssertionError(f"{function.name} makes no error")


def sites() -> Iterator[Site]:
    """Yield the calls that create errors."""
    every, helpers = _makers(), _helpers()
    for path, nodes in _modules().items():
        passing = {
            id(call)
            for function in nodes
            if isinstance(function, ast.FunctionDef) and "code" in _arguments(function)[0]
            for call in ast.walk(function)
        }
        own = {each.name for each in nodes if isinstance(each, ast.FunctionDef)}
        makers = {
            name: maker
            for name, maker in every.items()
            if name in classes() or (path, name) in helpers or name not in own
        }
        for call in nodes:
            if not isinstance(call, ast.Call) or id(call) in passing:
                continue
            known = _name(call.func)
            given = _text(call.args[0]) if call.args else None
            if known not in makers and given in catalogue():  # of a class chosen at run time
                fields = frozenset(each.arg for each in call.keywords if each.arg)
                yield Site(path, call.lineno, Maker("", "", 0), given, fields or None)
            elif known in makers:
                yield _site(path, call, makers[known])


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _site(path: Path, call: ast.Call, maker: Maker) -> Site:
    if any(isinstance(each, ast.Starred) for each in call.args):
        return Site(path, call.lineno, maker, None, None)
    given = call.args[maker.place] if len(call.args) > maker.place else None
    named = {each.arg for each in call.keywords if each.arg} - maker.parameters
    text = None if given is None else _text(given)
    return Site(path, call.lineno, maker, text or "", frozenset(named) | maker.fields)


def _status(name: str) -> str:
    """Return the exit status of a class; empty for errors that only a server returns."""
    _, path = classes()[name]
    parts = path.relative_to(ROOT).with_suffix("").parts
    home = () if parts[0] == "deploykit" else ("deploykit",)
    kind = getattr(importlib.import_module(".".join((*home, *parts))), name)
    return (
        str(kind.exit_status)
        if any(each.__name__ in ("Error", "BugError") for each in kind.__mro__)
        else ""
    )


def page() -> str:
    """Return the page."""
    raised: dict[str, set[str]] = {}
    for site in sites():
        if site.code and site.maker.made:
            raised.setdefault(site.code, set()).add(site.maker.made)
    lines = [
        "# Errors",
        INTRODUCTION.strip(),
        "## Classes",
        "\n".join(["| class | code for custom texts | exit status |", "|---|---|---|"]
                  + [f"| {code(name)} | {code(_default(name))} | {_status(name)} |"
                     for name in sorted(classes())]),
        "## Messages",
        "\n".join(["| code | class | message |", "|---|---|---|"]
                  + [f"| {code(each)} | {', '.join(sorted(raised.get(each, ())))} | {plain(text)} |"
                     for each, text in sorted(catalogue().items())]),
    ]  # fmt: skip
    return "\n\n".join(lines) + "\n"


def _default(name: str) -> str:
    return default_code(type(name, (Exception,), {}))
