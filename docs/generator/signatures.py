"""Signatures as the source writes them, and the members of classes."""

import ast
import contextlib
import dataclasses
import importlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType, NoneType
from typing import Annotated, Any, get_origin

from deploykit.transforms.common.flag import declared
from docs.generator.markdown import Docstring, docstring

_WIDTH = 88
_MARKS = ("Flat", "Hidden", "IfSet", "OrNull")


@dataclass(frozen=True)
class Member:
    """A field, a property or a method of a class."""

    code: str
    said: Docstring


def signature(thing: Any) -> str:
    """Return the name and the parameters of a function or class, on several lines if long."""
    if inspect.isclass(thing) and dataclasses.is_dataclass(thing):
        return _laid_out(thing.__name__, [code for code, _ in _fields(thing)], "")
    if inspect.isclass(thing):
        own = inspect.isfunction(thing.__init__)
        return _laid_out(thing.__name__, _parameters(thing.__init__)[0] if own else [], "")
    parameters, result = _parameters(thing)
    return _laid_out(thing.__name__, parameters, result)


def members(kind: type) -> Iterator[Member]:
    """Yield the fields of a dataclass, then the public properties and methods of a class."""
    if dataclasses.is_dataclass(kind):
        yield from (Member(code, Docstring(said)) for code, said in _fields(kind))
    for home in reversed([each for each in kind.__mro__ if _is_ours(each)]):
        for name, value in vars(home).items():
            if name.startswith("_") or _owner(kind, name) is not home:
                continue
            if isinstance(value, property):
                yield Member(name, docstring(value))
            elif isinstance(value, classmethod | staticmethod):
                yield Member(_call(f"{kind.__name__}.{name}", value.__func__), docstring(value))
            elif inspect.isfunction(value):
                yield Member(_call(name, value), docstring(value))


def inner(things: Iterable[Any]) -> list[type]:
    """Return deploykit's other classes in these signatures, and those in their fields."""
    public = list(things)
    found: dict[str, type] = {}
    waiting = [kind for thing in public for kind in _named(thing, _types(parsed(thing)))]
    while waiting:
        kind = waiting.pop()
        if kind not in public and kind.__name__ not in found:
            found[kind.__name__] = kind
            fields = [node for node in parsed(kind).body if isinstance(node, ast.AnnAssign)]
            waiting += _named(kind, [type_ for node in fields for type_ in _types(node)])
    return [found[name] for name in sorted(found)]


def _named(thing: Any, types: Iterable[ast.expr]) -> Iterator[type]:
    """Yield deploykit's classes in the types of a function or a class."""
    module = sys.modules[inspect.unwrap(thing).__module__]
    for name in sorted({name for type_ in types for name in _names(type_)}):
        kind = getattr(module, name, None) or _imported_later(module, name)
        if inspect.isclass(kind) and _is_ours(kind):
            yield kind


def _types(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the types in a declaration; for a class, those of its public members."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if not _is_private(each):
                yield from _types(each)
    elif isinstance(node, ast.FunctionDef):
        types = [each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg)]
        yield from (type_ for type_ in (*types, node.returns) if type_)
    elif isinstance(node, ast.AnnAssign) and not _is_private(node):
        yield node.annotation


def _is_private(node: ast.stmt) -> bool:
    name = getattr(node, "name", "") or ast.unparse(getattr(node, "target", ast.Pass()))
    return name.startswith("_") and name != "__init__"


def _names(type_: ast.expr) -> Iterator[str]:
    """Yield the names in a type, including its quoted parts."""
    for node in ast.walk(type_):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(SyntaxError):  # a value of a Literal
                yield from _names(ast.parse(node.value, mode="eval").body)


def _imported_later(module: ModuleType, name: str) -> Any:
    """Return the import of this name in a TYPE_CHECKING block of a module, or None."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and name in [each.name for each in node.names]:
            return getattr(importlib.import_module(str(node.module)), name, None)
    return None


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "deploykit"


def _owner(kind: type, name: str) -> type:
    return next(each for each in kind.__mro__ if name in vars(each))


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """Yield each field of a dataclass as in its source, and its docstring."""
    values = {each.name: each.default for each in dataclasses.fields(kind)}
    for name, node, said, _ in declared_fields(kind):
        if not name.startswith("_"):
            yield _declared(name, node.annotation, node.value, values[name]), said


def declared_fields(kind: type) -> Iterator[tuple[str, ast.AnnAssign, str, type]]:
    """Yield name, declaration and docstring of each field, and the class that declares it."""
    flags = {each.name: declared(each.type)[1] for each in dataclasses.fields(kind)}
    for home in reversed([each for each in kind.__mro__ if dataclasses.is_dataclass(each)]):
        body = parsed(home).body
        for node, behind in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in flags:
                name = ast.unparse(node.target)
                yield name, node, _string(behind) or flags[name].help, home


def imported_for_types(thing: Any) -> dict[str, Any]:
    """Return the TYPE_CHECKING imports of the module of a class or function, by name."""
    module = sys.modules[inspect.unwrap(thing).__module__]
    found: dict[str, Any] = {}
    for branch in ast.parse(inspect.getsource(module)).body:
        if isinstance(branch, ast.If) and "TYPE_CHECKING" in ast.unparse(branch.test):
            for node in branch.body:
                if isinstance(node, ast.ImportFrom):
                    home = importlib.import_module(str(node.module))
                    found |= {each.name: getattr(home, each.name) for each in node.names}
    return found


def _string(node: ast.stmt | None) -> str:
    """Return the docstring after a field, or an empty string."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _parameters(function: Callable[..., Any]) -> tuple[list[str], str]:
    """Return the parameters and the return type of a function as in its source."""
    function = inspect.unwrap(function)
    node = parsed(function)
    written = {each.arg: each for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    defaults = [*node.args.defaults, *(each for each in node.args.kw_defaults if each)]
    texts: list[str] = []
    starred = False
    for name, each in inspect.signature(function).parameters.items():
        default = None
        if each.default is not each.empty:
            default = defaults.pop(0)
        if each.kind is each.KEYWORD_ONLY and not starred:
            texts.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = "*" * (each.kind is each.VAR_POSITIONAL) + "**" * (each.kind is each.VAR_KEYWORD)
        texts.append(stars + _declared(name, written[name].annotation, default, each.default))
    if texts and texts[0] in ("self", "cls"):
        del texts[0]
    return texts, f" -> {_type(node.returns)}" if node.returns else ""


def _declared(name: str, type_: ast.expr | None, default: ast.expr | None, value: object) -> str:
    """Return `name: type = default`; a constant is shown by its value."""
    text = f"{name}: {_type(type_)}" if type_ else name
    return text if default is None else f"{text} = {_value(value) or ast.unparse(default)}"


def _value(value: object) -> str:
    """Return a plain value as Python source, or an empty string."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        items = [_value(each) for each in value]
        end = "," if len(items) == 1 else ""
        return f"({', '.join(items)}{end})" if all(items) else ""
    return repr(value) if isinstance(value, int | float | NoneType) else ""


def _type(node: ast.expr) -> str:
    """Return a type as in the source, without the quotes of forward references."""
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and ast.unparse(each.value) == "Literal":
            return ast.unparse(node)
    return ast.unparse(node).replace("'", "")


class _WithoutMarks(ast.NodeTransformer):
    """Removes `Annotated` and document markers from types."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.value)
        if name == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node.slice if name in _MARKS else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        value = self._names.get(node.id)
        if get_origin(value) is not Annotated or getattr(value, "__parameters__", None):
            return node
        origin: Any = getattr(value, "__origin__", None)
        text = origin.__name__ if isinstance(origin, type) else str(origin)
        return ast.parse(text, mode="eval").body


def parsed(thing: Any) -> Any:
    """Return the syntax tree of a class or function."""
    thing = inspect.unwrap(thing)
    found = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    return _WithoutMarks(vars(sys.modules[thing.__module__])).visit(found)


def _call(name: str, function: Callable[..., Any]) -> str:
    parameters, result = _parameters(function)
    return f"{name}({', '.join(parameters)}){result}"


def _laid_out(name: str, parameters: list[str], result: str) -> str:
    """Return a call on one line, or with one line per parameter if it is too long."""
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in parameters), f"){result}"])
