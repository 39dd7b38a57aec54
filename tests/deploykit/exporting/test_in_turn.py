"""Whether ops can run one by one is asked of TensorFlow, for every model that is served."""

import json

import numpy as np
import pytest

import deploykit as public
from deploykit.exporting.deployment import refused_in_turn
from deploykit.transforms.ir.graph import Graph
from tests.serving.small_models import half_plus
from tests.support import build, shows


def condition() -> Graph:
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        no, yes = tf.raw_ops.Switch(data=x, pred=tf.reduce_sum(x) > 0.0)
        merged, _ = tf.raw_ops.Merge(inputs=[-no, yes])
        tf.identity(merged, name="y")

    return build(body, ["x"], ["y"])


def straight() -> Graph:
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        tf.matmul(x, np.eye(8, dtype=np.float32), name="y")

    return build(body, ["x"], ["y"])


@pytest.fixture
def tuned(tmp_path):
    path = tmp_path / "tuned.json"
    settings = {"executor": "caller", "threads": [1, 2]}
    path.write_text(json.dumps({"format": 1, "kind": "tuned", "settings": settings}))
    return path


@pytest.mark.sampled
def test_each_kind_of_model(tmp_path):
    assert refused_in_turn(half_plus(tmp_path / "half", 2) / "00000123") == ""
    assert refused_in_turn(public.export(straight(), tmp_path, name="straight").folder) == ""
    said = refused_in_turn(public.export(condition(), tmp_path, name="condition").folder)
    assert "control flow" in said
    assert "\n" not in said


def test_a_folder_that_is_no_version_is_refused_too(tmp_path):
    assert "saved_model.pb" in refused_in_turn(tmp_path)


def test_the_files_follow_the_models(deploykit, tmp_path, tuned):
    base = tmp_path / "base"
    for graph, name in ((straight(), "straight"), (condition(), "condition")):
        public.save_graph(graph, tmp_path / f"{name}.pb")
    options = ("--manifests=all", "--tuned", tuned)
    found = deploykit("export", tmp_path / "straight.pb", base, *options)
    assert found.status == 0
    assert shows(found.stderr, "sha256-missing", file=tuned)  # no model was tuned for it
    assert "SINGLE_THREADED_EXECUTOR" in (base / "session.config").read_text()
    found = deploykit("export", tmp_path / "condition.pb", base, *options, "--force")
    assert found.status == 0
    assert shows(found.stderr, "executor-unfit", file=tuned)
    assert "session.config" not in (base / "Dockerfile").read_text()
    assert "--tensorflow_inter_op_parallelism=2" in (base / "Dockerfile").read_text()
    own = (base / "Dockerfile.deploykit").read_text()
    assert "--tensorflow_inter_op_parallelism=-1" in own
