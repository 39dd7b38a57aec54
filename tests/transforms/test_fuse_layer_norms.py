"""A layer norm becomes one op, however its scale and offset are applied; nothing else does."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import Worker
from tests.support import assert_golden, because, building, error, ops, random, tf, transform
from tests.transforms.examples import Example

C = 6
BAR = 1e-6 * 8  # design: 1e-6 * (5 + depth): mean, variance, root
SCALE, OFFSET = random(C, seed=1, low=0.5), random(C, seed=2)


def by_parts(tf, x, mean, root):
    """Return what tf.nn.batch_normalization computes."""
    inverse = root * SCALE
    return x * inverse + (OFFSET - mean * inverse)


def as_keras_does(tf, x, mean, root):
    shape = (1,) * (len(x.shape) - 1) + (C,)
    inverse = root * SCALE.reshape(shape)
    return x * inverse + (-mean * inverse + OFFSET.reshape(shape))


FORMS = {
    "by parts": by_parts,
    "Keras": as_keras_does,
    "as written": lambda tf, x, mean, root: (x - mean) * root * SCALE + OFFSET,
    "one number": lambda tf, x, mean, root: (x - mean) * (root * 0.5) - 0.25,
    "two scales": lambda tf, x, mean, root: (x - mean) * root * SCALE * 2.0 + OFFSET - 1.0,
}
OTHERS = {
    "another mean": lambda tf, x, mean, root: (x - mean * 0.9) * root + OFFSET,
    "two roots": lambda tf, x, mean, root: (x - mean) * root * root + OFFSET,
    "no mean": lambda tf, x, mean, root: x * root + OFFSET,
}
PARTLY = {
    "computed scale": lambda tf, x, mean, root: (x - mean) * root * tf.nn.relu(x) + OFFSET,
    "one scale a token": lambda tf, x, mean, root: (x - mean) * root * random(3, 1) + OFFSET,
}


def net(form="by parts", shape=(None, 3, C), axis=-1, epsilon=1e-5, dtype="float32") -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(dtype, shape, name="x")
        y = tf.abs(x, name="row")
        mean = tf.reduce_mean(y, axis, keepdims=True, name="mean")
        square = tf.math.squared_difference(y, mean)
        variance = tf.reduce_mean(square, axis, keepdims=True, name="variance")
        root = tf.math.rsqrt(variance + tf.constant(epsilon, dtype), name="root")
        z = (FORMS | OTHERS | PARTLY)[form](tf, y, mean, root)
        tf.abs(z, name="out")
    graph.prune()
    return graph


def fed(graph: Graph, batch: int) -> dict[str, np.ndarray]:
    return {"x": random(batch, *graph["x"].attr("shape")[1:], seed=batch, low=-3, high=3)}


@pytest.mark.parametrize("shape", [(None, C), (None, 3, C)])
@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_one_op(form, shape):
    graph = net(form, shape)
    result = transform(graph, "fuse_layer_norms")
    assert ops(result) == {"Placeholder": 1, "Abs": 2, "Const": 2, "_MklLayerNorm": 1}
    for batch in (1, 4):
        assert error(graph, result, fed(graph, batch)) <= BAR
    assert str(transform(result, "fuse_layer_norms")) == str(result)


@pytest.mark.parametrize("form", PARTLY)
def test_what_no_op_can_do_stays_behind_it(form):
    graph = net(form)
    result = transform(graph, "fuse_layer_norms")
    assert ops(result)["_MklLayerNorm"] == 1
    assert ops(result)["Mul"] == 1
    assert error(graph, result, fed(graph, 2)) <= BAR


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 0.5])
def test_epsilon_counts(epsilon):
    graph = net(epsilon=epsilon)
    result = transform(graph, "fuse_layer_norms")
    assert error(graph, result, fed(graph, 2)) <= BAR
    (norm,) = (node for node in result if node.op == "_MklLayerNorm")
    result.replace(norm, norm.with_attrs(epsilon=epsilon + 0.1))
    assert error(graph, result, fed(graph, 2)) > 1e-3


@pytest.mark.sampled
@pytest.mark.parametrize("onednn", ["0", "1"])
def test_runs_with_and_without_the_flag(onednn):
    graph = net()
    result = transform(graph, "fuse_layer_norms")
    content = b"".join(result.serialized())
    environment = {"TF_ENABLE_ONEDNN_OPTS": onednn}
    worker = Worker("deploykit.transforms.runtime.session:Session", content, env=environment)
    try:
        for batch in (2, 0):
            (value,) = worker.ask("run", ["out"], fed(graph, batch))
            assert value.shape == (batch, 3, C)
    finally:
        worker.close()


@pytest.mark.golden("fuse_layer_norms/keras")
def test_golden():
    graph = net("Keras")
    assert_golden(graph, transform(graph, "fuse_layer_norms"))


NONE = because("not-layer-norm")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [(lambda form=form: net(form), NONE) for form in OTHERS]
    + [(lambda: net(shape=(None, 2, 3, C)), because("normed-axes-unfit"))],
)  # fmt: skip
def test_left_alone(graph, reason):
    graph = graph()
    (done,) = pipeline.run(graph, pipeline.parse("fuse_layer_norms"))
    assert str(done.graph) == str(graph)
    assert list(done.skipped) == [f"node 'root': {reason}"]


@pytest.mark.parametrize("axis", [1, [1, 2]])
def test_means_over_other_axes_are_left_alone(axis):
    graph = net("one number", axis=axis)
    assert str(transform(graph, "fuse_layer_norms")) == str(graph)


@pytest.mark.parametrize("name", ["mean", "variance", "root"])
def test_what_is_needed_elsewhere_is_left_alone(name):
    graph = net()
    graph.outputs = ("out", name)
    assert str(transform(graph, "fuse_layer_norms")) == str(graph)
    graph.outputs, graph.inputs = ("out",), ("x", name)
    assert "_MklLayerNorm" not in ops(transform(graph, "fuse_layer_norms"))


GRAPHS = [Example("fuse_layer_norms", net, BAR)]
