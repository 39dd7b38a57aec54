"""The README is true: its table of transforms is generated, its commands exist."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from deploykit.cli.main import COMMANDS
from deploykit.freezing.graph_files import load_graph, save_graph
from deploykit.rewriting.catalogue import describe
from deploykit.transforms.core import pipeline
from tests.differential.test_defects import table as defects
from tests.support import assert_written, build, ops

README = Path(__file__).parents[1] / "README.md"
WRITTEN = re.compile(r"(<!-- (\w+): written by make golden -->\n).*?(?=<!-- end -->)", re.DOTALL)


def transforms() -> str:
    """Return the table of transforms in Markdown."""
    rows = ["| transform | what it does | parameters |", "|---|---|---|"]
    for name in pipeline.names():
        described = describe(name)
        parameters = ", ".join(f"`{p['name']}`" for p in described["parameters"])
        rows.append(f"| `{name}` | {described['summary']} | {parameters} |")
    return "\n".join(rows) + "\n"


TABLES = {"transforms": transforms, "defects": defects}


@pytest.mark.golden
def test_the_tables_are_those_that_the_code_gives():
    text = README.read_text()
    assert [found[2] for found in WRITTEN.finditer(text)] == list(TABLES)
    assert_written(README, WRITTEN.sub(lambda found: found[1] + TABLES[found[2]](), text))


def test_commands_in_the_readme_exist():
    used = set(re.findall(r"(?:^|[^.\w])deploykit ([a-z]+(?:-[a-z]+)*)", README.read_text()))
    assert used & set(COMMANDS) == used - {"does", "takes"}
    assert {"quantize", "verify", "freeze"} <= used


def test_the_two_commands_are_the_first_ones():
    block = re.search(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    assert [line.split()[:2] for line in block.group(1).splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]


def test_the_tour_prints_what_it_says(tmp_path):
    """Figures may differ from processor to processor, so digits are not compared."""
    block = re.search(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    bin_folder = Path(sys.executable).parent
    (tmp_path / "models").symlink_to(README.parent / "models")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(bin_folder)
    found = []
    for line in block.group(1).splitlines():
        if line.startswith("$ "):
            done = subprocess.run(
                line[2:], shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
            )
            found += [line, *done.stdout.splitlines()]
    assert len(found) == 6
    assert without_digits("\n".join(found)) == without_digits(block.group(1).strip())


def without_digits(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "#", text)


def test_the_transform_of_ones_own_runs_as_written(tmp_path, monkeypatch):
    text = README.read_text().split("## Your own transforms")[1].split("\n## ")[0]
    module, command = re.findall(r"```(?:python|sh)\n(.*?)```", text, re.DOTALL)
    (tmp_path / "my_rewrites.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    save_graph(build(relu6_net, ["x"], ["y"]), "model.pb")
    line = shlex.split(command.replace("\\\n", " ").replace("--verify", ""))
    done = subprocess.run(
        [sys.executable, "-m", *line], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ops(load_graph("out.pb"))["Relu"] == 1


def relu6_net():
    import tensorflow as tf

    tf.nn.relu6(tf.compat.v1.placeholder(tf.float32, [2], "x"), "y")
