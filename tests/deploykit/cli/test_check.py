"""`deploykit check`: what it prints, and with which status it ends."""

import numpy as np
import pytest

from deploykit.transforms.ir.node import Node
from deploykit.transforms.runtime import importing
from deploykit.transforms.runtime.child_process import Worker
from tests.deploykit.api.test_check import written
from tests.support import Containing, shows
from tests.transforms.ir.test_validate import X, relu


@pytest.fixture
def path(tmp_path):
    return tmp_path / "graph.pb"


def test_a_sound_model(deploykit, small):
    found = deploykit("check", small)
    assert (found.status, found.stderr) == (0, "")
    assert found.stdout.splitlines()[-1] == "verdict:    sound"
    document = deploykit("check", small, "--json").document
    assert (document["sound"], document["refused_ops"]) == (True, [])
    assert document["graphs"][0]["nodes"] == document["nodes_in"]


def test_a_bad_model_is_shown_and_refused(deploykit, path):
    written(path, [X, Node("y", "Mine", ("x",)), Node("z", "Other", ("y",))])
    found = deploykit("check", path)
    assert found.status == 2
    assert found.stderr.count("\n") == 1
    assert shows(found.stderr, "custom-op", node="y", more="", op="Mine")
    assert str(path) in found.stderr
    assert found.stdout == Containing("custom op:", "Other (z)")
    assert found.stdout.splitlines()[-1] == "verdict:    not sound"
    document = deploykit("check", path, "--json").document
    assert not document["sound"]
    assert len(document["graphs"][0]["problems"]) == 2


def test_effects_are_shown_and_refused_by_policy(deploykit, path):
    text = Node.constant("name", np.array(b"/tmp/x", object))
    written(
        path, [X, text, Node("read", "ReadFile", ("name",)), Node("a", "Abort"), relu("y", "x")]
    )
    found = deploykit("check", path)
    assert found.status == 3
    assert shows(found.stderr, "acts-beyond-graph", ops=["Abort", "ReadFile"])
    assert found.stdout == Containing("effect:", "ReadFile (read)", "files")
    document = deploykit("check", path, "--json", "--allow-op", "Abort").document
    assert document["refused_ops"] == ["ReadFile"]
    allowed = deploykit("check", path, "--allow-op", "Abort", "--allow-op", "ReadFile")
    assert (allowed.status, allowed.stderr) == (0, "")
    assert "(allowed)" in allowed.stdout
    shown = deploykit("inspect", path)
    assert shown.status == 0
    assert shown.stdout == Containing("effect:", "ReadFile", "files: read")
    assert [use["op"] for use in deploykit("inspect", path, "--json").document["effects"]] == [
        "Abort", "ReadFile",
    ]  # fmt: skip


def test_limits_hold(deploykit, small, monkeypatch):
    def sleeping(kind, forced):  # TensorFlow may answer before a short timeout is looked at
        return Worker("time:sleep", 60, forced=forced)

    monkeypatch.setattr(importing, "Worker", sleeping)
    found = deploykit("check", small, "--timeout", "0.01")
    assert found.status == 6
    assert shows(found.stderr, "child-timeout", source=small, seconds=0.01)


@pytest.mark.sampled
@pytest.mark.parametrize("command", ["optimize", "freeze", "quantize", "export", "transform"])
def test_what_tensorflow_refuses_at_import_is_never_written(deploykit, path, command):
    node = Node("y", "MatMul", ("x", "x")).with_attrs(T=X.attr("dtype"))
    written(path, [X.with_attrs(shape=(2, 3)), node])
    before = sorted(path.parent.iterdir())
    more = {
        "export": [path.parent / "served"],
        "transform": ["--transforms=remove_device", f"--out_graph={path.parent / 'o.pb'}"],
    }
    model = f"--in_graph={path}" if command == "transform" else path
    found = deploykit(command, model, *more.get(command, []))
    assert found.status == 2, found.stderr
    assert shows(found.stderr, "runtime-failed", reason=Containing("Dimensions must be"))
    assert sorted(path.parent.iterdir()) == before
