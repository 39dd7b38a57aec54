"""A green light means that something was compared: what proves nothing is not verified."""

import numpy as np
import pytest

from deploykit.transforms.core.errors import CrashError
from deploykit.transforms.core.graph import Graph
from deploykit.verification.verify import verify
from tests.support import build, random

OUTPUTS = {
    "values": lambda tf, y: y,
    "nan": lambda tf, y: y * np.float32("nan"),
    "infinite": lambda tf, y: np.float32("inf") + 0 * y,
    "zero": lambda tf, y: tf.nn.relu(y - 99),
    "constant": lambda tf, y: 5 + 0 * y,
    "empty": lambda tf, y: y[:0],
    "of no column": lambda tf, y: y[:, :0],
    "texts": lambda tf, y: tf.strings.as_string(y),
    "one text": lambda tf, y: tf.strings.as_string(tf.zeros_like(y)),
    "whole numbers": lambda tf, y: tf.cast(100 * y, tf.int32),
    "true": lambda tf, y: y > -99,
}
PROVE = {"values", "texts", "whole numbers", "true"}  # the last is chosen, so y is compared


def times(factor: float, *kinds: str) -> Graph:
    """Return x times a factor and a matrix, with outputs of these kinds made of it."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.matmul(factor * x, random(3, 4))
        for kind in kinds:
            tf.identity(OUTPUTS[kind](tf, y), name=kind.replace(" ", "_"))

    return build(body, ["x"], [kind.replace(" ", "_") for kind in kinds])


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", OUTPUTS)
def test_what_could_not_differ_is_not_verified(kind):
    for data in (None, {"x": random(6, 3)}):
        same = verify(times(1, kind), times(1, kind), data=data)
        other = verify(times(1, kind), times(7, kind), data=data)
        assert not other.passed
        assert (same.verified, same.passed) == ((kind in PROVE),) * 2, same
        if kind in PROVE:
            assert other.differs
            assert same.compared >= same.distinct >= 2
        else:
            assert not other.verified
            assert "the reference gives" in other.reason == same.reason


@pytest.mark.usefixtures("in_process")
def test_outputs_count_together():
    silent = sorted(set(OUTPUTS) - PROVE - {"zero", "constant"})
    assert not verify(times(1, *silent[:2]), times(1, *silent[:2])).verified
    for kinds in (("values", "nan"), ("nan", "values"), ("zero", "constant")):
        found = verify(times(1, *kinds), times(1, *kinds))
        assert found.passed, found


@pytest.mark.usefixtures("in_process")
def test_one_value_of_one_sample_is_not_enough():
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.reduce_sum(x, 1, name="out")

    graph = build(body, ["x"], ["out"])
    assert not verify(graph, graph, data={"x": random(1, 3)}).verified
    assert verify(graph, graph, data={"x": random(2, 3)}).verified
    assert verify(graph, graph).verified


@pytest.mark.usefixtures("in_process")
def test_what_changes_from_run_to_run_cannot_be_compared():
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.add(x, tf.random.uniform([3]), name="out")

    found = verify(build(body, ["x"], ["out"]), build(body, ["x"], ["out"]))
    assert (found.verified, found.passed) == (False, False)
    assert "other values each time" in found.reason


def dies(when: bool) -> Graph:
    """Return x + 1; with `when`, TensorFlow's process ends where it runs."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        end = [tf.raw_ops.Abort(error_msg="now")] if when else []
        with tf.control_dependencies(end):
            tf.add(x, 1, name="out")

    return build(body, ["x"], ["out"])


def test_it_is_said_on_which_of_the_two_tensorflow_died():
    found = verify(dies(False), dies(True))
    assert found.differs
    assert "died" in found.reason
    found = verify(dies(True), dies(False))
    assert (found.verified, found.passed) == (False, False)
    assert "died" in found.not_possible
    with pytest.raises(CrashError):
        verify(dies(True), dies(True), data={"x": random(4, 3)})
