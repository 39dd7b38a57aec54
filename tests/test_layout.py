"""The house keeps its shape: rooms in an order, no circles, names that say what is inside."""

import ast
import functools
import importlib
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

import deploykit
from deploykit.cli.build import table
from deploykit.cli.main import COMMANDS
from deploykit.pipelines.catalogue import describe
from deploykit.transforms.ir import pipeline
from tests import figures

ROOT = Path(__file__).parents[1]
FOLDERS = ("deploykit", "serving", "transforms")
MODULES = sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py"))

# What each package may import, besides itself and what those may import. The packages of CORE may
# import each other: between their modules there is no cycle.
CORE = (
    "transforms.ir transforms.untrusted transforms.shapes transforms.layers transforms.int8 "
    "transforms.runtime transforms.engines"
)
ORDER = {
    "transforms.common": "",
    **dict.fromkeys(CORE.split(), f"transforms.common {CORE}"),
    "transforms": CORE,
    "storage": "transforms",
    "rendering": "transforms",
    "system": "transforms",
    "serving.protocol": CORE,
    "serving.client": "serving.protocol",
    "importers": "storage",
    "verification": "importers",
    "pipelines": "verification rendering system",
    "benchmarking": "verification rendering system",
    "quantization": "benchmarking pipelines",
    "records": "verification system",
    "data": "records benchmarking",
    "batch_inference": "data",
    "inspection": "importers benchmarking",
    "serving.saved_model": "serving.protocol",
    "serving.lifecycle": "serving.protocol",
    "serving.execution": "serving.protocol transforms",
    "serving.grpc_server": "serving.lifecycle serving.execution",
    "serving.rest": "serving.lifecycle serving.execution",
    "serving.server": "serving.grpc_server serving.rest serving.saved_model",
    "exporting": "importers pipelines data serving.saved_model",
    "client": "data serving.client",
    "evaluation": "quantization client",
    "gating": "evaluation inspection",
    "reporting": "benchmarking client",
    "api": "batch_inference gating exporting client serving.server reporting",
    "rendering.formatters": "api",
    "shipping": "rendering.formatters",
    "cli": "shipping",
}


def name_of(path: Path) -> str:
    """Return the name by which a module is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    home = () if parts[0] == "deploykit" else ("deploykit",)
    return ".".join(home + parts).removesuffix(".__init__")


def nodes_of(path: Path) -> figures.Nodes:
    return figures.nodes_by_type(path.read_text())


def parsed(path: Path) -> ast.Module:
    (tree,) = nodes_of(path)[ast.Module]
    assert isinstance(tree, ast.Module)
    return tree


def imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a module, wherever in it."""
    return [*nodes_of(path)[ast.Import], *nodes_of(path)[ast.ImportFrom]]


def imported(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of ours that a module imports, wherever in it."""
    found = set()
    for node in imports(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert not node.level, f"{path}: write absolute imports"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in modules else str(node.module))
    return found & modules


def arrows(paths: list[Path]) -> dict[str, set[str]]:
    modules = {name_of(path) for path in paths}
    return {name_of(path): imported(path, modules) - {name_of(path)} for path in paths}


def room(module: str) -> str | None:
    """Return the room of ORDER that a module lies in: the longest name that fits."""
    inside = module.removeprefix("deploykit").removeprefix(".")
    fits = [name for name in ORDER if f"{inside}.".startswith(f"{name}.")]
    return max(fits, key=len, default=None)


def below(name: str) -> set[str]:
    """Return the rooms that a room may import."""
    found, waiting = {name}, [name]
    while waiting:
        for other in ORDER[waiting.pop()].split():
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def against_the_order(graph: dict[str, set[str]]) -> list[str]:
    wrong = []
    for module, others in graph.items():
        here = room(module)
        for other in others if here else ():
            if other == "deploykit.transforms" and module.endswith("ir.pipeline"):
                continue  # it lists the folder, and loads transforms by name
            if other == "deploykit":
                continue  # the version, and for commands the API: see the next test
            if room(other) not in below(str(here)):
                wrong.append(f"{module} ({here}) imports {other}")
    return sorted(wrong)


def circles(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules that are left when all whose imports are settled have been taken away."""
    left = dict(graph)
    while settled := [module for module, others in left.items() if not others & left.keys()]:
        for module in settled:
            del left[module]
    return sorted(left)


def test_every_module_lies_in_a_room_of_the_order():
    alone = {"deploykit", "deploykit.__main__", "deploykit.serving"}
    assert {name_of(path) for path in MODULES if room(name_of(path)) is None} == alone


def test_imports_follow_the_order():
    assert against_the_order(arrows(MODULES)) == []


def test_only_commands_use_the_public_api():
    use = re.compile(
        r"^\s*(from deploykit import (?!(__version__|transforms)$)|import deploykit$)", re.M
    )
    modules = [path for path in MODULES if room(name_of(path))]
    users = {room(name_of(path)) for path in modules if use.search(path.read_text())}
    assert users == {"cli"}


def test_there_is_no_circle_of_imports_lazy_ones_counted():
    graph = arrows(MODULES)
    del graph["deploykit"]  # it imports the API for type checkers only, and has the version
    assert circles(graph) == []


def test_a_wrong_import_and_a_circle_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    bad, good = tmp_path / "transforms" / "bad.py", tmp_path / "deploykit" / "storage" / "files.py"
    for path in (bad, good):
        path.parent.mkdir(parents=True)
    bad.write_text("def f():\n    from deploykit.storage.files import write\n")
    good.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from deploykit.transforms import bad"
    )
    graph = arrows([bad, good])
    assert circles(graph) == ["deploykit.storage.files", "deploykit.transforms.bad"]
    assert against_the_order(graph) == [
        "deploykit.transforms.bad (transforms) imports deploykit.storage.files"
    ]


@pytest.mark.parametrize("folder", ["deploykit", "serving"])
def test_no_module_lies_between_the_rooms(folder):
    files = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
    assert files <= {"__init__.py", "__init__.pyi", "__main__.py", "py.typed"}


def test_no_folder_holds_more_than_20_modules():
    """Transforms, commands and their functions are lists: they grow with what there is to do."""
    api, commands = ROOT / "deploykit" / "api", ROOT / "deploykit" / "cli" / "commands"
    lists = [ROOT / "transforms", api, commands]
    folders = {path.parent for path in MODULES} - set(lists)
    counts = {
        str(folder.relative_to(ROOT)): sum(
            path.name != "__init__.py" for path in folder.glob("*.py")
        )
        for folder in folders
    }
    assert {folder: count for folder, count in counts.items() if count > 20} == {}
    assert (
        len([path for path in (ROOT / "serving").iterdir() if (path / "__init__.py").exists()])
        <= 10
    )


SHORTEST, LONGEST = 40, 600


def test_modules_have_a_sensible_size():
    """Transforms are one to a file."""
    lists = [ROOT / "transforms"]
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in MODULES
        if not path.name.startswith("__")
    }
    short = {path: count for path, count in lines.items() if count < SHORTEST}
    assert {path: n for path, n in short.items() if (ROOT / path).parent not in lists} == {}
    assert {path: count for path, count in lines.items() if count > LONGEST} == {}


FIGURES = {
    "code lines": 51_810,
    "lines": 95_418,
    "files": 542,
    "lines of imports": 7676,
    "functions": 5717,
    "modules with CSV": 4,
    "lines that name an engine": 137,
    "starts of a child process": 46,
    "modules that read /proc or /sys": 14,
    "modules with ctypes": 6,
    "dataclass calls with six positional arguments": 52,
    "options": 259,
}
"""What was reached: a change that lowers a figure lowers its bound here."""


def test_what_there_is_to_hold_does_not_grow():
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}
    sentences = (ROOT / "transforms" / "common" / "messages.json").read_text().count("\n")
    found = {**figures.figures(sources, sentences), "options": figures.options(table())}
    assert found.keys() == FIGURES.keys()
    grown = {name: count for name, count in found.items() if count > FIGURES[name]}
    assert grown == {}, f"instead of at most {FIGURES}; shrink something else first"


PLANTED = '''"""A module."""

import csv
from deploykit.processes import call


@dataclass
class Box:
    """A box."""

    a: int


# a comment with openvino
@functools.cache
def run(
    a,
):
    """Run."""

    def inner(): return "openvino"

    Box(1, 2, 3, 4, 5, 6)
    Box(1, 2, 3, 4, 5)
    call("/proc/self"); subprocess.Popen([]); processes.call(); other.call()
    import ctypes
'''


def test_each_figure_is_counted():
    assert figures.figures({"a.py": PLANTED, "b/engines/c.py": "OPENVINO = 1\n"}, 10) == {
        "code lines": 7 + 10,
        "lines": 27,
        "files": 2,
        "lines of imports": 3,
        "functions": 2,
        "modules with CSV": 1,
        "lines that name an engine": 1,
        "starts of a child process": 3,
        "modules that read /proc or /sys": 1,
        "modules with ctypes": 1,
        "dataclass calls with six positional arguments": 1,
    }


def test_no_folder_is_named_like_a_public_function():
    assert {path.parent.name for path in MODULES} & set(deploykit.__all__) == set()


@pytest.mark.parametrize(
    ("package", "rooms"),
    [("click", ["cli"]), ("rich.console", ["cli", "rendering"]), ("rich.progress", ["cli"]),
     ("rich.cells", ["rendering"])],
)  # fmt: skip
def test_packages_for_the_terminal_stay_where_they_belong(package, rooms):
    users = {
        room(name_of(path))
        for path in MODULES
        for node in imports(path)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
        if name == package or str(name).startswith(f"{package}.")
    }
    assert users == set(rooms)


@pytest.mark.parametrize("name", pipeline.names())
def test_a_transform_is_a_documented_tested_function_of_its_file_name(name):
    function = pipeline.function(name)
    here = f"deploykit.transforms.{name}"
    assert function.__module__ == here, f"transforms/{name}.py defines {name}()"
    first, *rest = inspect.signature(function).parameters.values()
    assert first.name == "graph", f"{name}: the first parameter is graph"
    assert all(p.kind is p.KEYWORD_ONLY for p in rest), f"{name}: parameters are keyword-only"
    described = describe(name)
    assert described["summary"].endswith("."), f"{name}: the docstring starts with a sentence"
    for parameter in described["parameters"]:
        assert parameter["help"], f"{name}: the docstring's Args: lacks {parameter['name']}"
    transforms = {f"deploykit.transforms.{other}" for other in pipeline.names()}
    own = imported(ROOT / "transforms" / f"{name}.py", transforms)
    assert len(own) <= 1, f"{name} composes more than one transform: {own}"
    test = ROOT / "tests" / "transforms" / f"test_{name}.py"
    assert test.exists(), f"{name} has no test; write {test.relative_to(ROOT)}"
    assert re.search(r"^GRAPHS = ", test.read_text(), re.M), f"{test.name} exports no GRAPHS"


LINES, PARAMETERS = 60, 8


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module but for commands, whose parameters are their options."""
    for node in (*nodes_of(path)[ast.FunctionDef], *nodes_of(path)[ast.AsyncFunctionDef]):
        decorators = map(ast.unparse, node.decorator_list)
        if not any(".command(" in each or ".group(" in each for each in decorators):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters, but for the object that it belongs to."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [each.arg for each in named if each.arg not in ("self", "cls")]


def test_functions_are_short_and_take_little():
    long, wide = [], []
    for path in MODULES:
        for each in functions(path):
            where = f"{path.relative_to(ROOT)}: {each.name}"
            is_public = any("public(" in ast.unparse(by) for by in each.decorator_list)
            first = each.body[0].end_lineno if is_public else each.lineno  # behind its docstring
            if int(each.end_lineno or 0) - int(first or 0) >= LINES:
                long.append(where)
            if len(each.args.args if is_public else parameters(each)) > PARAMETERS:
                wide.append(where)
    assert (long, wide) == ([], [])


def test_no_two_classes_of_a_package_share_a_name():
    homes: dict[tuple[str, Path], list[str]] = {}
    for path in MODULES:
        for node in nodes_of(path)[ast.ClassDef]:
            homes.setdefault((node.name, path.parent), []).append(path.name)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def presenters() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the commands, and what shows the result of each."""
    folder = ROOT / "deploykit" / "cli" / "presenters"
    functions = {
        (path.stem, node.name): node
        for path in folder.glob("*.py")
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef)
    }
    for words, entry in table().items():
        yield words, functions[entry["presenter"], entry["function"]]


@pytest.mark.parametrize(
    ("words", "presenter"),
    list(presenters()),
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_command_is_one_call_of_the_public_api(words, presenter):
    """Of the function that it is built from, and of no other one."""
    assert table()[words]["function"] in deploykit.__all__
    called = [ast.unparse(node.func) for node in ast.walk(presenter) if isinstance(node, ast.Call)]
    makers = {"call.result", "_rewritten", "freeze"}
    assert len(makers & set(called)) == 1
    assert called.count("call.result") <= 1
    assert not [each for each in called if each.startswith("deploykit.")]


def test_every_module_starts_with_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(parsed(path)), f"{path} has no docstring"


def test_tests_lie_where_the_code_lies():
    """A test folder is a room, or one of those whose tests are about all of it."""
    whole = {"benchmarks", "data", "differential", "golden", "hostile", "matrix", "models",
             "mutants", "real"}  # fmt: skip
    for folder in (path.parent for path in (ROOT / "tests").rglob("test_*.py")):
        inside = folder.relative_to(ROOT / "tests")
        if inside.parts and inside.parts[0] not in whole and inside.parts != ("serving", "judges"):
            assert (ROOT / inside).is_dir(), f"{inside} is no folder of the code"


def test_public_names():
    import deploykit

    assert deploykit.__all__ == sorted(deploykit.__all__)
    for name in deploykit.__all__:
        thing = getattr(deploykit, name)
        assert thing.__doc__ or typing.get_args(thing), name
    assert dir(deploykit) == sorted([*deploykit.__all__, "__version__"])


def test_old_names_of_classes_work_with_a_warning():
    import deploykit

    for old, new in deploykit._OLD_NAMES.items():
        with pytest.warns(DeprecationWarning, match=f"deploykit.{old} is called deploykit.{new}"):
            assert getattr(deploykit, old) is getattr(deploykit, new)


def test_help_and_typos_start_neither_tensorflow_nor_numpy():
    """No clock: what makes a start slow is what gets imported."""
    code = """
import json, sys
import deploykit.cli.main as cli
for arguments in json.loads(sys.argv[1]):
    cli.run(arguments)
    if slow := {"tensorflow", "numpy", "rich", "keras"} & set(sys.modules):
        sys.exit(f"{arguments} imported {slow}")
"""
    lines = [
        ["--help"],
        *([command, "--help"] for command in COMMANDS),
        ["transform", "--in_graph=a", "--out_graph=b", "--transforms=fold_"],
        ["benchmark", "a.pb", "--threads=2x"],
        ["benchmark"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage: ") == 1 + len(COMMANDS)


@pytest.mark.parametrize(
    "code",
    [
        "import deploykit.cli.supervisor",
        "import deploykit; deploykit.doctor; deploykit.list_transforms",
    ],
)
def test_what_needs_no_arrays_does_not_import_numpy(code):
    """The process that watches a command keeps for the whole command what it has imported."""
    code += "; import sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@functools.cache
def names_in(path):
    """Return what a module defines, imports, or names."""
    there = {each.id for each in nodes_of(path)[ast.Name]}
    there |= {getattr(each, "name", "") for each in parsed(path).body}
    return there | {alias.asname or alias.name for each in imports(path) for alias in each.names}


# Parsing whole files would take many times as long.
IMPORT = re.compile(r"^ *from (deploykit[\w.]*) import (\([^)]*\)|[^(\n]+)$", re.MULTILINE)


def test_scripts_import_what_is_there():
    """What no test runs, such as the demo and the benchmarks, is not found broken otherwise."""
    known = {name_of(path): path for path in MODULES}
    scripts = [p for folder in ("models", "docs", "tests") for p in (ROOT / folder).rglob("*.py")]
    checked = 0
    for path in scripts:
        for found in IMPORT.finditer(path.read_text()):
            module = found[1]
            if module not in known:
                continue
            there = names_in(known[module])
            for alias in ast.parse(found[0].strip()).body[0].names:
                checked += 1
                inner = f"{module}.{alias.name}"
                is_made = "__getattr__" in there and hasattr(
                    importlib.import_module(module), alias.name
                )
                assert alias.name in there or inner in known or is_made, f"{path}: no {inner}"
    assert checked > 1000
