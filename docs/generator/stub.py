"""The type stub of `deploykit`, whose functions spell out every keyword: deploykit/__init__.pyi.

At run time, names are imported when they are first used, and fields of option values are keyword
arguments. Type checkers and editors read this file instead.
"""

import ast
import dataclasses
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import deploykit
from deploykit.importers.model_source import ModelSource
from deploykit.storage.parameters import option_fields
from docs.generator.signatures import declared_fields, parsed

PATH = Path(__file__).parents[2] / "deploykit" / "__init__.pyi"
_TOP = "# Written by `make docs` from the code: change that instead.\n"


def text() -> str:
    """Return the content of the stub file."""
    imports: set[str] = set()
    blocks: list[str] = []
    for name in sorted(deploykit._HOMES):
        thing = getattr(deploykit, name)
        home = f"deploykit.{deploykit._HOMES[name]}"
        if inspect.isfunction(thing) and hasattr(thing, "command"):
            blocks.append(_function(thing, imports))
        else:
            imports.add(f"from {home} import {name} as {name}")
    return "\n".join(
        [
            _TOP,
            *sorted(imports),
            "",
            "__version__: str",
            "__all__: list[str]",
            "_HOMES: dict[str, str]",
            "_OLD_NAMES: dict[str, str]",
            *[f"{old} = {new}" for old, new in sorted(deploykit._OLD_NAMES.items())],
            "",
            *blocks,
        ]
    )


def _function(function: Any, imports: set[str]) -> str:
    """Return the signature and the docstring of a public function."""
    plain = inspect.unwrap(function)
    node = parsed(plain)
    own = {each.arg: each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    before: list[str] = []
    keywords: list[str] = []
    for name, parameter in inspect.signature(plain).parameters.items():
        is_keyword = parameter.kind is parameter.KEYWORD_ONLY
        default = "" if parameter.default is parameter.empty else _default(parameter.default)
        line = f"    {name}: {_type(own[name], plain, imports)}{default},"
        (keywords if is_keyword else before).append(line)
        kind = type(parameter.default)
        if dataclasses.is_dataclass(kind):
            keywords += _fields(kind, own, imports)
    if function.models:
        keywords += _fields(ModelSource, own, imports)
    keywords = list({line.partition(":")[0]: line for line in keywords}.values())
    star = ["    *,"] if keywords else []
    said = (inspect.getdoc(function) or "").replace("\\", "\\\\")
    lines = [f"    {line}".rstrip() for line in said.splitlines()]
    lines[0] = f'    """{said.splitlines()[0]}'
    lines.append('    """') if len(lines) > 1 else lines.append('"""')
    result = _type(node.returns, plain, imports)
    head = [f"def {plain.__name__}(", *before, *star, *keywords, f") -> {result}:"]
    return "\n".join([*head, *lines, ""])


def _fields(kind: Any, taken: Iterable[str], imports: set[str]) -> Iterator[str]:
    """Yield the fields of an option class as keyword arguments."""
    options = {each.name for each in option_fields(kind)}
    for name, node, _, home in declared_fields(kind):
        if name in options and name not in taken:
            default = next(each.default for each in option_fields(kind) if each.name == name)
            yield f"    {name}: {_type(node.annotation, home, imports)}{_default(default)},"


def _default(value: object) -> str:
    """Return a default value for the stub: in full if it is short."""
    is_short = value is None or isinstance(value, bool | int | float | str) or value == ()
    return f" = {value!r}" if is_short else " = ..."


def _type(node: Any, home: Any, imports: set[str]) -> str:
    """Return a type as in the source, and import the names in it."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            imports |= _import_of(each.id, sys.modules[home.__module__])
        elif isinstance(each, ast.Constant) and str(each.value).isidentifier():
            imports |= _import_of(str(each.value), sys.modules[home.__module__])
    return ast.unparse(node)


@functools.cache
def _origins(module: Any) -> dict[str, str]:
    """Return the import of each name that a module imports (TYPE_CHECKING too) or defines."""
    found = {}
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            start = f"from {node.module} " if isinstance(node, ast.ImportFrom) else ""
            for each in node.names:
                found[each.asname or each.name] = f"{start}import {each.name}"
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Assign):
            names = [ast.unparse(each) for each in node.targets]
        if isinstance(node, ast.AnnAssign):
            names = [ast.unparse(node.target)]
        found |= {name: f"from {module.__name__} import {name}" for name in names}
    return found


def _import_of(name: str, module: Any) -> set[str]:
    """Return the import of a name that a module uses, if it needs one."""
    line = _origins(module).get(name)
    if line == f"from deploykit.{deploykit._HOMES.get(name, '')} import {name}":
        line = f"{line} as {name}"
    return set() if line is None else {line}
