"""Channels of a layer norm become alike where everything that reads them takes that back."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, building, error, ops, random, says, tf, transform
from tests.transforms.examples import Example
from tests.transforms.int8_nets import ranges_of

C = 8
BAR = 1e-6 * 15  # 1e-6 * (5 + depth): a norm of five steps, a product, a bias, a sum, a norm
WIDE = np.where(np.arange(C) == 3, 20, 1).astype(np.float32)  # the scale: one large channel


def norm(x, name, scale=WIDE):
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    offset = random(C, seed=2, low=1, high=3)
    return tf.identity(tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-6), name)


def dense(x, name, channels=C, seed=3):
    """Return rows of a product with a bias, in the shape of what it reads."""
    rows = tf.reshape(x, [-1, C])
    y = tf.raw_ops.MatMul(a=rows, b=random(C, channels, seed=seed), name=name)
    y = tf.nn.bias_add(y, random(channels, seed=seed + 1), name=f"{name}/biased")
    return tf.reshape(y, [-1, 3, channels])


def net(make, shape=(None, 3, C)) -> Graph:
    with building(["x"], ["out"]) as whole:
        x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        tf.identity(make(tf, tf.abs(x)), name="out")
    graph = transform(whole, "remove_nodes(op=Identity, op=StopGradient)")
    graph.prune()
    return graph


def post_norm(tf, x):
    y = norm(x, "first")
    return norm(y + dense(y, "dense"), "second", np.ones(C, np.float32))


def post_norm_around_two(tf, x):
    """A feed-forward part: the sum's product reads something else than the layer norm."""
    y = norm(x, "first")
    return dense(tf.nn.relu(dense(y, "inner")), "output", seed=5) + y


def pre_norm(tf, x):
    y = norm(x, "first")
    return x + tf.nn.relu(dense(y, "query")) * dense(y, "key", seed=5)


READ = {"post-norm": post_norm_around_two, "pre-norm": pre_norm}
OTHERS = {
    "not linear": lambda tf, x: dense(y := norm(x, "first"), "dense") + tf.nn.relu(y),
    "of itself": lambda tf, x: dense(y := norm(x, "first"), "dense") + y,
    "output": lambda tf, x: norm(x, "first"),
    "no bias in the sum": lambda tf, x: (
        dense(y := norm(x, "first"), "dense") * dense(y, "b") + y + x
    ),
    "sum of norms": lambda tf, x: dense(y := norm(x, "first"), "dense") * (y + norm(x * 2, "b")),
}


def feeds(batch: int = 4) -> dict[str, np.ndarray]:
    return {"x": random(batch, 3, C, seed=9, low=-2, high=2)}


def balanced(graph: Graph, folder, exponent: float = 0.75):
    """Return the step that balances a graph by its own ranges."""
    path = folder / "ranges.json"
    path.write_text(ranges_of(graph, [feeds(16)]).text())
    text = f'balance_layer_norms(ranges="{path}", exponent={exponent})'
    (step,) = pipeline.run(graph, pipeline.parse(text))
    return step


def norms(graph: Graph) -> int:
    return sum(node.op == "AddV2" and node.name.endswith("_balanced") for node in graph)


@pytest.mark.parametrize("make", READ.values(), ids=READ)
@pytest.mark.parametrize("exponent", [0, 0.75, 1])
def test_the_numbers_stay_and_the_ranges_become_alike(make, exponent, tmp_path):
    graph = net(make)
    step = balanced(graph, tmp_path, exponent)
    assert norms(step.graph) == 1
    for batch in (1, 4):
        assert error(graph, step.graph, feeds(batch)) <= BAR
    muls = ops(step.graph)["Mul"] - ops(graph)["Mul"]
    assert muls == (make is post_norm_around_two and exponent > 0)
    found = ranges_of(step.graph, [feeds(16)]).tensors
    (name,) = [n.name for n in step.graph if n.op == "AddV2" and n.name.endswith("_balanced")]
    low, high = np.array(found[name].channel_min), np.array(found[name].channel_max)
    assert np.abs(low + high).max() <= 1e-5 * (high - low).max()
    if exponent == 1:
        assert np.ptp(high) <= 1e-5 * high.max()


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_readers_leave_it_alone(make, tmp_path):
    graph = net(make)
    step = balanced(graph, tmp_path)
    assert str(step.graph) == str(graph)
    assert step.skipped


def test_a_small_gain_is_not_worth_a_mul(tmp_path):
    def even(tf, x):
        y = norm(x, "first", np.ones(C, np.float32))
        return dense(tf.nn.relu(dense(y, "inner")), "output", seed=5) + y

    graph = net(even)
    step = balanced(graph, tmp_path)
    assert norms(step.graph) == 1
    assert ops(step.graph) == ops(graph)
    assert error(graph, step.graph, feeds()) <= BAR


def test_ranges_without_channels_leave_it_alone(tmp_path):
    graph, path = net(pre_norm), tmp_path / "ranges.json"
    path.write_text(Ranges("", 1, {"x": TensorRange(0, 1)}).text())
    assert str(transform(graph, f'balance_layer_norms(ranges="{path}")')) == str(graph)


def test_a_wrong_exponent_is_refused(tmp_path):
    with pytest.raises(
        GraphError, match=says("out-of-range", name="exponent", expected="between 0 and 1", got=2.0)
    ):
        balanced(net(pre_norm), tmp_path, 2)


@pytest.mark.golden("balance_layer_norms/pre_norm")
def test_golden(tmp_path):
    graph = net(pre_norm)
    assert_golden(graph, balanced(graph, tmp_path).graph)


GRAPHS = [Example("balance_layer_norms(ranges={ranges})", lambda: net(pre_norm), bar=BAR)]
