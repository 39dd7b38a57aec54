"""Switches of training are found by what reads them; what anything else depends on stays."""

import numpy as np
import pytest

from deploykit.pipelines.transform import OPTIMIZE
from deploykit.transforms.ir.graph import Graph
from tests.support import (
    Containing,
    assert_golden,
    built,
    error,
    ops,
    random,
    shows,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = {"x": random(4, 6, seed=9)}
TEXT = "pin_training_switches"


@built(["x"], ["out"])
def net(step, default, name="any_name", dtype="float32", shape=()):
    """Return x -> step(x, placeholder with this default) -> Relu."""
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[4, 6], name="x")
    switch = tf.compat.v1.placeholder_with_default(tf.constant(default, dtype), shape, name=name)
    tf.raw_ops.Relu(features=step(tf.raw_ops.Neg(x=x), switch), name="out")


def floor(y, kept):
    """As TensorFlow wrote dropout until 1.12."""
    noise = tf.raw_ops.RandomUniform(shape=tf.raw_ops.Shape(input=y), dtype=tf.float32, seed=3)
    mask = tf.raw_ops.Floor(x=tf.raw_ops.Add(x=kept, y=noise))
    return tf.raw_ops.Mul(x=tf.raw_ops.RealDiv(x=y, y=kept), y=mask)


def old_division(y, kept):
    noise = tf.raw_ops.RandomUniform(shape=tf.raw_ops.Shape(input=y), dtype=tf.float32, seed=3)
    mask = tf.raw_ops.Floor(x=tf.raw_ops.Add(x=noise, y=kept))
    return tf.raw_ops.Mul(x=tf.raw_ops.Div(x=y, y=kept), y=mask)


def kept_of_today(y, kept):
    return tf.compat.v1.nn.dropout(y, keep_prob=kept)


def rate_of_today(y, rate):
    return tf.nn.dropout(y, rate=rate)


def stateless(y, rate):
    return tf.nn.experimental.stateless_dropout(y, rate=rate, seed=[1, 2])


def in_a_branch(y, is_training):
    return tf.compat.v1.cond(is_training, lambda: tf.nn.dropout(y, rate=0.5, seed=3), lambda: y)


def negated(y, is_serving):
    return in_a_branch(y, tf.logical_not(is_serving))


def percent(y, percentage):
    return tf.nn.dropout(y, rate=tf.cast(percentage, tf.float32) / 100.0)


def batch_norm(y, is_training):
    y = tf.reshape(y, [4, 1, 2, 3])
    mean, variance = tf.constant([0.1, 0.2, 0.3]), tf.constant([1.0, 2.0, 3.0])
    scale, offset = tf.ones([3]), tf.zeros([3])

    def norm(training):
        empty = tf.zeros([0])
        given = (empty, empty) if training else (mean, variance)
        return tf.raw_ops.FusedBatchNormV3(
            x=y, scale=scale, offset=offset, mean=given[0], variance=given[1], is_training=training
        ).y

    y = tf.compat.v1.cond(is_training, lambda: norm(True), lambda: norm(False))
    return tf.reshape(y, [4, 6])


def moments(y, is_training):
    """As tf.layers.batch_normalization writes it where it is not fused."""
    mean, variance = tf.nn.moments(y, [0])
    choose = tf.compat.v1.cond
    mean = choose(is_training, lambda: mean, lambda: tf.constant([0.1] * 6))
    variance = choose(is_training, lambda: variance, lambda: tf.constant([2.0] * 6))
    return (y - mean) * tf.math.rsqrt(variance + 1e-3)


SWITCHES = {
    "moments": (moments, False, "bool"),
    "floor": (floor, 1.0, "float32"),
    "old division": (old_division, 1.0, "float32"),
    "keep_prob": (kept_of_today, 1.0, "float32"),
    "rate": (rate_of_today, 0.0, "float32"),
    "stateless": (stateless, 0.0, "float32"),
    "a branch": (in_a_branch, False, "bool"),
    "a negated condition": (negated, True, "bool"),
    "whole percent": (percent, 0, "int32"),
    "batch norm": (batch_norm, False, "bool"),
}


@pytest.mark.parametrize("name", ["keep_prob", "Placeholder_7"])
@pytest.mark.parametrize("kind", SWITCHES)
def test_optimize_leaves_nothing_of_training(kind, name, caplog):
    caplog.set_level("INFO", "deploykit")
    step, default, dtype = SWITCHES[kind]
    graph = net(step, default, name, dtype)
    result = transform(graph, OPTIMIZE)
    value = Containing(str(default).lower())
    assert shows(caplog.text, "pinned-default", name=name, value=value)
    left = set(ops(result))
    assert not [op for op in left if "Random" in op or op in ("PlaceholderWithDefault", "Switch")]
    assert error(graph, result, X) < 1e-6
    if kind not in ("batch norm", "moments"):
        assert left == {"Placeholder", "Neg", "Relu"}
        assert error(graph, result, X) == 0


def test_what_the_user_pins_goes_likewise():
    graph = transform(net(floor, 0.5), "pin_placeholder(name=any_name, value=1.0)")
    result = transform(graph, OPTIMIZE)
    assert set(ops(result)) == {"Placeholder", "Neg", "Relu"}
    assert error(graph, result, X) == 0


def temperature(y, value):
    return tf.nn.dropout(y, rate=0.5) / value


def threshold(y, value):
    return tf.cast(y > value, tf.float32)


def both(y, kept):
    return floor(y, kept) * kept


def other_branch(y, flag):
    y = tf.compat.v1.cond(flag, lambda: y * 2.0, lambda: y)
    return tf.nn.dropout(y, rate=0.5)


def normalised(y, flag):
    return tf.compat.v1.cond(flag, lambda: tf.nn.l2_normalize(y, 1), lambda: y)


def one_of_two_norms(y, flag):
    def norm(shift):
        return tf.raw_ops.FusedBatchNormV3(
            x=tf.reshape(y, [4, 1, 2, 3]), scale=tf.ones([3]), offset=tf.fill([3], shift),
            mean=tf.zeros([3]), variance=tf.ones([3]), is_training=False,
        ).y  # fmt: skip

    return tf.reshape(tf.compat.v1.cond(flag, lambda: norm(1.0), lambda: norm(2.0)), [4, 6])


def noise_scale(y, scale):
    return y + scale * tf.raw_ops.RandomStandardNormal(shape=[4, 6], dtype=tf.float32, seed=3)


def sampled(y, flag):
    noise = tf.raw_ops.RandomStandardNormal(shape=[4, 6], dtype=tf.float32, seed=3)
    return tf.compat.v1.cond(flag, lambda: y + noise, lambda: y)


LEFT = {
    "a norm that is no batch norm": (normalised, False, "bool"),
    "two norms in inference mode": (one_of_two_norms, False, "bool"),
    "the scale of noise": (noise_scale, 0.0, "float32"),
    "sampling": (sampled, False, "bool"),
    "dropout that is on": (rate_of_today, 0.5, "float32"),
    "temperature": (temperature, 1.0, "float32"),
    "threshold": (threshold, 0.0, "float32"),
    "keep probability that also scales": (both, 1.0, "float32"),
    "a branch without training in front of dropout": (other_branch, False, "bool"),
}


@pytest.mark.parametrize("kind", LEFT)
def test_what_decides_anything_else_is_left_alone(kind):
    step, default, dtype = LEFT[kind]
    graph = net(step, default, dtype=dtype)
    assert str(transform(graph, TEXT)) == str(graph)


def test_an_input_of_the_graph_is_left_alone():
    graph = net(floor, 1.0)
    graph.inputs = ("x", "any_name")
    assert str(transform(graph, TEXT)) == str(graph)


def test_a_rate_that_drops_stays_a_dropout():
    graph = net(rate_of_today, 0.25)
    assert "RandomUniform" in ops(transform(graph, OPTIMIZE))


@pytest.mark.golden("pin_training_switches/keep_probability")
def test_golden():
    graph = net(floor, 1.0, "keep_prob")
    assert_golden(graph, transform(graph, TEXT))


def test_8_000_switches():
    from deploykit.transforms.ir.node import Node

    count = 8_000
    nodes = [Node("x", "Placeholder"), Node.constant("default", np.float32(1))]
    for i in range(count):
        nodes.append(Node(f"p{i}", "PlaceholderWithDefault", ("default",)))
        nodes.append(Node(f"y{i}", "Mul", (f"y{i - 1}" if i else "x", f"p{i}")))
    graph = Graph(nodes, ["x"], [f"y{count - 1}"])
    assert len(transform(graph, TEXT)) == len(graph)


def test_4_000_branches_of_one_condition():
    from deploykit.transforms.ir.node import Node
    from deploykit.transforms.ir.tensors import DType

    kinds = {"T": DType("float32")}
    nodes = [Node("x", "Placeholder"), Node.constant("default", np.array(False))]
    nodes.append(Node("p", "PlaceholderWithDefault", ("default",)))
    last = "x"
    for i in range(4000):
        nodes.append(Node(f"s{i}", "Switch", (last, "p")).with_attrs(**kinds))
        nodes.append(Node(f"r{i}", "Relu", (f"s{i}:1",)).with_attrs(**kinds))
        nodes.append(Node(f"m{i}", "Merge", (f"s{i}", f"r{i}")).with_attrs(N=2, **kinds))
        last = f"m{i}"
    graph = Graph(nodes, ["x"], [last])
    assert len(transform(graph, TEXT)) == len(graph)


GRAPHS = [
    Example(TEXT, lambda: net(floor, 1.0)),
    Example(TEXT, lambda: net(in_a_branch, False, dtype="bool")),
]
