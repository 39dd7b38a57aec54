"""Without TensorFlow and other optional packages: what works, and what each command says."""

import os
import subprocess
import sys

import click
import numpy as np
import pytest

from deploykit.cli.main import COMMANDS, cli
from deploykit.importers.graph_files import save_graph
from deploykit.transforms.common.errors import MissingPackageError
from deploykit.transforms.engines import packages as extras
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.deploykit.cli.test_headings import ROOT_CONTEXT
from tests.hidden_packages import TENSORFLOW, hiding
from tests.support import raises, showing, shows

WITHOUT_TENSORFLOW = {
    "inspect", "diff", "transforms", "input", "compare", "records", "serve", "predict", "status",
    "load-test", "report", "doctor", "completion",
}  # fmt: skip


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_first_what_it_lacks(name, monkeypatch):
    needed = getattr(command(name), "requires", ())
    assert ("tensorflow" in needed) is (name not in WITHOUT_TENSORFLOW)
    for module in needed:
        missing = {module}
        monkeypatch.setattr(extras, "is_installed", lambda each, gone=missing: each not in gone)
        with raises(MissingPackageError, "package-missing"):
            command(name).invoke(click.Context(command(name), ROOT_CONTEXT))


@pytest.fixture(scope="module")
def hidden(tmp_path_factory):
    """Run a command of deploykit in a process without the optional packages."""
    packages = (*TENSORFLOW, "matplotlib", "openvino", "scipy")
    variables = hiding(tmp_path_factory.mktemp("hidden"), *packages)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "deploykit", *map(str, arguments)],
            env={**os.environ, **variables}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    floats = {"dtype": DType("float32")}
    nodes = [
        Node("x", "Placeholder").with_attrs(**floats, shape=(-1, 2)),
        Node("w", "Const").with_attrs(**floats, value=np.ones((2, 3), np.float32)),
        Node("y", "MatMul", ("x", "w")).with_attrs(
            T=DType("float32"), transpose_a=False, transpose_b=False
        ),
    ]
    path = tmp_path_factory.mktemp("model") / "model.pb"
    save_graph(Graph(nodes, ["x"], ["y"]), path)
    return path


@pytest.mark.sampled
def test_graphs_are_read_without_tensorflow(hidden, model):
    found = hidden("inspect", model)
    assert (found.returncode, found.stderr) == (0, "")
    assert "MatMul" in found.stdout
    same = hidden("diff", model, model)
    assert (same.returncode, same.stdout) == (0, showing("graphs-equal", nodes=3))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("optimize", "MODEL", "-o", "o.pb"), "tf"),
        (("report", "result.json", "-o", "page.html"), "report"),
        (("inspect", "/no/model.keras"), ""),
    ],
)
def test_what_is_missing_is_named_with_status_2(hidden, model, arguments, extra):
    found = hidden(*(model if each == "MODEL" else each for each in arguments))
    assert found.returncode == (2 if extra else 4)
    assert "Traceback" not in found.stderr
    if extra:
        assert shows(found.stderr, "package-missing", extra=extra)


def test_doctor_lists_the_extras(hidden):
    found = hidden("doctor")
    assert found.returncode == 0
    rows = {line[:18].strip(): line[18:].strip() for line in found.stdout.splitlines()}
    assert "parquet" in rows["extras"]
    assert {"tf", "report", "openvino", "keras2"} <= set(rows["extras missing"].split(", "))
    assert rows["wheel"] == "not installed"
