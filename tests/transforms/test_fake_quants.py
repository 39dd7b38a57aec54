"""Int8 from the scales that fake-quants state: all layers, and the numbers of the fake-quants."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from deploykit.pipelines.int8 import (
    has_fake_quants,
    onednn_graph,
    read_fake_quants,
    stated_codes_graph,
    stated_int8_graph,
)
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.stored_codes import holds_codes
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.transforms.runtime.differences import compare
from tests.int8_cpus import needs_exact_sums
from tests.support import because, ops, random, run, tf
from tests.transforms.fake_quant_nets import (
    Block,
    C,
    feeds,
    image,
    layer,
    made,
    net,
    one_block,
    rounded,
    rounded_weights,
)

LEAST_DB = 40.0  # of the issue; a code that is rounded the other way here and there
FLIPPED = 2e-3  # of values: sums that end within a rounding of float32 between two codes

KINDS = ("conv", "strided", "depthwise", "matmul")
ACTIVATIONS = (("relu6", 0.0), ("relu6", -0.7), ("relu", 0.0), ("relu", -0.7), ("", -1.7))


def blocks():
    """Yield every kind of layer with every kind of weights, and with every activation."""
    for kind, per_channel, narrow, norm in product(
        KINDS, (True, False), (True, False), ("behind", "before", "")
    ):
        yield Block(kind, per_channel, narrow, norm)
    for kind, (activation, low), args in product(KINDS, ACTIVATIONS, (True, False)):
        yield Block(kind, activation=activation, low=low, args=args)


def named(block: Block) -> str:
    return "-".join(str(value) for value in vars(block).values())


def assert_stated(graph: Graph, layers: int, count: int = 32) -> Graph:
    """Compare both int8 forms of a graph with it, and both with each other; return the codes."""
    assert has_fake_quants(graph)
    stated = read_fake_quants(graph)
    plan = stated.plan()
    assert (len(plan.chains), plan.reasons) == (layers, {})
    codes, int8 = stated_codes_graph(stated), stated_int8_graph(stated)
    assert holds_codes(codes)
    assert sum(node.op in OPS.values() for node in int8) == layers
    assert not LAYER_OPS.keys() & set(ops(int8))
    feed = feeds(count)
    expected = run(graph, feed)
    again = onednn_graph(codes)
    assert {**ops(again), "Const": 0} == {**ops(int8), "Const": 0}
    for each in (stated.graph, codes, int8, again):
        found = run(each, feed)
        assert min(d.sqnr_db for d in compare(expected, found)) >= LEAST_DB
        step = np.diff(np.unique(np.concatenate([v.ravel() for v in expected]))).min(initial=1)
        for one, other in zip(expected, found, strict=True):
            assert np.mean(np.abs(one - other) > step / 2) <= FLIPPED * max(1, one.shape[-1] / 2)
    return codes


@needs_exact_sums
@pytest.mark.parametrize("block", list(blocks()), ids=named)
def test_every_block(block):
    assert_stated(one_block(block), 3)


def residual():
    """TF-MOT rounds both branches and the sum."""
    y = made(image(), Block(), "first", 1)
    linear = Block(activation="")
    one, two = (made(y, replace(linear, kind=kind), kind, 2) for kind in ("conv", "depthwise"))
    y = rounded(one + two, -2.3, 2.6, "sum")
    made(y, linear, "out", 3)


def residual_with_relu():
    y = made(image(), Block(), "first", 1)
    y = rounded(tf.nn.relu(made(y, Block(activation=""), "second", 2) + y), -0.2, 3.1, "sum")
    made(y, Block(activation=""), "out", 3)


def added_before_rounding():
    """As contrib.quantize and plain code do it: a kernel adds."""
    x = image()
    other = made(x, Block("depthwise"), "other", 1)
    y = layer(made(x, Block(), "first", 1), Block(activation=""), "second", 2) + other
    y = rounded(tf.nn.relu(y, name="relu"), 0.0, 2.8, "sum")
    made(y, Block(activation=""), "out", 3)


def joined():
    """TF-MOT rounds a concatenation, and not what it joins."""
    y = made(image(), Block(), "first", 1)
    parts = [layer(y, Block(kind=kind), f"{kind}/part", 2) for kind in ("conv", "depthwise")]
    y = rounded(tf.concat(parts, -1), -0.3, 2.2, "joined")
    made(y, Block(activation=""), "out", 3)


def joined_twice():
    y = made(image(), Block(), "first", 1)
    ends = {"conv": 1.1, "depthwise": 1.7}
    parts = [made(y, Block(kind), f"{kind}/part", 2, high=ends[kind]) for kind in ends]
    y = rounded(tf.concat(parts, -1), -0.3, 1.2, "joined")
    made(y, Block(activation=""), "out", 3)


def pooled():
    y = layer(image(), Block(), "first", 1)
    y = rounded(tf.nn.max_pool2d(y, 2, 2, "SAME"), 0.0, 1.7, "pooled")
    y = tf.nn.max_pool2d(made(y, Block(activation=""), "second", 2), 3, 1, "SAME")
    y = made(y, Block(), "third", 3)
    y = rounded(tf.nn.avg_pool2d(y, 2, 1, "SAME"), 0.0, 1.5, "mean")
    y = made(y, Block(), "fourth", 4)
    y = rounded(tf.reduce_mean(y, [1, 2]), 0.0, 1.2, "means")
    made(y, Block("matmul", per_channel=False, norm="", activation=""), "out", 5, 10)


def padded():
    """Padding of values whose zero has another code than 0."""
    around = [[0, 0], [1, 1], [1, 1], [0, 0]]
    y = made(tf.pad(image(), around), Block(), "first", 1)
    y = made(tf.pad(y, around), Block(activation=""), "second", 2)
    made(tf.pad(y, around), Block(activation=""), "out", 3)


def resized():
    y = made(image(), Block(), "first", 1)
    y = tf.raw_ops.ResizeNearestNeighbor(images=y, size=[13, 11], half_pixel_centers=True)
    y = made(y, Block(), "second", 2)
    y = tf.raw_ops.ResizeBilinear(images=y, size=[7, 9], half_pixel_centers=True)
    made(rounded(y, 0.0, 1.6, "resized"), Block(activation=""), "out", 3)


def shared():
    """Two layers with the same weights behind one fake-quant, one with a batch norm."""
    weights = rounded_weights(random(3, 3, C, C) / 3, Block(), "same")
    y = made(image(), Block(norm=""), "first", weights=weights)
    made(y, Block(activation=""), "out", weights=weights)


def moved_weights():
    """Weights that are moved behind their fake-quant, as a fake-quant per channel needs it."""
    matrix = rounded_weights(random(9, C) / 2, Block(), "depthwise")
    y = made(image(), Block("depthwise"), "first", weights=tf.reshape(matrix, [3, 3, C, 1]))
    turned = rounded_weights(random(C, 3, 3, C) / 3, Block(per_channel=False), "turned")
    weights = tf.transpose(turned, [1, 2, 0, 3])
    made(y, Block(activation=""), "out", weights=weights)


def products():
    y = tf.reshape(image(), [-1, C])
    y = made(y, Block("matmul", low=-0.4), "first", 1, 24)
    y = made(y, Block("matmul", activation=""), "second", 2, 16)
    y = rounded(tf.nn.relu(y), 0.0, 1.5, "relu")
    made(y, Block("matmul", activation=""), "out", 3, 10)


def in_functions():
    @tf.function
    def inner(y):
        return made(y, Block(), "first", 1)

    @tf.function
    def outer(y):
        return made(inner(y), Block(activation=""), "second", 2)

    tf.identity(outer(image()), name="out/out")


def narrow_activations():
    """255 levels: one code less is in use."""
    y = rounded(tf.tanh(image() * 2), -0.6, 0.5, "read", narrow=True)
    y = layer(y, Block(activation=""), "first", 1)
    y = rounded(y, -0.8, 0.9, "first/out", narrow=True)
    y = layer(y, Block("depthwise", activation=""), "second", 2)
    y = rounded(y, -0.8, 0.9, "second/out", narrow=True)
    made(y, Block(activation=""), "out", 3)


def between_two_codes():
    """A zero point of 42.5: the range is moved by half a step."""
    y = rounded(tf.tanh(image() * 2), -0.2, 1.0, "read")
    y = rounded(layer(y, Block(activation=""), "first", 1), -0.2, 1.0, "first/out")
    made(y, Block(activation=""), "out", 2)


def of_one_code():
    """A channel of weights that are all zero."""
    weights = random(3, 3, C, C) / 3
    weights[..., 0] = 0
    y = made(image(), Block(), "first", weights=rounded_weights(weights, Block(), "zeros"))
    made(y, Block(activation=""), "out", 2)


NETS = {
    residual: 4,
    residual_with_relu: 3,
    added_before_rounding: 4,
    joined: 4,
    joined_twice: 4,
    pooled: 5,
    padded: 3,
    resized: 3,
    shared: 2,
    moved_weights: 2,
    products: 3,
    in_functions: 2,
    narrow_activations: 3,
    between_two_codes: 2,
    of_one_code: 2,
}


@needs_exact_sums
@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_every_structure(make):
    assert_stated(net(make, ("out/out",)), NETS[make])


@needs_exact_sums
@pytest.mark.parametrize("make", NETS, ids=lambda make: make.__name__)
def test_every_structure_in_openvino(make):
    pytest.importorskip("openvino")
    from deploykit.transforms.engines.openvino_model import OpenVinoModel

    graph, feed = net(make, ("out/out",)), feeds()
    codes = stated_codes_graph(read_fake_quants(graph))
    model = OpenVinoModel(b"".join(codes.serialized()), {"x": "x"}, list(codes.outputs))
    assert min(d.sqnr_db for d in compare(run(graph, feed), model.run(feed))) >= LEAST_DB


def of_four_bits():
    y = made(image(), Block(), "first", 1)
    made(y, Block(bits=4, activation=""), "out", 2)


def without_zero():
    y = layer(image(), Block(), "first", 1)
    made(rounded(y, 0.5, 2.0, "first/out"), Block(activation=""), "out", 2)


def without_fake_quant():
    y = layer(image(), Block(), "first", 1)
    made(y, Block(activation=""), "out", 2)


def with_float_weights():
    y = made(image(), Block(), "first", 1, weights=random(3, 3, C, C) / 3)
    made(y, Block(activation=""), "out", 2)


def with_two_signs():
    """Weights of a range that is not symmetric, as tf.contrib.quantize left them."""
    weights = rounded(random(3, 3, C, C) / 3, -0.1, 0.34, "asymmetric")
    y = made(image(), Block(), "first", 1, weights=weights)
    made(y, Block(activation=""), "out", 2)


def with_a_range_per_channel():
    y = layer(image(), Block(), "first", 1)
    y = rounded(y, -np.ones(C), np.arange(1, C + 1), "first/out")
    made(y, Block(activation=""), "out", 2)


def with_a_fed_range():
    y = layer(image(), Block(), "first", 1)
    y = tf.raw_ops.FakeQuantWithMinMaxVars(inputs=y, min=0.0, max=tf.reduce_max(y), name="fed")
    made(y, Block(activation=""), "out", 2)


REASONS = {
    of_four_bits: {"out": because("fake-quant-bits", fake_quant="out/weights", got=4, expected=8)},
    without_zero: dict.fromkeys(
        ("first", "out"),
        because("fake-quant-lacks-zero", fake_quant="first/out", range="0.5 to 2"),
    ),
    without_fake_quant: {
        "first": because("no-fake-quant-after", tensor="first/activation"),
        "out": because("no-fake-quant-between", tensor="first/activation"),
    },
    with_float_weights: {"first": because("weights-without-fake-quant")},
    with_two_signs: {
        "first": because("fake-quant-codes", fake_quant="asymmetric", min=-58, max=193)
    },
    with_a_range_per_channel: dict.fromkeys(
        ("first", "out"),
        because("fake-quant-per-channel", fake_quant="first/out"),
    ),
    with_a_fed_range: {
        "first": because("no-fake-quant-after", tensor="first/activation"),
        "out": because("fake-quant-not-constant", fake_quant="fed"),
    },
}


@needs_exact_sums
@pytest.mark.parametrize("make", REASONS, ids=lambda make: make.__name__)
def test_what_stays_float_is_named_and_right(make):
    graph = net(make, ("out/out",))
    stated = read_fake_quants(graph)
    assert stated.plan().reasons == REASONS[make]
    for each in (stated_codes_graph(stated), stated_int8_graph(stated)):
        assert compare(run(graph, feeds()), run(each, feeds()))[0].sqnr_db >= LEAST_DB


def test_layers_to_keep_in_float():
    stated = read_fake_quants(net(residual, ("out/out",)))
    plan = stated.plan(("first",))
    assert plan.reasons == {"first": because("listed", option="keep_float")}
    assert len(plan.chains) == 3


def test_avx2_rounds_codes_that_it_cannot_sum():
    """They have fewer levels there, as all weights do; other layers keep theirs."""
    graph = one_block(Block())
    stated = read_fake_quants(graph)
    assert stated.rounded_again(stated.plan(), "vnni") == []
    assert stated.rounded_again(stated.plan(), "avx2") == ["first", "second", "last"]
    codes = stated_codes_graph(stated, "avx2")
    assert ops(onednn_graph(codes, "avx2")) == ops(stated_int8_graph(stated, "avx2"))
    found = compare(run(graph, feeds()), run(codes, feeds()))[0].sqnr_db
    assert 25 <= found < LEAST_DB
    depthwise = read_fake_quants(one_block(Block("depthwise")))
    assert depthwise.rounded_again(depthwise.plan(), "avx2") == ["last"]
