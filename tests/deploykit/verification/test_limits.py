"""Runs on synthetic inputs end: in time, and before a tensor is too large."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.child_process import ResourceLimits
from deploykit.verification import running
from deploykit.verification.verify import verify
from tests.support import building, built, raises, tf


@built(["x"], ["y"])
def loop(count: int):
    """Return a graph that runs a loop so many times."""
    tf.compat.v1.enable_control_flow_v2()
    x = tf.compat.v1.placeholder(tf.float32, [1], "x")
    y = tf.while_loop(lambda i, a: i < count, lambda i, a: (i + (count < 100), a * 0.5 + 1), [0, x])
    tf.identity(y[1], name="y")


@pytest.mark.sampled
def test_a_loop_without_end_on_synthetic_inputs():
    with (
        ResourceLimits(internal_seconds=2),
        raises(LimitError, "child-internal-timeout", seconds=2),
    ):
        verify(loop(1000), loop(1000))


@pytest.mark.slow
def test_a_loop_that_ends_and_samples_of_the_user_have_no_such_bound():
    assert verify(loop(10), loop(10)).passed
    with (
        ResourceLimits(seconds=4, internal_seconds=1),
        pytest.raises(LimitError, match=r"within 4 sec"),
    ):
        verify(loop(1000), loop(1000), data={"x": np.ones((1, 1), np.float32)[0]})


@pytest.mark.usefixtures("in_process")
def test_a_tensor_that_is_too_large(monkeypatch):
    monkeypatch.setattr(running, "MAX_BYTES", 1000)

    with building(["x"], ["y"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 10], "x")
        tf.tile(x, [1, 100], name="y")
    with raises(LimitError, "tensor-too-large", node="y", type="Tile", most="1000 bytes"):
        verify(graph, graph)
    assert verify(graph, graph, data={"x": np.ones((1, 10), np.float32)}).compared == 1000
