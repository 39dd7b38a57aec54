"""Scales and shifts go into the layer at hand; the check sees a shift that ignores padding."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.shapes import static_shapes
from tests.support import (
    assert_golden,
    because,
    build,
    building,
    error,
    ops,
    random,
    run,
    tf,
    transform,
)
from tests.transforms.examples import Example

BAR = 1e-6 * 6  # design: 1e-6 * (5 + depth), one layer
SHAPES = {"conv2d": (2, 7, 6, 3), "depthwise": (2, 7, 6, 3), "conv3d": (2, 5, 4, 4, 3),
          "matmul": (4, 3), "transposed": (4, 3)}  # fmt: skip
C = 3
SCALE, SHIFT = random(C, seed=1, low=0.5, high=2), random(C, seed=2)


def layer(kind, y, **attrs):
    raw = tf.raw_ops
    if kind in ("matmul", "transposed"):
        weights = tf.constant(random(3, 5) if kind == "matmul" else random(5, 3), name="weights")
        return raw.MatMul(a=y, b=weights, transpose_b=kind == "transposed", name="layer")
    rank = len(SHAPES[kind])
    op = {"conv2d": raw.Conv2D, "depthwise": raw.DepthwiseConv2dNative, "conv3d": raw.Conv3D}[kind]
    weights = tf.constant(random(*[3, 3, 3][: rank - 2], C, 2), name="weights")
    options = {"strides": [1] * rank, "padding": "VALID"} | attrs
    return op(input=y, filter=weights, **options, name="layer")


def net(before=lambda y: y, kind="conv2d", after=lambda y: y, shape=None, **attrs) -> Graph:
    def make():
        size = shape or SHAPES[kind]
        y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=size, name="x")
        y = after(layer(kind, before(y), **attrs))
        tf.raw_ops.Relu(features=y, name="out")

    return build(make, ["x"], ["out"])


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    return {"x": random(*graph["x"].attr("shape"), seed=9)}


def mul(value=SCALE):
    return lambda y: y * value


def add(value=SHIFT):
    return lambda y: y + value


def normalise(y):
    """Images as Keras reads them: scaled, then shifted."""
    return y * SCALE + SHIFT


def standardise(y):
    """Images as PyTorch reads them: less the mean, over the deviation."""
    return (y - SHIFT) / SCALE


def from_one(y):
    return 1.0 - y * SCALE


BEFORE = {
    "mul": mul(),
    "one number": mul(np.float32(0.3)),
    "add": add(),
    "normalise": normalise,
    "standardise": standardise,
    "from one": from_one,
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("before", BEFORE)
def test_folds_into_the_layer_behind(kind, before):
    graph = net(BEFORE[before], kind)
    result = transform(graph, "fold_scale")
    biased = {} if before in ("mul", "one number") else {"BiasAdd": 1}
    expected = {"Placeholder": 1, "Relu": 1, "Const": 1 + len(biased), graph["layer"].op: 1}
    assert ops(result) == expected | biased
    assert error(graph, result, feeds(graph)) <= BAR
    assert str(transform(result, "fold_scale")) == str(result)


@pytest.mark.parametrize("kind", ["conv2d", "depthwise", "conv3d"])
@pytest.mark.parametrize("before", BEFORE)
def test_padding_keeps_the_shift_as_one_add(kind, before):
    graph = net(BEFORE[before], kind, padding="SAME")
    result = transform(graph, "fold_scale")
    shifts = 0 if before in ("mul", "one number") else 1
    assert ops(result).get("AddV2", 0) + ops(result).get("Sub", 0) == shifts
    assert {"Mul", "RealDiv", "BiasAdd"}.isdisjoint(ops(result))
    assert error(graph, result, feeds(graph)) <= BAR
    assert str(transform(result, "fold_scale")) == str(result)


def test_a_window_of_one_pixel_sees_no_padding():
    with building(["x"], ["out"]) as graph:
        y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=SHAPES["conv2d"], name="x")
        weights = tf.constant(random(1, 1, C, 2), name="weights")
        y = normalise(y)
        strides = [1, 2, 2, 1]
        tf.raw_ops.Conv2D(input=y, filter=weights, strides=strides, padding="SAME", name="out")
    result = transform(graph, "fold_scale")
    assert {"Mul", "AddV2"}.isdisjoint(ops(result))
    assert result.outputs == ("out",)
    assert error(graph, result, feeds(graph)) <= BAR


@pytest.mark.parametrize("kind", SHAPES)
def test_one_number_behind_a_layer_folds(kind):
    """What the residual blocks of Inception-ResNet do."""

    def scaled(y):
        bias = random(y.shape[-1], seed=3)
        return tf.nn.bias_add(y, bias) * 0.17 if y.shape.rank < 5 else (y + bias) * 0.17

    graph = net(kind=kind, after=scaled)
    assert "Mul" in ops(transform(graph, "fold_batch_norms"))
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)
    assert error(graph, result, feeds(graph)) <= BAR


def test_what_lies_between_two_layers_goes_into_the_first():
    with building(["x"], ["out"]) as graph:
        y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=SHAPES["conv2d"], name="x")
        first = tf.nn.conv2d(y, random(1, 1, C, C), 1, "VALID", name="first")
        y = layer("conv2d", normalise(first), padding="SAME")
        tf.raw_ops.Relu(features=y, name="out")
    result = transform(graph, "fold_scale")
    assert ops(result) == {"Placeholder": 1, "Const": 3, "Conv2D": 2, "BiasAdd": 1, "Relu": 1}
    assert error(graph, result, feeds(graph)) <= 2e-6 + BAR


def test_a_bias_behind_takes_the_shift_up():
    def biased(y):
        return tf.nn.bias_add(y, random(2, seed=3), name="biased")

    graph = net(normalise, after=biased)
    result = transform(graph, "fold_scale")
    assert ops(result)["BiasAdd"] == 1
    assert result["biased"].op == "BiasAdd"
    assert error(graph, result, feeds(graph)) <= BAR


@pytest.mark.golden("fold_scale/{padding}")
@pytest.mark.parametrize("padding", ["valid", "same"])
def test_golden(padding):
    graph = net(normalise, padding=padding.upper())
    assert_golden(graph, transform(graph, "fold_scale"))


def test_channels_first():
    """A processor runs it under oneDNN alone, so the arrays are compared."""
    shape = (2, C, 7, 6)

    def standardise_channels(y):
        return (y - SHIFT.reshape(C, 1, 1)) * SCALE.reshape(1, C, 1, 1)

    graph = net(standardise_channels, shape=shape, data_format="NCHW")
    result = transform(graph, "fold_scale")
    weights = graph["weights"].value * SCALE[:, None]
    np.testing.assert_allclose(result["weights"].value, weights, rtol=1e-6)
    bias = result["layer"]
    assert bias.attr("data_format") == "NCHW"
    expected = -np.einsum("hwio,i->o", weights, SHIFT)
    np.testing.assert_allclose(result[bias.inputs[1]].value, expected, rtol=1e-5)
    kept = transform(net(standardise_channels, shape=shape, data_format="NCHW", padding="SAME"),
                     "fold_scale")  # fmt: skip
    (shift,) = (node for node in kept if node.op == "AddV2")
    assert kept[shift.inputs[1]].shape == (C, 1, 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types(dtype):
    bars = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-14}

    def make():
        x = tf.compat.v1.placeholder(dtype, (4, 3), name="x")
        numpy_type = tf.as_dtype(dtype).as_numpy_dtype
        y = x * SCALE.astype(numpy_type) + SHIFT.astype(numpy_type)
        tf.matmul(y, random(3, 5).astype(numpy_type), name="out")

    graph = build(make, ["x"], ["out"])
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)
    x = random(4, 3).astype(tf.as_dtype(dtype).as_numpy_dtype)
    expected, found = (run(g, {"x": x})[0].astype(np.float64) for g in (graph, result))
    assert np.abs(expected - found).max() <= bars[dtype] * np.abs(expected).max()


def left_alone(graph: Graph) -> list[str]:
    """Return why the graph stays as it is, which it must."""
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse("fold_scale"))
    assert str(done.graph) == str(graph)
    return [reason.split(": ", 1)[1] for reason in done.skipped]


def over_the_width(y):
    return y * random(6, 1)


def twice(y):
    y = y * SCALE
    return y + y


def divided(y):
    return SCALE / y


@pytest.mark.parametrize("before", [over_the_width, twice, divided])
def test_left_alone(before):
    assert left_alone(net(before)) == []


def test_a_shift_in_front_of_padding_is_left_alone():
    reason = because("shift-before-zeros", step="add")
    assert left_alone(net(lambda y: y + SHIFT, padding="SAME")) == [reason]


def test_a_scale_by_zero_leaves_the_shift_where_it_is():
    graph = net(lambda y: y * np.float32([0, 1, 1]) + SHIFT, padding="SAME")
    assert left_alone(graph) == [because("shift-before-zeros", step="add")]


def test_a_scale_that_widens_its_input_is_left_alone():
    graph = net(mul(), shape=(2, 7, 6, 1))
    assert left_alone(graph) == [because("source-channels-unknown", tensor="x", channels=3)]


def test_groups_of_channels_take_one_number_alone():
    graph = net(mul(np.float32(0.3)), shape=(2, 7, 6, 6))
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)
    assert error(graph, result, feeds(graph)) <= BAR
    wide = random(6, seed=1, low=0.5, high=2)
    assert left_alone(net(mul(wide), shape=(2, 7, 6, 6))) == []


@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_what_is_fed_or_fetched_keeps_its_value(role):
    graph = net(lambda y: y * SCALE)
    setattr(graph, role, (*getattr(graph, role), "mul"))
    assert left_alone(graph) == []


def test_the_channels_of_an_inner_tensor_follow(monkeypatch):
    monkeypatch.setattr(static_shapes, "call", None)  # without TensorFlow

    def after_relu(y):
        return tf.raw_ops.Relu6(features=y) * SCALE

    graph = net(after_relu)
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)
    assert error(graph, result, feeds(graph)) <= BAR


def test_a_chain_of_8_000_steps():
    from deploykit.transforms.ir.node import Node

    graph = net(lambda y: y * np.float32(1), "matmul")
    graph.prune()
    source, mul_, one = "x", graph["mul"], graph["mul"].inputs[1]
    graph.outputs = ("out",)
    for i in range(8_000):
        graph.add(Node(f"s{i}", "Mul", (source, one), mul_.attrs))
        source = f"s{i}"
    graph.replace(mul_, mul_.with_data_inputs(source, one))
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)


def test_shared_weights_get_a_copy_of_their_own():
    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(4, 3), name="x")
        weights = tf.constant(random(3, 5), name="weights")
        a = tf.matmul(x * SCALE, weights, name="a")
        b = tf.matmul(x * SHIFT, weights, name="b")
        tf.raw_ops.Pack(values=[a, b, tf.matmul(x, weights, name="c")], name="out")
    result = transform(graph, "fold_scale")
    assert "Mul" not in ops(result)
    np.testing.assert_array_equal(result["weights"].value, graph["weights"].value)
    assert error(graph, result, feeds(graph)) <= BAR


GRAPHS = [
    Example("fold_scale", lambda: net(normalise), BAR),
    Example("fold_scale", lambda: net(standardise, padding="SAME"), BAR),
    Example("fold_scale", lambda: net(mul(), "matmul", add(random(5))), BAR),
]
