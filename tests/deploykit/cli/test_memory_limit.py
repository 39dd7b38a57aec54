"""--memory-limit counts the memory that a model holds, and not what its engine reserves."""

import numpy as np
import pytest

from tests.support import shows

# A reused child would still hold memory of an earlier test.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("new_children")]
PART = (128 << 20) // 4  # numbers


def graph_of(parts, reserved):
    """Return a graph that fills parts of 128 MiB and reserves others, all at the same time."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 16), name="x")
        layer = tf.nn.relu(
            x @ tf.constant(np.random.default_rng(0).normal(size=(16, 16)), tf.float32)
        )
        mean = tf.reduce_mean(layer)
        zero = tf.cast(mean, tf.int32) * 0
        filled = [tf.broadcast_to(mean + i, (PART,)) for i in range(parts)]
        empty = [tf.raw_ops.Empty(shape=[PART + zero], dtype=tf.float32) for _ in range(reserved)]
        with tf.control_dependencies(filled + empty):  # so all of them exist at the same time
            first = tf.concat([part[:1] for part in (*filled, *empty)], 0)
            mean = tf.reduce_mean(tf.add_n(filled))
        tf.add(layer + mean, tf.cast(tf.size(first) * 0, tf.float32), name="y")
    return graph.as_graph_def().SerializeToString()


COMMANDS = {
    "freeze": ("freeze", "m.pb", "-o", "frozen.pb"),
    "optimize": ("optimize", "m.pb", "-o", "optimized.pb"),
    "benchmark": ("benchmark", "m.pb", "--runs=3", "--shape=x=1,16"),
    "quantize": ("quantize", "m.pb", "--calibration=data.npz", "-o", "int8.pb", "--allow-float"),
}


@pytest.fixture
def limited(tmp_path, monkeypatch, deploykit):
    """Run a command under a limit of 4000 MiB on a graph of some parts, with samples beside it."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=np.random.default_rng(1).normal(size=(8, 16)).astype("f4"))

    def run(command, parts, reserved):
        (tmp_path / "m.pb").write_bytes(graph_of(parts, reserved))
        return deploykit(*command, "--memory-limit=4000")

    return run


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_model_that_needs_more_than_the_limit(command, tmp_path, limited):
    outcome = limited(command, parts=40, reserved=0)
    assert outcome.status == 6
    assert shows(outcome.stderr, "child-memory-limit", size="3.91 GiB")
    assert {path.name for path in tmp_path.iterdir()} == {"m.pb", "data.npz"}


@pytest.mark.sampled
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_model_that_reserves_more_than_the_limit(command, limited):
    outcome = limited(command, parts=1, reserved=72)
    assert outcome.status == 0, outcome.stderr
