"""Wrong input of every kind: one sentence, the right exit status, nothing written, no traceback."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import Containing, because, says, shows


def floats(name, op, *inputs, **attrs):
    return Node(name, op, inputs).with_attrs(T=DType("float32"), **attrs)


X = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))
ONE = Node.constant("one", np.ones((2, 3), np.float32))


def graph_bytes(*nodes: Node) -> bytes:
    """Return a GraphDef with these nodes, sound or not."""
    return b"".join(piece for node in nodes for piece in Graph([node]).serialized())


def constant_with(**changes) -> bytes:
    from deploykit.transforms.ir.protos import GraphDef

    graph_def = GraphDef.FromString(graph_bytes(X, ONE, floats("out", "AddV2", "x", "one")))
    tensor = graph_def.node[1].attr["value"].tensor
    tensor.ClearField("float_val")
    tensor.tensor_content = changes.get("content", tensor.tensor_content)
    if "dtype" in changes:
        tensor.dtype = changes["dtype"]
    if "sizes" in changes:
        for dim, size in zip(tensor.tensor_shape.dim, changes["sizes"], strict=True):
            dim.size = size
    return graph_def.SerializeToString()


NAN = Node.constant("weights", np.where(np.eye(64) > 0, np.float32("nan"), np.float32(1)))
GOOD = graph_bytes(X, ONE, floats("out", "AddV2", "x", "one"))

FILES = {
    "missing": (None, 4, re.escape("No such file")),
    "empty": (b"", 2, says("file-empty")),
    "random": (np.random.default_rng(0).bytes(5000), 2, says("not-a")),
    "truncated": (GOOD[:-20], 2, says("not-a")),
    "no node": (b"\x22\x02\x08\x01", 2, re.escape("no")),
    "gzip": (b"\x1f\x8b\x08\x00rest", 2, re.escape("gzip")),
    "hdf5": (b"\x89HDF\r\n\x1a\nrest", 2, says("runtime-failed")),
    "pickle": (b"\x80\x04\x95rest", 2, says("file-kind")),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", 2, says("file-kind")),
    "dangling input": (
        graph_bytes(X, floats("out", "Relu", "gone")),
        2,
        says("input-missing-in-graph", tensor="gone"),
    ),
    "duplicate node": (graph_bytes(X, X, floats("out", "Relu", "x")), 2, says("node-twice")),
    "cycle": (
        graph_bytes(X, floats("a", "AddV2", "x", "b"), floats("b", "Relu", "a")),
        2,
        says("cycle"),
    ),
    "port out of range": (graph_bytes(X, floats("out", "Relu", "x:3")), 2, re.escape("'x:3'")),
    "unknown op": (graph_bytes(X, floats("out", "Rleu", "x")), 2, says("op-unknown", op="Rleu")),
    "content too short": (constant_with(content=b"\0" * 8), 2, says("node-invalid", node="one")),
    "content of another type": (
        constant_with(content=b"\0" * 24, dtype=2),
        2,
        says("node-invalid", node="one"),
    ),
    "huge shape": (
        constant_with(content=b"", sizes=(1 << 40, 1 << 20)),
        2,
        says("node-invalid", node="one"),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", FILES)
def test_bad_files(case, deploykit, tmp_path):
    content, status, message = FILES[case]
    path = tmp_path / "model.pb"
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    for command in ("optimize", "inspect"):
        found = deploykit(command, path, "--json")
        assert found.status == status, found.stderr
        assert found.printed == ""
        assert re.search(message, found.stderr)
        assert str(path) in found.stderr
        assert found.stderr.startswith("deploykit: error: ")
        assert found.stderr.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before


def test_a_good_file_passes_the_same_way(deploykit, tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(GOOD)
    found = deploykit("optimize", path, "--json")
    assert found.status == 0, found.stderr
    assert (tmp_path / "model.optimized.pb").exists()


def test_nan_weights_are_named(deploykit, tmp_path):
    x = X.with_attrs(shape=(2, 64))
    path = tmp_path / "model.pb"
    path.write_bytes(graph_bytes(x, NAN, floats("out", "MatMul", "x", "weights")))
    found = deploykit("quantize", path)
    assert found.status == 2
    assert "'weights'" in found.stderr
    assert "NaN" in found.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("option", "value"), [("--outputs", "lgits"), ("--inputs", "y"), ("--outputs", "logits:7")]
)
def test_absent_names_give_the_nearest(deploykit, small, option, value):
    found = deploykit("optimize", small, option, value)
    assert found.status == 2
    assert "'" + value.split(":")[0] in found.stderr
    if value == "lgits":
        assert shows(found.stderr, "outputs-wrong", problem=Containing("logits"))
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.parametrize("linked", [False, True])
def test_output_equal_to_input_is_refused_even_with_force(deploykit, small, small_bytes, linked):
    output = small
    if linked:
        output = small.parent / "link.pb"
        output.symlink_to(small)
    found = deploykit("optimize", small, "-o", output, "--force")
    assert found.status == 4
    assert shows(found.stderr, "output-is-input")
    assert small.read_bytes() == small_bytes


def test_a_folder_is_no_model_to_inspect(deploykit, tmp_path):
    assert deploykit("inspect", tmp_path).status == 4


@pytest.mark.sampled
def test_unwritable_folder(small):
    """In a child without root's powers, which would override the folder's mode."""
    small.parent.chmod(0o755)
    for parent in small.parent.parents:
        if os.stat(parent).st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    code = (
        "import os, sys; from deploykit.cli.main import run;"
        "run(['optimize', sys.argv[1], '-o', sys.argv[1]]);"  # refused too, but all is imported
        "os.setgid(65534) if os.getuid() == 0 else None;"
        "os.setuid(65534) if os.getuid() == 0 else os.chmod(sys.argv[2], 0o555);"
        "sys.exit(run(['optimize', sys.argv[1]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(small), str(small.parent)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert shows(done.stderr, "folder-not-writable", folder=small.parent)
    assert list(small.parent.iterdir()) == [small]


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["x.pb", "x.keras", "x.h5", "x.meta", "saved_model.pb"])
def test_fifo_and_device_are_no_models(deploykit, tmp_path, name):
    os.mkfifo(tmp_path / name)
    for path in (tmp_path / name, "/dev/zero"):
        found = deploykit("optimize", path)
        assert found.status == 4
        assert shows(found.stderr, "file-kind", got=because("file-not-regular"))


@pytest.mark.parametrize("name", ["x.pb", "x.pbtxt", "x.meta", "saved_model.pb"])
def test_a_file_of_3_gb_is_not_read(deploykit, tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(3_000_000_000)
    found = deploykit("optimize", tmp_path / name)
    assert found.status == 4
    assert shows(found.stderr, "file-too-large", size=3000000000, what="file", source=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), says("usage", reason="Missing option '--transforms'")),
        (("--transforms=",), says("transforms-empty")),
        (("--transforms=fold_constant",), says("missing")),
        (("--transforms=fold_constants(",), says("parenthesis-open")),
        (("--transforms=quantize_weights(min_size=3)",), says("parameter-unknown")),
        (("--transforms=quantize_weights(minimum_size=many)",), says("parameter-value")),
        (("--transforms=remove_nodes",), re.escape("op")),
        (("--transforms=remove_device", "--outputs=nothing"), re.escape("'nothing'")),
    ],
)
def test_wrong_transform_strings(deploykit, small, arguments, message):
    out = small.parent / "out.pb"
    found = deploykit("transform", f"--in_graph={small}", f"--out_graph={out}", *arguments)
    assert found.status == 2
    assert re.search(message, found.stderr)
    assert not out.exists()


def test_side_effect_ops_are_refused_where_the_graph_would_run(deploykit, tmp_path):
    name = Node.constant("name", np.array(b"/etc/hostname", object))
    read = Node("read", "ReadFile", ("name",))
    path = tmp_path / "model.pb"
    path.write_bytes(graph_bytes(name, read))
    found = deploykit("verify", path, path, "--outputs=read")
    assert found.status == 3
    assert "'read'" in found.stderr
    assert "--allow-op ReadFile" in found.stderr


@pytest.mark.sampled
def test_data_that_does_not_fit(deploykit, small, tmp_path):
    cases = {
        "wrong name": (
            {n: np.zeros((2, 8, 8, 3), np.float32) for n in ("images", "y")},
            "input 'x'",
        ),
        "wrong shape": ({"x": np.zeros((2, 9, 8, 3), np.float32)}, "shape"),
        "wrong type": ({"x": np.full((2, 8, 8, 3), "a")}, "takes float32"),
    }
    for arrays, message in cases.values():
        data = tmp_path / "data.npz"
        np.savez(data, **arrays)
        found = deploykit("verify", small, small, "--data", data)
        assert found.status == 2, found.stderr
        assert message in found.stderr
    data.write_bytes(b"no zip")
    assert deploykit("verify", small, small, "--data", data).status == 2
    assert deploykit("verify", small, small, "--data", tmp_path / "none.npz").status == 4


def test_timeout_is_status_6(deploykit, small, started_children):
    found = deploykit("verify", small, small, "--timeout", "0.2")
    assert found.status == 6
    assert "within 0.2 seconds" in found.stderr
