"""Random fake-quants: their values are the kernels', and layers run in int8 with their codes."""

import numpy as np
import pytest

from deploykit.pipelines.int8 import read_fake_quants, stated_codes_graph, stated_int8_graph
from deploykit.transforms.int8.fake_quants import OPS, take_weights
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from tests.int8_cpus import needs_exact_sums
from tests.support import because, build, ops, random, run, shows, tf
from tests.transforms.fake_quant_nets import Block, C, image, layer, made, net, rounded

EXACT_DB, CLIPPED_DB = 60.0, 45.0
KINDS = ("conv", "strided", "depthwise", "matmul")
CHANNELS = 16


def ends_of(generator, kind: str, shape: tuple[int, ...]):
    """Return a range: symmetric, of any two ends about zero, or on one side of it."""
    low, high = -np.exp(2 * generator.normal(size=(2, *shape)))
    if kind == "symmetric":
        low, high = low, -low
    elif kind == "nudged":
        high = -high
    elif kind == "above":
        low, high = -low, -low - high
    return low.astype(np.float32), high.astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("op", sorted(OPS))
def test_values_are_those_of_the_kernel(op, bits):
    """A constant that is not the weights of a layer is folded, whatever its range is."""
    generator = np.random.default_rng(bits)
    shape = (CHANNELS,) if "PerChannel" in op else ()

    def make():
        x = tf.compat.v1.placeholder(tf.float32, (), name="x")
        kinds = ("symmetric", "nudged", "above")
        for place, kind in enumerate(np.repeat(kinds, 20)):
            low, high = ends_of(generator, kind, shape)
            step = (high - low) / np.float32(2**bits - 1)
            halves = generator.integers(-(2**bits), 2**bits, (60, CHANNELS)).astype(np.float32) / 2
            values = np.concatenate([halves * step, np.stack(2 * [low, high]).reshape(4, -1)
                                     * np.ones((4, CHANNELS), np.float32)])  # fmt: skip
            is_narrow, is_args = bool(place % 2), op.endswith("Args")
            ends = (float(low), float(high)) if is_args else (low, high)
            result = rounded(values, *ends, f"fake_quant{place}", is_narrow, bits, is_args)
            tf.add(result, x, name=f"out{place}")

    graph = build(make, ("x",), [f"out{place}" for place in range(60)])
    folded = graph.copy()
    assert not take_weights(folded).codes
    assert not OPS & set(ops(folded))
    feed = {"x": np.float32(0)}
    for expected, found in zip(run(graph, feed), run(folded, feed), strict=True):
        np.testing.assert_array_equal(expected, found)


def random_layer(kind: str, per_channel: bool, narrow: bool, seed: int) -> tuple[Graph, bool]:
    """Return a layer between fake-quants, and whether its weights may have a code of 128.

    The range of its weights is symmetric, as wide as theirs or less, or it has a code of -128.
    """
    generator = np.random.default_rng([seed, KINDS.index(kind), per_channel, narrow])
    shape = {"matmul": (CHANNELS, 24), "depthwise": (3, 3, CHANNELS, 1)}.get(
        kind, (3, 3, CHANNELS, 24)
    )
    weights = generator.normal(size=shape) * 2 / np.sqrt(np.prod(shape[:-1]))
    if kind == "depthwise":  # a fake-quant per channel needs the output channels last
        weights = weights.reshape(9, CHANNELS)
    peak = np.abs(weights).max(tuple(range(weights.ndim - 1)) if per_channel else None)
    peak = (peak * (1, 0.7, 1)[seed % 3]).astype(np.float32)
    low = -peak * np.float32(128 / 127 if seed % 3 == 2 else 1)
    block = Block(kind, norm=("behind", "")[seed % 2], activation=("relu", "relu6", "")[seed % 3])

    def make():
        x = tf.compat.v1.placeholder(tf.float32, (None, 7, 6, CHANNELS), name="x")
        y = rounded(x, -generator.uniform(0, 1), 1, "x/rounded", bool(seed % 2))
        y = tf.reshape(y, [-1, CHANNELS]) if kind == "matmul" else y
        read = rounded(weights.astype(np.float32), low, peak, "weights", narrow)
        y = layer(y, block, "layer", seed, 24, tf.reshape(read, shape))
        rounded(y, 0 if block.activation else -2.5, generator.uniform(2, 4), "out")

    return net(make), not narrow


@needs_exact_sums
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_runs_in_int8_with_the_numbers_of_its_fake_quants(kind, per_channel, narrow, seed):
    graph, may_clip = random_layer(kind, per_channel, narrow, seed)
    stated = read_fake_quants(graph)
    assert stated.plan().reasons == {}
    feed = {"x": random(32, 7, 6, CHANNELS, seed=seed, low=-1.2, high=1.2)}
    expected = run(graph, feed)
    assert compare(expected, run(stated.graph, feed))[0].sqnr_db > EXACT_DB  # nothing is clipped
    for int8 in (stated_codes_graph(stated), stated_int8_graph(stated)):
        found = compare(expected, run(int8, feed))[0]
        assert found.sqnr_db >= (CLIPPED_DB if may_clip else EXACT_DB)


def test_only_a_code_of_128_is_clipped_and_by_one_step():
    """In each channel, the range of weights is symmetric, and its zero point is 127 or 128."""
    peaks = random(200, seed=1, low=0.1)
    weights = np.stack([peaks, -peaks, peaks / 3])

    def make():
        x = tf.compat.v1.placeholder(tf.float32, (None, 3), name="x")
        tf.matmul(x, rounded(weights, -peaks, peaks, "weights"), name="out")

    graph = build(make, ("x",), ("out",))
    stated = read_fake_quants(graph)
    codes, steps = stated.weights["out"]
    exact = run(graph, {"x": np.eye(3, dtype=np.float32)})[0] / steps
    clipped = np.rint(exact) - codes
    assert set(np.unique(clipped)) == {0, 1}
    assert (np.rint(exact)[clipped == 1] == 128).all()
    assert 0.05 < clipped.any(0).mean() < 0.5  # of the channels
    assert codes.min() == -128


def many_clipped(case: str) -> tuple[Graph, int]:
    """Return a layer whose weights have codes of 128, and their number."""
    weights = np.random.default_rng(1).normal(size=(3, 3, C, 16)).astype(np.float32)
    peaks = np.abs(weights).max((0, 1, 2))
    step, gamma = np.float32(peaks.max() / 128), np.ones(16, np.float32)
    low, high = {
        "a tenth of the peak": (-peaks / 10, peaks / 10),
        "up to 128": (-127 * step, 128 * step),
        "down to -128": (-peaks / 10 * 128 / 127, peaks / 10),
    }[case]
    if case == "down to -128":
        gamma = -gamma

    def make():
        y = tf.nn.conv2d(image(), rounded(weights, low, high, "weights"), 1, "SAME")
        spread = 4 * np.sqrt(np.square(np.clip(weights, low, high)).sum((0, 1, 2)).max() / 3)
        rounded(tf.multiply(y, gamma, name="layer"), -spread, spread, "out")

    graph, reader = net(make), build(lambda: rounded(weights, low, high, "out"), (), ("out",))
    steps = (high - low) / np.float32(255)
    return graph, int(np.sum(np.rint(run(reader, {})[0] * gamma / steps) == 128))


@needs_exact_sums
@pytest.mark.parametrize(
    ("case", "is_int8"),
    [("a tenth of the peak", False), ("up to 128", True), ("down to -128", False)],
)
def test_many_clipped_codes_keep_a_layer_in_float32_and_few_are_counted(case, is_int8):
    graph, count = many_clipped(case)
    stated = read_fake_quants(graph)
    reasons = stated.plan().reasons
    assert count
    if is_int8:
        assert (reasons, list(stated.clipped.values())) == ({}, [count])
    else:
        (reason,) = reasons.values()
        assert shows(reason, "fake-quant-saturates", most=127)
        assert not stated.clipped
    feed = {"x": random(8, 10, 8, C)}
    expected = run(graph, feed)
    for other in (stated_codes_graph(stated), stated_int8_graph(stated)):
        found = compare(expected, run(other, feed))[0]
        assert found.sqnr_db >= (CLIPPED_DB if is_int8 else EXACT_DB)


@pytest.mark.parametrize("seed", range(20))
def test_a_range_up_to_the_peak_never_keeps_a_layer_in_float32(seed):
    """Only the peak of a channel can have a code of 128, in whatever share of the channels."""
    weights = random(3, 3, 64, 1, seed=seed).reshape(9, 64)
    peaks = np.abs(weights).max(0)

    def make():
        x = tf.compat.v1.placeholder(tf.float32, (None, 7, 6, 64), name="x")
        y = tf.reshape(rounded(weights, -peaks, peaks, "weights"), (3, 3, 64, 1))
        tf.nn.depthwise_conv2d(x, y, [1, 1, 1, 1], "SAME", name="out")

    stated = read_fake_quants(net(make))
    assert sum(stated.clipped.values()) <= 64
    assert len(stated.weights) == 1


def summed_axis():
    """A range for each input channel: no kernel can multiply these after the sum."""
    peaks = np.linspace(0.5, 1, C)
    transposed = rounded(random(3, 3, C, C), -peaks, peaks, "per_input", True)
    weights = tf.transpose(transposed, [0, 1, 3, 2])
    made(image(), Block(activation=""), "out", weights=weights)


def masked():
    """Pruned weights: a mask behind the fake-quant leaves multiples of its steps."""
    weights = rounded(random(3, 3, C, C), -1.0, 1.0, "weights", True)
    made(image(), Block(activation=""), "out", weights=weights * np.float32(random(3, 3, C, C) > 0))


def shifted(per_channel: bool):
    def make():
        peak = np.linspace(0.5, 1, C) if per_channel else 1.0
        weights = rounded(random(3, 3, C, C), -peak, peak, "weights", True)
        made(image(), Block(activation=""), "out", weights=weights + 0.3)

    return make


def rounded_bias(bits: int):
    def make():
        weights = rounded(random(3, 3, C, C), -1.0, 1.0, "weights", True)
        y = tf.nn.conv2d(image(), weights, 1, "SAME", name="layer")
        bias = rounded(random(C, low=0.2), 0.1, 1.3, "bias", bits=bits)
        rounded(tf.nn.relu(tf.nn.bias_add(y, bias)), 0.0, 3.0, "out")

    return make


def beyond():
    weights = rounded(random(3, 3, C, C), -0.5, 0.49, "weights")
    made(image(), Block(activation=""), "out", weights=weights)


def product_of_activations():
    """Weights of four bits in front of a product whose second factor is no weights."""
    y = tf.reshape(image(), [-1, C])
    y = tf.matmul(y, rounded(random(C, C), -1.0, 1.0, "weights", bits=4), name="first")
    tf.matmul(y, y, transpose_b=True, name="out")


REASONS = {
    "summed axis": (
        summed_axis,
        {"out": because("fake-quant-several-steps", fake_quant="per_input")},
    ),
    "masked": (masked, {}),
    **{
        f"shifted, per channel: {per_channel}": (
            shifted(per_channel),
            {"out": because("fake-quant-no-multiples", fake_quant="weights")},
        )
        for per_channel in (True, False)
    },
    "bias of 4 bits": (rounded_bias(4), {}),
    "bias of 8 bits": (rounded_bias(8), {}),
    "bias of 16 bits": (rounded_bias(16), {}),
    "beyond": (
        beyond,
        {"out": because("fake-quant-codes", fake_quant="weights", min=-129, max=126)},
    ),
}


@needs_exact_sums
@pytest.mark.parametrize("case", REASONS)
def test_what_stays_float_is_named(case):
    make, reasons = REASONS[case]
    graph = net(make, ("out" if "bias" in case else "out/out",))
    stated = read_fake_quants(graph)
    assert stated.plan().reasons == reasons
    feed = {"x": random(8, 10, 8, C)}
    expected = run(graph, feed)
    for other in (stated_codes_graph(stated), stated_int8_graph(stated)):
        assert compare(expected, run(other, feed))[0].sqnr_db >= EXACT_DB


def test_a_product_of_activations_is_not_refused_for_the_weights_before_it():
    reasons = read_fake_quants(net(product_of_activations)).plan().reasons
    assert reasons["first"] == because("fake-quant-bits", fake_quant="weights", got=4, expected=8)
    assert "'weights'" not in reasons["out"]
