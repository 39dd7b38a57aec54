"""Freezing what the embedded models do not have: resource variables, new control flow, Lambdas."""

import numpy as np
import pytest

import deploykit
from deploykit.freezing import freeze
from tests.support import ops
from transforms.core.child import call
from transforms.core.errors import GraphError, RefusedError

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


def save_keras(folder: str) -> None:
    """Save a model of two inputs and two outputs, and one with a Lambda layer."""
    import keras

    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b", dtype="int32")
    total = keras.layers.Add()([a, keras.layers.Dense(4)(b)])
    outputs = [keras.layers.Dense(3, name="y")(total), keras.layers.Dense(2, name="z")(total)]
    keras.Model({"a": a, "b": b}, outputs).save(f"{folder}/two.keras")
    x = keras.Input((4,), name="x")
    keras.Model(x, keras.layers.Lambda(lambda t: t * 2)(x)).save(f"{folder}/lambda.keras")


def test_keras_models(tmp_path):
    call(f"{HERE}:save_keras", str(tmp_path))
    graph = deploykit.freeze(tmp_path / "two.keras")
    assert graph.inputs == ("a", "b")
    assert graph.outputs == ("y", "z")
    with pytest.raises(RefusedError, match=r"lambda.keras: the model holds a Lambda layer"):
        deploykit.freeze(tmp_path / "lambda.keras")


def test_a_checkpoint_that_lacks_a_variable_names_it(tmp_path):
    call(f"{HERE}:save_resource_variables", str(tmp_path))
    call(f"{HERE}:save_other", str(tmp_path))
    meta = (tmp_path / "model.ckpt.meta").read_bytes()
    (tmp_path / "other.ckpt.meta").write_bytes(meta)
    with pytest.raises(GraphError, match="lacks 1 variables, among them 'half'"):
        deploykit.freeze(tmp_path / "other.ckpt")


def save_other(folder: str) -> None:
    """Save a checkpoint with one of the two variables."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("table", [9, 4])
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, f"{folder}/other.ckpt")
