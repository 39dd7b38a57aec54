"""Freezing what the embedded models do not have: resource variables, new control flow."""

import numpy as np

import deploykit
from deploykit.freezing import freeze
from tests.deploykit.conftest import small_graph
from tests.support import ops
from transforms.core.child import call

HERE = "tests.deploykit.test_freezing"


def save_resource_variables(folder: str) -> np.ndarray:
    """Save a TF1-style checkpoint with resource variables and an If; return its answer."""
    import tensorflow.compat.v1 as tf

    tf.enable_resource_variables()
    tf.enable_control_flow_v2()
    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(tf.int32, [None], name="ids")
        switch = tf.placeholder_with_default(True, [], name="keras_learning_phase")
        table = tf.get_variable("table", [9, 4], initializer=tf.random_normal_initializer(seed=1))
        half = tf.get_variable("half", [4], tf.float16, tf.ones_initializer())
        rows = tf.gather(table, ids) * tf.cast(half, tf.float32)
        rows = tf.cond(
            switch, lambda: tf.nn.dropout(rows, rate=0.5) @ table[:4], lambda: rows @ table[:4]
        )
        tf.identity(rows, name="answer")
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, f"{folder}/model.ckpt")
        return session.run("answer:0", {"ids:0": [0, 3, 8], "keras_learning_phase:0": False})


def run_frozen(content: bytes) -> np.ndarray:
    from transforms.core.session import Session

    return Session(content).run(["answer"], {"ids": np.array([0, 3, 8], np.int32)})[0]


def test_resource_variables_and_new_control_flow(tmp_path, deploykit):
    expected = call(f"{HERE}:save_resource_variables", str(tmp_path))
    graph = freeze(tmp_path / "model.ckpt")
    assert graph.inputs == ("ids",)
    assert graph.outputs == ("answer",)
    assert not {"VarHandleOp", "ReadVariableOp", "If", "RandomUniform"} & set(ops(graph))
    assert not graph.library.function
    found = call(f"{HERE}:run_frozen", b"".join(graph.serialized()))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    missing = deploykit("freeze", tmp_path / "model.ckpt", "--pin", "keras_learning_phase=true")
    assert missing.status == 0


def test_the_oldest_graph_defs(tmp_path, in_process):
    """Graphs of TensorFlow 0.x have no version, and no attribute that came later."""
    graph_def = small_graph().to_graph_def()
    graph_def.ClearField("versions")
    for node in graph_def.node:
        for name in ("data_format", "dilations", "explicit_paddings", "use_cudnn_on_gpu"):
            node.attr.pop(name, None)
    (tmp_path / "old.pb").write_bytes(graph_def.SerializeToString())
    frozen = freeze(tmp_path / "old.pb")
    assert frozen.to_graph_def().versions.producer == 0
    optimized = deploykit.optimize(frozen)
    assert "Mul" not in ops(optimized)
    found = deploykit.verify(frozen, optimized)
    assert found.passed, found
