"""The commands as a user calls them: options, JSON, text, defaults, exit statuses."""

import json

import numpy as np
import pytest

from deploykit.cli.main import COMMANDS
from deploykit.importers.graph_files import load_graph
from tests.support import Containing, assert_golden, ops, showing, shows

ALWAYS = {
    "command", "inputs", "outputs", "input_file", "output_file", "bytes_in", "bytes_out",
    "nodes_in", "nodes_out", "seconds",
}  # fmt: skip
COMPARED = {"max_relative_error", "sqnr_db", "verified", "passed"}


def test_optimize_writes_the_same_bytes_twice(deploykit, small):
    outputs = [small.parent / name for name in ("a.pb", "b.pb")]
    for output in outputs:
        found = deploykit("optimize", small, "-o", output, "--json")
        assert found.status == 0
        assert ALWAYS | COMPARED | {"steps"} <= set(found.document)
    assert outputs[0].read_bytes() == outputs[1].read_bytes()


def test_transform_is_a_drop_in(deploykit, small):
    out = small.parent / "out.pbtxt"
    for flags in (
        (f"--in_graph={small}", f"--out_graph={out}", "--output_as_text=true"),
        ("--in-graph", small, "--out-graph", out, "--output-as-text"),
        ("--in_graph", small, "--out_graph", out, "--output_as_text=false"),
    ):
        found = deploykit(
            "transform", *flags, "--inputs=x:0", "--outputs=out", "--json", "--force",
            "--transforms=strip_unused_nodes fold_constants(ignore_errors=true) fold_batch_norms",
        )  # fmt: skip
        assert found.status == 0, found.stderr
        assert [s["transform"] for s in found.document["steps"]] == [
            "strip_unused_nodes", "fold_constants", "fold_batch_norms",
        ]  # fmt: skip
        is_text = b'name: "x"' in out.read_bytes()
        assert is_text == (flags[-1] != "--output_as_text=false")
        assert "Mul" not in ops(load_graph(out))


def test_transform_verify_keeps_a_broken_graph_from_being_written(deploykit, small):
    out = small.parent / "out.pb"
    common = ("transform", f"--in_graph={small}", f"--out_graph={out}", "--verify")
    found = deploykit(*common, "--transforms=remove_nodes(op=Relu)")
    assert found.status == 5
    assert found.printed == ""
    assert "error" in found.stderr
    assert not out.exists()
    found = deploykit(*common, "--transforms=fold_batch_norms", "--json")
    assert found.status == 0
    assert set(found.document) >= COMPARED


@pytest.mark.sampled
def test_verify(deploykit, small):
    quantized = small.parent / "small.quantized.pb"
    assert deploykit("quantize", small).status == 0
    found = deploykit("verify", small, quantized, "--json")
    assert found.status == 0
    assert set(found.document) >= ALWAYS | COMPARED
    found = deploykit("verify", small, quantized, "--tolerance", "1e-7", "--json")
    assert found.status == 5
    assert found.document["passed"] is False
    found = deploykit("verify", small, small, "--json")
    assert (found.status, found.document["max_relative_error"]) == (0, 0.0)
    assert found.document["sqnr_db"] is None  # no difference has no bound


def test_what_cannot_be_made_up_is_not_verified(deploykit, tmp_path):
    from deploykit.transforms.ir.graph import Graph
    from deploykit.transforms.ir.node import Node
    from deploykit.transforms.ir.tensors import DType

    nodes = [
        Node("table", "Placeholder").with_attrs(dtype=DType("resource"), shape=()),
        Node("out", "LookupTableSizeV2", ("table",)),
    ]
    path = tmp_path / "table.pb"
    path.write_bytes(b"".join(Graph(nodes).serialized()))
    found = deploykit("verify", path, path, "--json")
    assert found.status == 5
    assert found.document["verified"] is False
    assert found.document["reason"] == Containing("'table'", "resource")


def test_data_with_labels_gives_accuracy(deploykit, small):
    data = small.parent / "data.npz"
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (70, 8, 8, 3)).astype(np.float32)
    np.savez(data, x=x, labels=random.integers(0, 10, 70))
    found = deploykit("quantize", small, "--data", data, "--json")
    assert (found.status, found.printed) == (5, "")
    assert shows(found.stderr, "outputs-doubtful", doubt=showing("guesses-as-good"))
    found = deploykit("quantize", small, "--data", data, "--json", "--allow-low-accuracy")
    assert found.status == 0, found.stderr
    assert shows(found.document["doubt"], "guesses-as-good")
    assert found.document["doubt"] in found.stderr
    assert found.document["samples"] == 70
    assert abs(found.document["accuracy_before"] - found.document["accuracy_after"]) < 0.1


@pytest.mark.golden("inspect")
def test_inspect_in_words(deploykit, small):
    text = deploykit("inspect", small, "--structure").stdout
    assert_golden(text.replace(str(small), "small.pb"))


@pytest.mark.golden("transforms")
def test_the_list_of_transforms(deploykit):
    listed = deploykit("transforms")
    assert listed.status == 0
    assert_golden(listed.stdout)


INPUT = ("input write",)
NESTED = ("input write", "records convert", "records inspect", "records verify")


@pytest.mark.golden("help/{command}")
@pytest.mark.parametrize("command", ["deploykit", *COMMANDS, *NESTED])
def test_help(deploykit, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    found = deploykit(*command.removeprefix("deploykit").split(), "--help")
    assert found.status == 0
    assert_golden(found.stdout)


def test_old_python_code():
    import deploykit
    from tests.deploykit.conftest import small_graph

    graph_def = small_graph().to_graph_def()
    result = deploykit.TransformGraph(graph_def, ["x:0"], ["out"], ["fold_batch_norms"])
    assert type(result) is type(graph_def)
    assert len(result.node) < len(graph_def.node)
    assert result.versions == graph_def.versions


def test_reports_go_to_a_file_too(deploykit, small):
    output = small.parent / "report.json"
    assert deploykit("inspect", small, "-o", output).status == 0
    assert json.loads(output.read_text())["command"] == "inspect"
    found = deploykit("inspect", small, "-o", output, "--json")
    assert (found.status, found.printed) == (4, "")
    assert deploykit("inspect", small, "-o", output, "--force").status == 0


def test_a_bug_is_status_1_without_a_traceback(deploykit, small, monkeypatch):
    def broken(graph, top):
        raise RuntimeError("oops")

    monkeypatch.setattr("deploykit.api.inspection.inspect_graph", broken)
    found = deploykit("inspect", small)
    assert found.status == 1
    assert shows(found.stderr, "bug", error=Containing("RuntimeError", "oops"))


@pytest.mark.slow
def test_the_environment_of_the_user_wins(monkeypatch):
    from deploykit.transforms.runtime.child_process import call

    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    env = {"TF_ENABLE_ONEDNN_OPTS": "1"}
    assert call("os:getenv", "TF_ENABLE_ONEDNN_OPTS", env=env) == "1"
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert call("os:getenv", "TF_ENABLE_ONEDNN_OPTS", env=env) == "0"


@pytest.mark.slow
def test_tensorflow_is_silent_unless_debugged(small):
    import subprocess
    import sys

    command = [sys.executable, "-m", "deploykit", "verify", str(small), str(small)]
    quiet = subprocess.run(command, capture_output=True, text=True, check=True)
    assert quiet.stderr == ""
    assert "oneDNN" not in quiet.stdout
    environment = {"TF_CPP_MIN_LOG_LEVEL": "0", "PATH": ""}
    loud = subprocess.run(
        [*command, "--debug", "--json"], capture_output=True, text=True, check=True, env=environment
    )
    assert "TensorFlow" in loud.stderr
    assert json.loads(loud.stdout)["passed"] is True
