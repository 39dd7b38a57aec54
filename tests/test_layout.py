"""The house keeps its shape: import directions, one transform a file, every parameter explained."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploykit.cli.main import COMMANDS
from deploykit.rewriting.catalogue import describe
from deploykit.transforms.core import pipeline

ROOT = Path(__file__).parents[1]
PACKAGES = ("transforms", "serving", "deploykit")
MODULES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Return the full names that a module imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write absolute imports"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found - {"deploykit"}  # of which only packages are taken


def top_level_imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    found = set()
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        found |= {str(name).split(".")[0] for name in names}
    return found


def forbidden(path: Path) -> list[str]:
    """Return the imports that point against the direction of the architecture."""
    here = path.relative_to(ROOT).with_suffix("").parts
    found = imports(path)

    def of(prefix: str) -> list[str]:
        return sorted(n for n in found if n == prefix or n.startswith(f"{prefix}."))

    wrong = []
    if here[0] == "transforms":
        wrong += [n for n in of("deploykit") if n not in of("deploykit.transforms")]
    if here[0] == "serving":
        allowed = of("deploykit.transforms.core") + of("deploykit.serving")
        wrong += [n for n in of("deploykit") if n not in allowed]
    if here[0] == "deploykit" and here[1] not in ("cli", "__main__"):
        wrong += of("deploykit.cli.commands")
    if here[:2] == ("transforms", "core"):
        transforms = [n for name in pipeline.names() for n in of(f"deploykit.transforms.{name}")]
        wrong += transforms
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    assert not forbidden(path), f"{path.name} imports {forbidden(path)} against the direction"


def test_a_wrong_import_is_seen(tmp_path, monkeypatch):
    bad = tmp_path / "transforms" / "bad.py"
    bad.parent.mkdir()
    bad.write_text("def f():\n    from deploykit.storage.files import load_graph\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert forbidden(bad) == [
        "deploykit.storage.files",
        "deploykit.freezing.graph_files.load_graph",
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_tensorflow_is_imported_inside_functions_only(path):
    if path.name != "protos.py":
        assert not {"tensorflow", "keras"} & top_level_imports(path)


@pytest.mark.parametrize("name", pipeline.names())
def test_a_transform_is_a_documented_tested_function_of_its_file_name(name):
    function = pipeline.function(name)
    assert function.__module__ == f"deploykit.transforms.{name}", (
        f"transforms/{name}.py defines {name}()"
    )
    first, *rest = inspect.signature(function).parameters.values()
    assert first.name == "graph", f"{name}: the first parameter is graph"
    assert all(p.kind is p.KEYWORD_ONLY for p in rest), f"{name}: parameters are keyword-only"
    described = describe(name)
    assert described["summary"].endswith("."), f"{name}: the docstring starts with a sentence"
    for parameter in described["parameters"]:
        assert parameter["help"], f"{name}: the docstring's Args: lacks {parameter['name']}"
    own = [
        other
        for other in imports(ROOT / "transforms" / f"{name}.py")
        if re.fullmatch(r"deploykit\.transforms\.(?!core)\w+", other)
    ]
    assert len(own) <= 1, f"{name} composes more than one transform: {own}"
    test = ROOT / "tests" / "transforms" / f"test_{name}.py"
    assert test.exists(), f"{name} has no test; write {test.relative_to(ROOT)}"
    assert re.search(r"^GRAPHS = ", test.read_text(), re.M), f"{test.name} exports no GRAPHS"


def test_every_module_starts_with_a_docstring():
    for path in MODULES:
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_public_names():
    import deploykit

    assert deploykit.__all__ == sorted(deploykit.__all__)
    assert set(deploykit.__all__) == {
        "Client", "Settings", "TransformGraph", "benchmark", "compare", "export", "freeze",
        "load_graph", "load_result", "optimize", "quantize", "save_graph", "transform", "tune",
        "verify",
    }  # fmt: skip
    for name in deploykit.__all__:
        assert callable(getattr(deploykit, name)), name


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([command, "--help"] for command in COMMANDS),
        ["transform", "--in_graph=a", "--out_graph=b", "--transforms=fold_"],
        ["benchmark", "a.pb", "--threads=2"],
        ["benchmark"],
    ],
    ids=" ".join,
)
def test_help_and_typos_start_neither_tensorflow_nor_numpy(arguments):
    """No clock: what makes a start slow is what gets imported."""
    code = (
        "import sys, deploykit.cli.main as cli; status = cli.run(sys.argv[1:]);"
        "slow = {'tensorflow', 'numpy', 'rich', 'keras'} & set(sys.modules);"
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
