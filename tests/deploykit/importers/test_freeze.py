"""Freezing what the embedded models do not have: resource variables, new control flow."""

import numpy as np
import pytest

import deploykit
from deploykit.api.freeze import freeze
from deploykit.transforms.common.errors import GraphError, RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import call
from tests.deploykit.conftest import small_graph
from tests.support import Containing, because, building, ops, raises, random, tf

HERE = "tests.deploykit.importers.test_freeze"


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
    from deploykit.transforms.runtime.session import Session

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
    trained = ("freeze", tmp_path / "model.ckpt", "--pin", "keras_learning_phase=true")
    assert deploykit(*trained).status == 5  # dropout gives other values each time
    assert deploykit(*trained, "--allow-unverified").status == 0


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


def written(path, graph: Graph) -> str:
    path.write_bytes(b"".join(graph.serialized()))
    return str(path)


def test_a_handle_cannot_be_fed(tmp_path):
    """So ends a table that a converter has taken for an input."""

    with building() as graph:
        table = tf.compat.v1.placeholder(tf.resource, [], name="table")
        ids = tf.compat.v1.placeholder(tf.int64, [None], name="ids")
        tf.raw_ops.LookupTableFindV2(
            table_handle=table, keys=ids, default_value=np.float32(-1), name="found"
        )
    path = written(tmp_path / "graph.pb", graph)
    with raises(GraphError, "input-is-handle", name="table", type="resource"):
        freeze(path)


def test_contents_that_no_file_holds_are_refused_by_name(tmp_path):
    with building() as graph:
        queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[3]], name="queue")
        taken = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32], name="taken")
        tf.identity(taken[0] * 2.0, name="y")
    path = written(tmp_path / "graph.pb", graph)
    with raises(
        RefusedError,
        "acts-beyond",
        cut=Containing("--inputs taken"),
        op="QueueDequeueV2",
        what=Containing("QueueDequeueV2", because("effect-waits")),
    ):
        freeze(path, outputs=["y"])
    with raises(GraphError, "state-not-frozen", name="queue", advice=Containing("--inputs taken")):
        freeze(path, outputs=["y"], allow_ops=["QueueDequeueV2"])
    assert freeze(path, inputs=["taken"], outputs=["y"]).outputs == ("y",)  # the way out


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize(
    ("name", "value"), [("phase", "false"), ("model/for_inference", "true"), ("mode_1", "false")]
)
def test_a_switch_that_hides_batch_norms_is_named_with_its_pin(new, name, value, tmp_path, caplog):
    with building() as net:
        import tensorflow.compat.v1 as tf

        (tf.enable_control_flow_v2 if new else tf.disable_control_flow_v2)()
        x = tf.placeholder(tf.float32, [None, 4, 4, 3], name="x")
        phase = tf.placeholder(tf.bool, [], name=name)
        y = tf.nn.conv2d(x, random(3, 3, 3, 8), 1, "SAME")
        vectors = [random(8, seed=seed, low=0.5) for seed in range(4)]

        def normalised(training):
            moments = [] if training else vectors[2:]
            return lambda: tf.nn.fused_batch_norm(y, *vectors[:2], *moments, is_training=training)[
                0
            ]

        training = tf.logical_not(phase) if value == "true" else tf.identity(phase)
        tf.identity(tf.cond(training, normalised(True), normalised(False)), name="y")
        tf.enable_control_flow_v2()
    path = written(tmp_path / "graph.pb", net)
    with caplog.at_level("INFO", "deploykit"):
        graph = deploykit.optimize(freeze(path, outputs=["y"]))
    (told,) = [each.getMessage() for each in caplog.records if "--pin" in each.getMessage()]
    assert told == because("hides-batch-norms", name=name, value=value)
    assert ops(graph).keys() & {"If", "StatelessIf", "Merge"}
    caplog.clear()
    freed = deploykit.optimize(freeze(path, outputs=["y"], pins={name: value}))
    assert "FusedBatchNormV3" not in ops(freed)
    assert "--pin" not in caplog.text


def test_other_booleans_are_not_named(tmp_path, caplog):
    with building() as graph:
        import tensorflow.compat.v1 as tf

        x = tf.placeholder(tf.float32, [None, 4], name="x")
        mirrored = tf.placeholder(tf.bool, [], name="mirrored")
        tf.identity(tf.cond(mirrored, lambda: -x, lambda: x), name="y")
    path = written(tmp_path / "graph.pb", graph)
    with caplog.at_level("INFO", "deploykit"):
        freeze(path, outputs=["y"])
    assert "--pin" not in caplog.text
