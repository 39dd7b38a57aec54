"""Checkpoints of every age: odd prefixes, old formats, parts, half precision, objects."""

import shutil

import numpy as np
import pytest

import deploykit
from deploykit.importers.model_path import Checkpoint, find_checkpoint
from deploykit.transforms.common.errors import FileError, GraphError
from tests import pairwise
from tests.support import ops, raises, run, tf

pytestmark = pytest.mark.usefixtures("in_process")

IDS = {"ids": np.array([0, 3, 8], np.int32)}


def save(folder, base="model.ckpt", version=2, sharded=False, dropped=()) -> np.ndarray:
    """Train a step with Adam, dropout and a partitioned table; save, and return the answer."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        ids = tf.placeholder(tf.int32, [None], name="ids")
        labels = tf.placeholder(tf.float32, [None, 4], name="labels")
        table = tf.get_variable(
            "table", [9, 4], partitioner=tf.fixed_size_partitioner(3), use_resource=False
        )
        rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
        types = {"half": tf.float16, "brain": tf.bfloat16}
        if version == 1:
            types = dict.fromkeys(types, tf.float32)
        for name, dtype in types.items():
            scale = tf.get_variable(name, [4], dtype, use_resource=name == "half")
            rows = rows * tf.cast(scale, tf.float32)
        rate = tf.placeholder_with_default(0.0, [], name="rate")
        rows = tf.identity(tf.nn.dropout(rows, rate=rate), name="answer")
        loss = tf.reduce_mean(tf.square(rows - labels))
        step = tf.train.AdamOptimizer(0.1).minimize(loss)
        session.run(tf.global_variables_initializer())
        session.run(step, {ids: IDS["ids"], labels: np.ones((3, 4))})
        saved = [v for v in tf.global_variables() if v.op.name not in dropped]
        formats = tf.train.SaverDef
        version = {1: formats.V1, 2: formats.V2}[version]
        saver = tf.train.Saver(saved, write_version=version, sharded=sharded)
        saver.save(session, str(folder / (base or "model.ckpt")))
        answer = session.run("answer:0", {"ids:0": IDS["ids"]})
    if not base:
        for path in folder.iterdir():
            path.rename(folder / path.name.removeprefix("model.ckpt"))
        (folder / "checkpoint").unlink()
    return answer


def freeze(source, **wanted):
    return deploykit.freeze(source, inputs=["ids"], outputs=["answer"], **wanted)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("saved", "source"),
    pairwise.drawn(
        "checkpoints_of_every_form",
        [
            ({}, "model.ckpt"),
            ({}, "model.ckpt.index"),
            ({}, ""),
            ({"sharded": True}, "model.ckpt"),
            ({"version": 1}, "model.ckpt"),
            ({"base": ""}, ""),
            ({"base": ""}, ".meta"),
            ({"base": "a.b"}, "a.b"),
        ],
        2,
        quick=3,
    ),
)
def test_checkpoints_of_every_form(saved, source, tmp_path):
    expected = save(tmp_path, **saved)
    graph = freeze(tmp_path / source)
    assert not {"VariableV2", "VarHandleOp", "ApplyAdam", "RestoreV2"} & set(ops(graph))
    np.testing.assert_array_equal(run(graph, IDS)[0], expected)


@pytest.mark.sampled
def test_the_folder_has_moved_from_another_machine(tmp_path):
    expected = save(tmp_path)
    for text in ("/home/someone/run 7/model.ckpt", "C:\\\\\\\\runs\\\\\\\\model.ckpt"):
        (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{text}"\n')
        np.testing.assert_array_equal(run(freeze(tmp_path), IDS)[0], expected)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "/a/model.ckpt-9"\n')
    with raises(FileError, "checkpoint-state-missing", name="model.ckpt-9"):
        freeze(tmp_path)


def test_a_graph_def_with_a_checkpoint_of_objects(tmp_path):
    kernel = tf.Variable(np.arange(6.0).reshape(3, 2), name="dense/kernel", dtype=tf.float32)
    layer = tf.Module()
    layer.weights = kernel
    tf.train.Checkpoint(root=layer).write(str(tmp_path / "objects"))
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 3], name="x")
        variable = tf.compat.v1.get_variable("dense/kernel", [3, 2], use_resource=True)
        tf.matmul(x, variable, name="y")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    frozen = deploykit.freeze(tmp_path / "objects", graph=tmp_path / "graph.pb")
    found = run(frozen, {"x": np.ones((1, 3), np.float32)})
    np.testing.assert_array_equal(found[0], [[6, 9]])


def test_a_variable_that_the_checkpoint_lacks_is_named(tmp_path):
    save(tmp_path)
    (tmp_path / "less").mkdir()
    save(tmp_path / "less", dropped=["half"])
    shutil.copy(tmp_path / "model.ckpt.meta", tmp_path / "less")
    with raises(GraphError, "checkpoint-lacks", count=1, names=["half"]):
        freeze(tmp_path / "less")


@pytest.mark.sampled
def test_a_variable_that_nothing_initialises_is_named(tmp_path):
    save(tmp_path, dropped=["half"])
    with raises(GraphError, "not-initialised", node="half", what="variable", op="VarHandleOp"):
        freeze(tmp_path)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("size", "dtype", "code", "fields"),
    pairwise.drawn(
        "a_shape_or_a_type_that_disagrees",
        [
            (5, "float16", "shape-mismatch", {"shape": [5], "found": [4]}),
            (4, "float32", "variable-type", {"dtype": "float32", "found": "float16"}),
            (4, "int16", "variable-type", {"dtype": "int16", "found": "float16"}),
        ],
        1,
        quick=1,
    ),
)
@pytest.mark.parametrize("is_resource", [True, False])
def test_a_shape_or_a_type_that_disagrees(tmp_path, size, dtype, code, fields, is_resource):
    import tensorflow.compat.v1 as tf

    save(tmp_path)
    with tf.Graph().as_default() as graph:
        ids = tf.placeholder(tf.int32, [None], name="ids")
        half = tf.get_variable("half", [size], tf.as_dtype(dtype), use_resource=is_resource)
        tf.gather(half, ids, name="answer")
    (tmp_path / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with raises(GraphError, code, node="half", **fields):
        freeze(tmp_path / "model.ckpt", graph=tmp_path / "graph.pb")


@pytest.mark.sampled
@pytest.mark.parametrize("end", [".index", ".data-00000-of-00001"])
def test_a_missing_file_is_named(end, tmp_path):
    save(tmp_path)
    (tmp_path / f"model.ckpt{end}").unlink()
    with raises(FileError, "checkpoint-part-missing", end=end):
        freeze(tmp_path / "model.ckpt")


@pytest.mark.sampled
def test_a_damaged_checkpoint(tmp_path):
    save(tmp_path)
    path = tmp_path / "model.ckpt.index"
    path.write_bytes(path.read_bytes()[:100])
    with raises(GraphError, "not-a"):
        freeze(tmp_path / "model.ckpt")


def test_what_a_path_means(tmp_path):
    assert find_checkpoint(tmp_path) is None
    assert find_checkpoint(tmp_path / "model.pb") is None
    (tmp_path / ".index").touch()
    assert find_checkpoint(tmp_path) == Checkpoint(tmp_path, "")
    assert find_checkpoint(tmp_path / ".meta") == Checkpoint(tmp_path, "")
    (tmp_path / "a").touch()
    assert find_checkpoint(tmp_path / "a") is None
    (tmp_path / "a.meta").touch()
    assert find_checkpoint(tmp_path / "a") == Checkpoint(tmp_path, "a")
