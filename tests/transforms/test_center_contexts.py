"""Attention's result is centered where its weights sum to 1 and a product reads it."""

import numpy as np
import pytest

from deploykit.transforms.int8.int8_kernels import flags
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, building, error, ops, random, tf
from tests.transforms.examples import Example
from tests.transforms.int8_nets import ranges_of

TOKENS, HEADS, DEPTH = 5, 2, 3
C = HEADS * DEPTH
BAR = 1e-6 * 15  # 1e-6 * (5 + depth): two products, Softmax, the mean, a product and biases


def heads(tf, x, name, order=(0, 2, 1, 3), seed=1, low=1.0):
    y = tf.matmul(x, random(C, C, seed=seed))
    y = tf.nn.bias_add(y, random(C, seed=seed, low=low, high=low + 2), name=name)
    return tf.transpose(tf.reshape(y, [-1, TOKENS, HEADS, DEPTH]), order)


def weights(tf, x):
    query, key = (heads(tf, x, name, seed=seed) for name, seed in (("query", 2), ("key", 3)))
    return tf.matmul(query, key, transpose_b=True)


def batched(tf, x, mixed=lambda tf, w, v: tf.matmul(w, v), order=(0, 2, 1, 3)):
    w = tf.nn.softmax(weights(tf, x))
    y = tf.transpose(mixed(tf, w, heads(tf, x, "value", order)), [0, 2, 1, 3])
    return tf.matmul(tf.reshape(y, [-1, C]), random(C, 4, seed=4), name="product")


def turned(tf, x):
    """The values come first: [depth, tokens] x [tokens, tokens]."""
    w = tf.nn.softmax(weights(tf, x))
    v = heads(tf, x, "value", (0, 2, 3, 1))
    y = tf.transpose(tf.matmul(v, w, transpose_b=True), [0, 3, 1, 2])
    return tf.matmul(tf.reshape(y, [-1, C]), random(C, 4, seed=4), name="product")


def einsum(tf, x, equation="acbe,aecd->abcd"):
    """As Keras has it: axes of the weights are [batch, heads, tokens, tokens]."""
    w = tf.nn.softmax(weights(tf, x))
    y = tf.einsum("acbe,aecd->abcd", w, heads(tf, x, "value", (0, 1, 2, 3)))
    return tf.matmul(tf.reshape(y, [-1, C]), random(C, 4, seed=4), name="product")


def per_head(tf, x):
    """The bias has an axis for the heads."""
    w = tf.nn.softmax(weights(tf, x))
    v = tf.reshape(tf.matmul(x, random(C, C, seed=8)), [-1, TOKENS, HEADS, DEPTH])
    v = tf.transpose(v, [0, 2, 1, 3]) + random(HEADS, 1, DEPTH, seed=9, low=1, high=3)
    y = tf.transpose(tf.matmul(w, v), [0, 2, 1, 3])
    return tf.matmul(tf.reshape(y, [-1, C]), random(C, 4, seed=4), name="product")


FOUND = {
    "batched": batched,
    "values transposed": lambda tf, x: batched(
        tf, x, lambda tf, w, v: tf.matmul(w, v, transpose_b=True), (0, 2, 3, 1)
    ),
    "values first": turned,
    "Einsum": einsum,
    "bias of heads": per_head,
}
OTHERS = {
    "no Softmax": lambda tf, x: batched(tf, x, lambda tf, w, v: tf.matmul(tf.nn.relu(w), v)),
    "sums along the other axis": lambda tf, x: batched(
        tf, x, lambda tf, w, v: tf.matmul(w, v, transpose_a=True)
    ),
    "not linear": lambda tf, x: batched(tf, x, lambda tf, w, v: tf.nn.relu(tf.matmul(w, v))),
    "values activated": lambda tf, x: batched(tf, x, lambda tf, w, v: tf.matmul(w, tf.nn.relu(v))),
    "a head mixed in": lambda tf, x: batched(
        tf,
        x,
        lambda tf, w, v: tf.matmul(w, tf.reshape(v, [-1, HEADS, TOKENS, DEPTH])),
        (0, 1, 3, 2),
    ),
}


def net(make) -> Graph:
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, TOKENS, C], name="x")
        y = make(tf, tf.reshape(tf.abs(x), [-1, C]))
        tf.abs(tf.nn.bias_add(y, random(4, seed=5)), name="out")
    graph.prune()
    return graph


def feeds(batch: int = 4) -> dict[str, np.ndarray]:
    return {"x": random(batch, TOKENS, C, seed=9, low=-2, high=2)}


def centered(graph: Graph, folder):
    path = folder / "ranges.json"
    path.write_text(ranges_of(graph, [feeds(16)]).text())
    (step,) = pipeline.run(graph, pipeline.parse(f'center_contexts(ranges="{path}")'))
    return step


@pytest.mark.parametrize("make", FOUND.values(), ids=FOUND)
def test_contexts_are_centered_and_the_numbers_stay(make, tmp_path):
    graph = net(make)
    result = centered(graph, tmp_path).graph
    assert ops(result) == ops(graph)
    for batch in (1, 4):
        assert error(graph, result, feeds(batch)) <= BAR
    read = result["product"].data_inputs[0]
    assert read.endswith("_centered")
    found = ranges_of(result, [feeds(16)]).tensors[read]
    low, high = np.array(found.channel_min), np.array(found.channel_max)
    assert np.abs(low + high).max() <= 1e-5 * high.max()


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_are_left_alone(make, tmp_path):
    graph = net(make)
    step = centered(graph, tmp_path)
    assert str(step.graph) == str(graph)
    assert len(step.skipped) == 1


@pytest.mark.skipif("avx512f" not in flags(), reason="this CPU rounds sums in another order")
@pytest.mark.golden("center_contexts/batched")
def test_golden(tmp_path):
    graph = net(batched)
    assert_golden(graph, centered(graph, tmp_path).graph)


GRAPHS = [Example("center_contexts(ranges={ranges})", lambda: net(batched), bar=BAR)]
