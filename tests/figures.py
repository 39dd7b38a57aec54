"""Counts of the sources that show how many homes a concept has, and how much there is to hold.

The bounds of tests/test_layout.py are the values that were reached: a change may lower them.
"""

import ast
import collections
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

CSV = re.compile(
    r"\bimport csv\b|pyarrow\.csv|from pyarrow import csv|pa_csv|loadtxt|csv\.reader|read_csv"
)
ENGINE = re.compile(r"openvino|onnxruntime|litert|tflite", re.IGNORECASE)
KERNEL = re.compile(r"/proc/|/sys/")
C_TYPES = re.compile(r"\bimport ctypes\b|from ctypes")
_STARTS = ("Worker", "ModelProcess", "Popen")
_CHILD = ("child_process", "processes")
_MANY = 6  # positional arguments of a dataclass
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Nodes = Mapping[type[ast.AST], Sequence[Any]]
"""The nodes of a module by their type, as one walk finds them."""


def figures(sources: Mapping[str, str], sentences: int) -> dict[str, int]:
    """Return the figures of modules by path; `sentences` are the lines of the messages' file."""
    trees = {path: nodes_by_type(text) for path, text in sources.items()}
    kinds = collections.Counter(
        kind for path, nodes in trees.items() for kind in kinds_of_lines(sources[path], nodes)
    )
    outside = [text for path, text in sources.items() if "/engines/" not in path]
    return {
        "code lines": kinds["code"] + sentences,
        "lines": sum(text.count("\n") for text in sources.values()),
        "files": len(sources),
        "lines of imports": kinds["import"],
        "functions": sum(len(nodes[kind]) for nodes in trees.values() for kind in _FUNCTIONS),
        "modules with CSV": _matches(sources.values(), CSV),
        "lines that name an engine": sum(names_engine(text) for text in outside),
        "starts of a child process": sum(map(starts_of_children, trees.values())),
        "modules that read /proc or /sys": _matches(sources.values(), KERNEL),
        "modules with ctypes": _matches(sources.values(), C_TYPES),
        "dataclass calls with six positional arguments": positional_calls(trees.values()),
    }


@functools.cache
def nodes_by_type(text: str) -> Nodes:
    """Return the nodes of a module by their type."""
    found: Nodes = collections.defaultdict(list)
    for node in ast.walk(ast.parse(text)):
        found[type(node)].append(node)
    return found


def options(table: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of options over all commands; one that commands share counts once."""
    return len(
        {
            (*parameter["options"], parameter["help"])
            for command in table.values()
            for parameter in command["parameters"]
            if parameter["options"]
        }
    )


def kinds_of_lines(text: str, nodes: Nodes) -> Sequence[str]:
    """Return what each line is: blank, comment, import, signature, docstring or code."""
    lines = text.split("\n")
    kinds = [
        "blank" if not line.strip() else "comment" if line.strip().startswith("#") else "code"
        for line in lines
    ]
    for kind, first, last in _spans(nodes):
        for number in range(first - 1, last):
            if kinds[number] != "blank" or kind == "docstring":
                kinds[number] = kind
    return kinds


def _spans(nodes: Nodes) -> Iterator[tuple[str, int, int]]:
    """Yield the first and the last line of what is no code; the last kind counts."""
    functions = [node for kind in _FUNCTIONS for node in nodes[kind]]
    for node in (*nodes[ast.Import], *nodes[ast.ImportFrom]):
        yield "import", node.lineno, int(node.end_lineno or 0)
    for node in functions:
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        yield "signature", first, max(node.lineno, node.body[0].lineno - 1)
    for node in (*nodes[ast.Module], *nodes[ast.ClassDef], *functions):
        for each in node.body:
            match each:
                case ast.Expr(ast.Constant(str())):
                    yield "docstring", each.lineno, int(each.end_lineno or 0)


def names_engine(text: str) -> int:
    """Return the number of lines that name an engine, without comments."""
    lines = (line.strip() for line in text.split("\n"))
    return sum(bool(ENGINE.search(line)) for line in lines if not line.startswith("#"))


def starts_of_children(nodes: Nodes) -> int:
    """Return the number of calls that start a child process, by its class or as `call`."""
    local = {
        alias.asname or alias.name
        for node in nodes[ast.ImportFrom]
        for alias in node.names
        if (node.module or "").endswith(_CHILD) or alias.name in _CHILD
    }
    found = 0
    for node in nodes[ast.Call]:
        match node.func:
            case ast.Name(name):
                found += name in _STARTS or (name == "call" and "call" in local)
            case ast.Attribute(value=value, attr=name):
                of = value.id if isinstance(value, ast.Name) else ""
                found += name in _STARTS or (name == "call" and of in (*local, *_CHILD))
    return found


def positional_calls(trees: Collection[Nodes]) -> int:
    """Return the number of calls of dataclasses with many positional arguments."""
    known = {
        node.name
        for nodes in trees
        for node in nodes[ast.ClassDef]
        if any("dataclass" in ast.dump(each) for each in node.decorator_list)
    }
    return sum(
        isinstance(node.func, ast.Name) and node.func.id in known and len(node.args) >= _MANY
        for nodes in trees
        for node in nodes[ast.Call]
    )


def _matches(texts: Iterable[str], pattern: re.Pattern[str]) -> int:
    return sum(bool(pattern.search(text)) for text in texts)
