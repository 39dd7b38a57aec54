"""`deploykit transform` with a user's own transforms, from modules of any name."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from deploykit.importers.graph_files import load_graph
from tests.support import ops, shows

OWN = """
from dataclasses import replace

from deploykit.transforms.ir.pattern import Op


def swap(graph, *, to: str = "Elu"):
    '''Put another op in the place of each Relu.

    Args:
        to: the op that computes instead.
    '''
    for match in graph.match(Op("Relu", name="relu")):
        graph.replace(match["relu"], replace(match["relu"], op=to))
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a module of a name that deploykit uses too, as the current one."""
    (tmp_path / "transforms.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "transforms", raising=False)
    return tmp_path


def test_the_current_folder_is_searched(here, deploykit, small):
    steps = "fold_constants transforms:swap(to=Selu)"
    found = deploykit(
        "transform", f"--in_graph={small}", "--out_graph=out.pb", f"--transforms={steps}",
        "--dump=steps", "--json",
    )  # fmt: skip
    assert found.status == 0, found.stderr
    assert ops(load_graph("out.pb"))["Selu"] == 1
    assert [step["transform"] for step in found.document["steps"]][1] == "transforms:swap"
    written = sorted(path.name for path in (here / "steps").iterdir())
    assert written == ["01-fold_constants.pb", "02-transforms:swap.pb"]
    assert sys.path[-1] == str(here), "no other module is looked for here first"
    again = deploykit(
        "transform", f"--in_graph={small}", "--out_graph=out.pb", "--transforms=transforms:swap",
        "--dump=steps", "--force",
    )  # fmt: skip
    assert again.status == 0, again.stderr
    assert [path.name for path in (here / "steps").iterdir()] == ["01-transforms:swap.pb"]


def test_verify_names_the_step_that_broke_the_numbers(here, deploykit, small, in_process):
    steps = "fold_batch_norms transforms:swap fold_constants"
    found = deploykit(
        "transform", f"--in_graph={small}", "--out_graph=out.pb", f"--transforms={steps}",
        "--verify",
    )  # fmt: skip
    assert found.status == 5
    assert "transforms:swap" in found.stderr
    assert not Path("out.pb").exists()


def test_it_is_explained(here, deploykit):
    found = deploykit("transforms", "transforms:swap")
    assert found.status == 0, found.stderr
    assert "Put another op" in found.stdout
    assert "computes instead" in found.stdout


def test_a_mistake_is_told_in_a_sentence(here, deploykit, small):
    found = deploykit(
        "transform", f"--in_graph={small}", "--out_graph=out.pb", "--transforms=transforms:swop"
    )
    assert found.status == 2
    assert shows(found.stderr, "module-function-missing", module="transforms", function="swop")
    assert "Traceback" not in found.stderr


@pytest.mark.sampled
def test_the_module_command_finds_it_too(here, small):
    command = [
        sys.executable, "-m", "deploykit", "transform", f"--in_graph={small}", "--out_graph=out.pb",
        "--transforms=transforms:swap",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ops(load_graph("out.pb"))["Elu"] == 1


@pytest.mark.slow
def test_other_files_of_the_folder_hide_nothing(here, small):
    """A folder of scripts has files named like Python's own modules, and like installed ones."""
    own = [name for name in sys.stdlib_module_names if importlib.util.find_spec(name) is not None]
    for name in (*own, "numpy", "click", "deploykit", "rich"):
        (here / f"{name}.py").write_text("raise SystemExit(__name__)")
    (here / "helpers.py").write_text("import statistics, queue\nSelu = 'Selu'")
    (here / "transforms.py").write_text(f"{OWN}\nimport helpers\n")
    command = [
        sys.executable, "-P", "-m", "deploykit", "transform", f"--in_graph={small}",
        "--out_graph=out.pb", "--transforms=transforms:swap",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ops(load_graph("out.pb"))["Elu"] == 1
