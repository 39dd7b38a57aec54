"""What is built holds the packages and no more, and runs once installed, beside a hostile folder.

Built and installed for real, without a network, from a copy of the checkout in a path with a blank,
into environments that find the dependencies where this one has them.
"""

import email.parser
import json
import math
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import deploykit
from tests import pairwise
from tests.serving.served import Served

ROOT = Path(__file__).parents[1]
COPIED = (
    "deploykit", "transforms", "serving", "tests", "models",
    "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore", "Makefile",
)  # fmt: skip
NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*_cache", "fetched", "built")
# Top-level folders, and the package that each is put into.
PACKAGES = {"deploykit": Path(), "transforms": Path("deploykit"), "serving": Path("deploykit")}
NAME = f"tf_deploykit-{deploykit.__version__}"

# TensorFlow alone computes y, in a child process.
GRAPH = """
node { name: "x" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 4 } } } }
node { name: "y" op: "Lgamma" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape {} } } }
node { name: "z" op: "AddV2" input: "p" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
"""
# A user's script.
SCRIPT = """
import importlib.metadata, json, sys
import deploykit
from deploykit.transforms.runtime import child_process as child

print(json.dumps({
    "file": deploykit.__file__,
    "file in a child": child.call("pkgutil:resolve_name", "deploykit:__file__"),
    "versions": [deploykit.__version__, importlib.metadata.version("tf-deploykit")],
    "named": [name for name in deploykit.__all__ if getattr(deploykit, name) is not None],
    "dir": dir(deploykit),
}))
"""


def environment() -> dict[str, str]:
    """Return the variables of this process, but for where it looks for modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*command: object, cwd: Path | None = None, status: int = 0, **variables: str) -> str:
    """Return what a command prints that must end with this exit status."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd, env=environment() | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Built:
    """A copy of the checkout, and what was built from it."""

    checkout: Path
    sdist: Path
    wheel: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packaging")
    checkout = folder / "a clone"
    checkout.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=NOT_COPIED)
        else:
            shutil.copy(ROOT / name, checkout / name)
    hatchling = (sys.executable, "-m", "hatchling", "build")
    run(*hatchling, "-t", "sdist", "-t", "wheel", "-d", folder, cwd=checkout)
    with tarfile.open(folder / f"{NAME}.tar.gz") as archive:
        archive.extractall(folder / "unpacked", filter="data")
    run(*hatchling, "-t", "wheel", "-d", folder / "again", cwd=folder / "unpacked" / NAME)
    wheel = f"{NAME}-py3-none-any.whl"
    return Built(checkout, folder / f"{NAME}.tar.gz", folder / wheel, folder / "again" / wheel)


def sources() -> dict[str, bytes]:
    """Return the files of the packages, by the path that they are installed at."""
    return {
        str(at / path.relative_to(ROOT)): path.read_bytes()
        for folder, at in PACKAGES.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def in_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            assert not stat.S_ISLNK(info.external_attr >> 16), f"{info.filename} is a link"
        return {name: archive.read(name) for name in archive.namelist()}


def in_sdist(path: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            assert member.isreg(), f"{member.name} is no plain file"
            found[member.name.removeprefix(f"{NAME}/")] = archive.extractfile(member).read()
    return found


def unlike(found: dict[str, bytes], expected: dict[str, bytes]) -> set[str]:
    """Return the files that only one side has, or that differ."""
    names = found.keys() | expected.keys()
    return {name for name in names if found.get(name) != expected.get(name)}


def test_a_wheel_holds_the_packages_and_no_more(built):
    found = in_wheel(built.wheel)
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert unlike(found, sources()) == {f"{NAME}.dist-info/{name}" for name in about}


def test_an_sdist_holds_the_packages_and_no_more(built):
    assert unlike(in_sdist(built.sdist), sources()) == {
        "PKG-INFO", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", ".gitignore",
    }  # fmt: skip


def test_what_tests_and_users_need_is_among_the_packages():
    assert {
        "deploykit/py.typed",
        "deploykit/data/tfdata.py.jinja",
        "deploykit/reporting/page/templates/page.html.jinja",
        "deploykit/reporting/page/templates/page.css",
        "deploykit/serving/__init__.py",
        "deploykit/transforms/ir/graph.py",
        "deploykit/transforms/ir/ops.pb.gz",
    } <= sources().keys()


def test_an_sdist_gives_the_same_wheel(built):
    assert not unlike(in_wheel(built.wheel_of_sdist), in_wheel(built.wheel))


def test_make_builds_the_wheel_that_the_readme_installs(built):
    assert (
        'make wheel`, then `pip install "$(echo dist/*.whl)[tf]"`'
        in (ROOT / "README.md").read_text()
    )
    there = built.checkout / "dist"
    there.mkdir()
    (there / "tf_deploykit-0.0.1-py3-none-any.whl").touch()
    run("make", "-o", "setup", "wheel", f"VENV={sys.prefix}", cwd=built.checkout)
    (wheel,) = there.glob("*.whl")
    assert not unlike(in_wheel(wheel), in_wheel(built.wheel))


@pytest.mark.slow
def test_a_clone_is_installed_from_git_as_the_readme_says(built, tmp_path):
    (line,) = re.findall(r"`pip install \"(tf-deploykit.*?)\"`", (ROOT / "README.md").read_text())
    clone = tmp_path / "clone"
    shutil.copytree(built.checkout, clone, symlinks=True, ignore=shutil.ignore_patterns("dist"))
    author = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for command in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "All")):
        run("git", *command, cwd=clone)
    local = ("--no-index", "--no-deps", "--no-build-isolation", "--target", tmp_path / "installed")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", *local)
    run(*pip, line.replace("$PWD", str(clone)), cwd=clone)
    assert {name for name in sources() if not (tmp_path / "installed" / name).is_file()} == set()


def test_metadata(built):
    text = in_wheel(built.wheel)[f"{NAME}.dist-info/METADATA"].decode()
    metadata = email.parser.HeaderParser().parsestr(text)
    assert (metadata["Name"], metadata["Version"]) == ("tf-deploykit", deploykit.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    found = set(metadata.get_all("Classifier"))
    assert {"Operating System :: POSIX :: Linux", "Typing :: Typed"} <= found
    pythons = {name for name in found if name.startswith("Programming Language")}
    assert pythons == {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}


@dataclass(frozen=True)
class Installed:
    """An environment with deploykit: its programs, and the file that `import deploykit` loads."""

    bin: Path
    file: Path


@pytest.fixture(
    scope="module",
    params=pairwise.drawn(__name__, ["wheel", "editable", "wheel of the sdist"], 2, quick=1),
)
def installed(built, request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("an environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", show, cwd=folder).strip())
    shared = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(shared))
    what, root = {
        "editable": (["--no-build-isolation", "--editable", built.checkout], built.checkout),
        "wheel": ([built.wheel], packages),
        "wheel of the sdist": ([built.wheel_of_sdist], packages),
    }[request.param]
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps")
    run(*pip, "--ignore-installed", *what, cwd=folder)
    (packages / "dataclasses.py").write_text("raise ImportError('not the one of Python')")
    return Installed(python.parent, root / "deploykit" / "__init__.py")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """Go into a user's folder whose modules bear the names of our folders, and cannot be run."""
    monkeypatch.chdir(tmp_path)
    for name in ("transforms.py", "serving/__init__.py", "tests/__init__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"raise ImportError('{name} of the user')")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "graph.pbtxt").write_text(GRAPH)
    return tmp_path


@pytest.mark.sampled
@pytest.mark.parametrize("on_path", [False, True], ids=["beside", "PYTHONPATH"])
def test_a_script_imports_what_is_installed(installed, hostile, on_path):
    variables = {"PYTHONPATH": str(hostile)} if on_path else {}
    found = json.loads(run(installed.bin / "python", "script.py", **variables))
    assert found == {
        "file": str(installed.file),
        "file in a child": str(installed.file),
        "versions": [deploykit.__version__] * 2,
        "named": deploykit.__all__,
        "dir": sorted([*deploykit.__all__, "__version__"]),
    }


@pytest.mark.sampled
@pytest.mark.parametrize("command", [["deploykit"], ["python", "-m", "deploykit"]], ids=" ".join)
def test_both_commands_run(installed, hostile, command):
    program, *arguments = command
    said = run(installed.bin / program, *arguments, "--version", PYTHONPATH=str(hostile))
    assert said.endswith(f", version {deploykit.__version__}\n")


def fold(installed: Installed, hostile: Path) -> Path:
    """Return the graph without the node that TensorFlow alone computes."""
    folded = hostile / "folded.pb"
    run(installed.bin / "python", "-m", "deploykit", "transform", "--in_graph=graph.pbtxt",
        f"--out_graph={folded}", "--inputs=p", "--outputs=z", "--transforms=fold_constants",
        PYTHONPATH=str(hostile))  # fmt: skip
    return folded


@pytest.mark.sampled
def test_tensorflow_runs_in_a_child(installed, hostile):
    assert b"Lgamma" not in fold(installed, hostile).read_bytes()


@pytest.mark.sampled
def test_workers_serve(installed, hostile):
    run(installed.bin / "deploykit", "export", fold(installed, hostile), "base")
    python = installed.bin / "python"
    server = Served(hostile / "base", "--workers=2", python=python, PYTHONPATH=str(hostile))
    try:
        command = ["predict", server.address, "folded", "--input", "p=1", "--json"]
        said = run(installed.bin / "deploykit", *command, PYTHONPATH=str(hostile))
        assert json.loads(said)["values"]["z"]["values"] == pytest.approx(1 + math.log(6))
        status, said = server.end()
        assert status == 0, said
    finally:
        server.kill()


@pytest.mark.sampled
def test_a_type_checker_sees_the_types(installed, hostile):
    lines = ("import deploykit", "deploykit.save_graph(3, 'a.pb')", "deploykit.quantise")
    (hostile / "typed.py").write_text("\n".join(lines))
    mypy = (sys.executable, "-m", "mypy", "--strict", "--cache-dir=cache", "--python-executable")
    said = run(*mypy, installed.bin / "python", "typed.py", status=1)
    found = re.findall(r"^typed.py:(\d): error: .*\[(.*)\]$", said, re.MULTILINE)
    assert found == [("2", "arg-type"), ("3", "attr-defined")], said
