"""Training leaves without a trace in the answers; the check sees a dropout that is only cut off."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import (
    assert_golden,
    because,
    build,
    built,
    error,
    ops,
    random,
    run,
    tf,
    transform,
)
from tests.transforms.examples import Example

TEXT = "fold_constants remove_training_nodes"
X = {"x": random(4, 6, seed=9)}


@built(["x"], ["out"])
def net(*steps):
    """Return a graph with these functions of a tensor one after the other."""
    y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[4, 6], name="x")
    for step in steps:
        y = tf.raw_ops.Neg(x=step(y))
    tf.raw_ops.Relu(features=y, name="out")


def uniform(y, scaled=False):
    noise = tf.raw_ops.RandomUniform(shape=tf.raw_ops.Shape(input=y), dtype=tf.float32, seed=3)
    if not scaled:
        return noise
    return tf.raw_ops.Add(x=tf.raw_ops.Mul(x=noise, y=tf.constant(1.0)), y=tf.constant(0.0))


def select(y):
    """As TensorFlow writes it today."""
    return tf.nn.dropout(y, rate=0.25, name="dropout")


def stateless(y):
    return tf.nn.experimental.stateless_dropout(y, rate=0.25, seed=[1, 2], name="dropout")


def cast(scaled):
    """As TensorFlow wrote it from 1.13 to 2.4."""

    def step(y, scale=1 / 0.75):
        is_kept = tf.raw_ops.GreaterEqual(x=uniform(y, scaled), y=tf.constant(0.25))
        kept = tf.raw_ops.Cast(x=is_kept, DstT=tf.float32)
        return tf.raw_ops.Mul(x=tf.raw_ops.Mul(x=y, y=tf.constant(scale)), y=kept, name="dropout")

    return step


def floor(scaled, kept=0.75):
    """As TensorFlow wrote it until 1.12."""

    def step(y):
        probability = tf.constant(kept, name="keep_prob")
        mask = tf.raw_ops.Floor(x=tf.raw_ops.Add(x=probability, y=uniform(y, scaled)))
        y = tf.raw_ops.RealDiv(x=y, y=probability)
        return tf.raw_ops.Mul(x=y, y=mask, name="dropout")

    return step


DROPOUTS = {
    "select": select,
    "stateless": stateless,
    "cast": cast(False),
    "cast scaled": cast(True),
    "floor": floor(False),
    "floor scaled": floor(True),
}


@pytest.mark.parametrize("kind", DROPOUTS)
def test_dropout_becomes_its_mean(kind):
    graph = net(DROPOUTS[kind])
    result = transform(graph, TEXT)
    assert ops(result) == {"Placeholder": 1, "Identity": 1, "Neg": 1, "Relu": 1}
    without = net(lambda y: y)
    assert error(without, result, X) == 0
    assert error(graph, result, X) > 0.1  # it did drop something
    assert str(transform(result, TEXT)) == str(result)


@pytest.mark.parametrize("scaled", [False, True])
def test_dropout_that_keeps_everything_goes_without_a_difference(scaled):
    """That is what pinning keep_prob to 1 leaves in an old graph."""
    graph = net(floor(scaled, kept=1.0))
    result = transform(graph, TEXT)
    assert "RandomUniform" in ops(graph)
    assert "RandomUniform" not in ops(result)
    assert error(graph, result, X) == 0


@pytest.mark.golden("remove_training_nodes/dropout")
def test_golden():
    graph = net(select)
    assert_golden(graph, transform(graph, TEXT))


def passing(y):
    y = tf.raw_ops.CheckNumerics(tensor=y, message="check")
    y = tf.raw_ops.StopGradient(input=y)
    y = tf.raw_ops.PreventGradient(input=y)
    return tf.compat.v1.Print(y, [y, tf.constant(1)], "values")


def watching(y):
    """Assert, print and write summaries, and let the value wait for all of it."""
    v1 = tf.compat.v1
    watchers = [
        tf.raw_ops.Assert(condition=tf.reduce_all(y < 1e9), data=[y]),
        tf.raw_ops.PrintV2(input=tf.constant("seen")),
        v1.summary.merge([v1.summary.histogram("h", y), v1.summary.scalar("s", y[0, 0])]),
    ]
    with tf.control_dependencies(watchers):
        return tf.identity(y)


def test_what_passes_its_input_on_goes():
    graph = net(passing)
    result = transform(graph, "remove_training_nodes")
    assert ops(result) == {"Placeholder": 1, "Neg": 1, "Relu": 1}
    assert error(graph, result, X) == 0


def test_what_only_looks_goes():
    graph = net(watching)
    result = transform(graph, "remove_training_nodes")
    assert ops(result) == {"Placeholder": 1, "Identity": 1, "Neg": 1, "Relu": 1}
    assert error(graph, result, X) == 0
    assert str(transform(result, "remove_training_nodes")) == str(result)


def test_what_waits_for_an_assert_waits_for_what_that_waited_for():
    graph = net(watching)
    (name,) = (node.name for node in graph if node.op == "Assert")
    graph.add(Node("counted", "NoOp", ("^x",)))
    graph.replace(graph[name], graph[name].with_control_inputs("^counted"))
    result = transform(graph, "remove_training_nodes")
    assert result[name].op == "NoOp"
    assert result[name].inputs == ("^counted",)


def test_an_assert_in_a_branch_leaves_the_branch_as_dead_as_it_was():
    def make():
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[4, 6], name="x")
        positive = tf.raw_ops.Placeholder(dtype=tf.bool, shape=[], name="positive")
        switch = tf.raw_ops.Switch(data=x, pred=positive)
        right = tf.raw_ops.Assert(condition=tf.constant(True), data=[switch.output_true])
        with tf.control_dependencies([right]):
            guarded = tf.raw_ops.Neg(x=x)  # dead only by what it waits for
        other = tf.raw_ops.Identity(input=switch.output_false)
        tf.raw_ops.Merge(inputs=[guarded, other], name="out")

    graph = build(make, ["x", "positive"], ["out"])
    result = transform(graph, "remove_training_nodes")
    assert "Assert" not in ops(result)
    for positive in 5 * (True, False):  # were both branches alive, the first to end would win
        assert error(graph, result, {**X, "positive": np.array(positive)}) == 0


def left_alone(graph: Graph) -> list[str]:
    """Return why the graph stays as it is, which it must."""
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse("remove_training_nodes"))
    assert str(done.graph) == str(graph)
    return [reason.split(": ", 1)[1] for reason in done.skipped]


def test_a_dropout_that_does_not_keep_the_mean_is_left_alone():
    def forgets_the_scale(y):
        return cast(False)(y, scale=1.0)

    graph = transform(net(forgets_the_scale), "fold_constants")
    assert left_alone(graph) == [because("dropout-changes-mean")]


def test_a_random_value_that_is_no_dropout_is_left_alone():
    def noisy(y):
        return tf.raw_ops.Mul(x=tf.raw_ops.RealDiv(x=y, y=tf.constant(0.5)), y=uniform(y))

    assert left_alone(net(noisy)) == []


def test_a_rate_that_is_fed_is_left_alone():
    graph = net(floor(False))
    graph.inputs = ("x", "keep_prob")
    assert left_alone(graph) == []


def test_a_summary_that_is_an_output_is_left_alone():
    graph = net(watching)
    (name,) = (node.name for node in graph if node.op == "MergeSummary")
    graph.outputs = ("out", name)
    result = transform(graph, "remove_training_nodes")
    assert {"MergeSummary", "ScalarSummary", "HistogramSummary"} <= set(ops(result))
    assert "Assert" not in ops(result)
    np.testing.assert_array_equal(run(graph, X)[1], run(result, X)[1])


def test_a_chain_of_10_000_asserts():
    count = 10_000
    nodes = [Node("x", "Placeholder")]
    for i in range(count):
        waits = (f"^a{i - 1}",) if i else ()
        nodes.append(Node(f"a{i}", "Assert", ("x", "x", *waits)))
    graph = Graph([*nodes, Node("out", "Neg", ("x", f"^a{count - 1}"))], ["x"], ["out"])
    result = transform(graph, "remove_training_nodes")
    assert "Assert" not in ops(result)


GRAPHS = [
    Example("remove_training_nodes", lambda: net(passing), lost="it is asked to remove Asserts"),
    Example("remove_training_nodes", lambda: net(watching), lost="it is asked to remove Asserts"),
]
