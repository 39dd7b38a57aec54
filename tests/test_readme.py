"""The README is short and true: its two commands, its tour, its table of commands."""

import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploykit.cli.main import COMMANDS
from deploykit.importers.graph_files import save_graph
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.docs.walking import blocks, walk, without_digits

README = Path(__file__).parents[1] / "README.md"


def test_a_stranger_reads_it_in_three_minutes():
    assert len(README.read_bytes()) <= 8000


FIRST_SCREEN = 25
PHONE = 360  # CSS pixels; the picture has two pixels for each


def test_the_first_screen_ends_with_a_command_and_a_picture_for_a_phone():
    screen = "\n".join(README.read_text().splitlines()[:FIRST_SCREEN])
    (command,) = re.findall(r"^\$ (.*)$", screen, re.M)
    ((path, width),) = re.findall(r'<img src="(.*?)" width="(\d+)" alt=".+">', screen)
    assert screen.index(command) < screen.index("<img")
    header = (README.parent / path).read_bytes()[:24]
    pixels, height = struct.unpack(">II", header[16:])
    assert int(width) == PHONE
    assert pixels == 2 * PHONE
    assert height <= 2 * pixels


def test_the_two_commands_are_all_that_a_fresh_machine_needs():
    lines = [line for _, text in blocks(README, "sh") for line in text.splitlines()]
    assert [line.split("#")[0].strip() for line in lines] == [
        "pip install '.[tf]'", "make demo", "make test",
    ]  # fmt: skip


@pytest.mark.slow  # downloads and installs TensorFlow: minutes
def test_the_install_line_is_enough_to_quantize_a_model(tmp_path):
    """In an environment made from nothing, with a model that no other test has."""
    weights = np.random.default_rng(7).normal(size=(64, 64)).astype(np.float32)
    floats = {"T": DType("float32")}
    nodes = (
        Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(-1, 64)),
        Node.constant("w", weights),
        Node("y", "MatMul", ("x", "w")).with_attrs(**floats, transpose_a=False, transpose_b=False),
        Node("scores", "Relu", ("y",)).with_attrs(**floats),
    )
    save_graph(Graph(nodes, ["x"], ["scores"]), tmp_path / "model.pb")
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    path = os.pathsep.join((str(folder / "bin"), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(folder)}
    environment.pop("PYTHONPATH", None)
    (install, *_) = [line for _, text in blocks(README, "sh") for line in text.splitlines()]
    for command, cwd in ((install, README.parent), ("deploykit quantize model.pb", tmp_path)):
        done = subprocess.run(command, shell=True, cwd=cwd, env=environment, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    (written,) = set(tmp_path.glob("*.pb")) - {tmp_path / "model.pb"}
    assert written.stat().st_size < (tmp_path / "model.pb").stat().st_size / 2


def test_the_table_names_all_commands():
    table = README.read_text().split("## Commands")[1].split("\n\n")[1]
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = {name.split()[0] for cell in first for name in re.findall(r"`(.+?)`", cell)}
    assert named == set(COMMANDS)


@pytest.mark.slow  # a minute; that the options exist is among the tests of all pages
def test_the_tour_prints_what_it_says(tmp_path):
    """Figures may differ from processor to processor, so digits are not compared."""
    found = walk(README, tmp_path)
    assert len(found) == 2
    for said, printed in found:
        assert without_digits(printed) == without_digits(said)
