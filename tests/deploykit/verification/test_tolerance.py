"""The bar follows the type that a graph computes in: right folds pass it, broken ones do not."""

import itertools

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from deploykit.verification.tolerance import computing_type, default_tolerance
from tests import pairwise
from tests.support import build, building, run, tf, transform

STEPS = "fold_constants fold_batch_norms"
CHANNELS = 16
ULPS = {"bfloat16": 2**-7, "float16": 2**-10, "float32": 2**-23, "float64": 2**-52}


class Net:
    """Convolutions with batch norms; what is `broken` is so in the layer in the middle."""

    def __init__(self, dtype: str, kind: str, depth: int, broken: str = ""):
        self.type, self.kind, self.depth, self.broken = tf.as_dtype(dtype), kind, depth, broken
        self.random = np.random.default_rng([depth, 7])

    def weights(self, *shape):
        scale = np.sqrt(2 / np.prod(shape[:-1] if shape[3:] != (1,) else shape[:2]))
        return self.random.normal(0, scale, shape).astype(self.type.as_numpy_dtype)

    def norm(self, y, layer):
        random, epsilon = self.random, 1e-3
        gamma, beta = random.uniform(0.5, 1.5, CHANNELS), random.normal(0, 0.2, CHANNELS)
        mean, variance = random.normal(0, 0.2, CHANNELS), random.uniform(0.5, 1.5, CHANNELS)
        if "epsilon" in self.kind:
            variance[3] = 2e-3
        if layer == self.depth // 2:
            if self.broken == "bias":
                beta[np.argmax(abs(beta))] = 0
            elif self.broken == "order":
                gamma[[0, 1]], beta[[0, 1]] = gamma[[1, 0]], beta[[1, 0]]
            elif self.broken == "epsilon":
                epsilon = 1e-12
        parts = (gamma, beta, mean, variance)
        if self.type in (tf.float16, tf.bfloat16) and "ops" not in self.kind:
            scale, offset, mean, variance = (np.float32(part) for part in parts)
            return tf.raw_ops.FusedBatchNormV3(
                x=y, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=epsilon,
                is_training=False,
            )[0]  # fmt: skip
        scale = gamma / np.sqrt(variance + epsilon)
        return y * tf.constant(scale, self.type) + tf.constant(beta - mean * scale, self.type)

    def __call__(self):
        y = tf.compat.v1.placeholder(self.type, [None, 10, 10, 3], name="x")
        for layer in range(self.depth):
            if "mobile" in self.kind and layer % 2:
                weights = self.weights(3, 3, CHANNELS, 1)
                z = tf.nn.depthwise_conv2d(y, weights, [1, 1, 1, 1], "SAME")
            else:
                weights = self.weights(3, 3, y.shape[3], CHANNELS)
                z = tf.nn.conv2d(y, weights, 1, "SAME")
            z = tf.nn.relu(self.norm(z, layer))
            y = (z + y) * 0.7 if "residual" in self.kind and layer else z
        y = tf.reduce_mean(y, [1, 2])
        tf.matmul(y, self.weights(CHANNELS, 10), name="out")


def net(*what) -> Graph:
    return build(Net(*what), ["x"], ["out"])


def error(dtype, kind, depth, broken="") -> float:
    """Return the error of a folded net, which may be broken, over the bar."""
    graph = net(dtype, kind, depth)
    folded = transform(net(dtype, kind, depth, broken), STEPS)
    assert not any(node.op.startswith("FusedBatchNorm") for node in folded)
    x = np.random.default_rng(0).uniform(-1, 1, (4, 10, 10, 3))
    feeds = {"x": x.astype(tf.as_dtype(dtype).as_numpy_dtype)}
    (found,) = compare(run(graph, feeds), run(folded, feeds))
    return max(found.max_relative_error, found.rms_relative_error) / default_tolerance(graph)


NETS = list(
    itertools.product(
        ("float16", "bfloat16", "float64"),
        ("chain", "chain ops", "residual", "mobile ops"),
        (1, 5, 20),
    )
)


@pytest.mark.sampled
@pytest.mark.parametrize(("dtype", "kind", "depth"), pairwise.drawn(__name__, NETS, 6, quick=14))
def test_right_folds_pass_with_room(dtype, kind, depth):
    assert 0 < error(dtype, kind, depth) < 0.6


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("dtype", "depths"), [("float16", (1, 5)), ("bfloat16", (1,)), ("float64", (1, 5, 20))]
)
@pytest.mark.parametrize(
    ("kind", "broken"),
    [("chain ops", "bias"), ("chain", "order"), ("residual", "order"), ("epsilon", "epsilon")],
)
def test_broken_folds_fail(dtype, depths, kind, broken):
    for depth in depths:
        assert error(dtype, kind, depth, broken) > 1.2, depth


@pytest.mark.sampled
def test_bars():
    for dtype, expected in (
        ("float16", 6 * 2**-10), ("bfloat16", 6 * 2**-7), ("float32", 9e-6),
        ("float64", 9e-6 * 2**-29),
    ):  # fmt: skip
        assert default_tolerance(net(dtype, "chain", 3)) == pytest.approx(expected), dtype
    assert default_tolerance(net("float16", "chain", 40)) == 16 * 2**-10
    assert default_tolerance(net("float32", "chain", 120)) == pytest.approx(1e-4)


def typed(make, inputs=("x",)) -> str:
    with building(inputs, ["out"]) as graph:
        tf.identity(make(tf), name="out")
    return computing_type(graph)


def given(tf, dtype="float32", shape=(None, 3)):
    return tf.compat.v1.placeholder(tf.as_dtype(dtype), shape, name="x")


HALF = np.ones((3, 3), np.float16)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda tf: tf.nn.relu(given(tf)), "float32"),
        (lambda tf: tf.matmul(given(tf), tf.cast(HALF, tf.float32)), "float32"),  # stored in half
        (lambda tf: tf.matmul(tf.cast(given(tf), tf.float16), HALF), "float16"),
        (lambda tf: tf.cast(tf.matmul(tf.cast(given(tf), tf.float16),
                                      tf.cast(np.float32(HALF), tf.float16)), tf.float32),
         "float16"),  # mixed precision: weights and answers are in float32
        (lambda tf: tf.exp(tf.cast(tf.reshape(given(tf, "float16"), [-1]), tf.float32)), "float32"),
        (lambda tf: tf.cast(tf.cast(given(tf), tf.bfloat16), tf.float32) + 1.0, "bfloat16"),
        (lambda tf: tf.cast(tf.exp(tf.cast(given(tf), tf.bfloat16)), tf.float16) * 2, "bfloat16"),
        (lambda tf: tf.exp(given(tf, "float64")), "float64"),
        (lambda tf: tf.cast(tf.exp(given(tf, "float64")), tf.float32), "float32"),
        (lambda tf: tf.cast(tf.gather(HALF, given(tf, "int32", [None])), tf.float32) * 2,
         "float32"),
        (lambda tf: given(tf, "int32") + 1, "float32"),
        (lambda tf: tf.exp(given(tf, "complex128")), "float64"),
    ],
)  # fmt: skip
def test_the_type_in_which_a_graph_computes(make, expected):
    assert typed(make) == expected


def test_what_no_output_needs_does_not_count():
    def make(tf):
        x = given(tf)
        tf.exp(tf.cast(x, tf.float16))
        return x * 2.0

    assert typed(make) == "float32"


def test_a_function_that_computes_in_half():
    def make(tf):
        @tf.function
        def inner(x):
            return tf.cast(tf.exp(tf.cast(x, tf.float16)), tf.float32)

        return inner(given(tf))

    assert typed(make) == "float16"
