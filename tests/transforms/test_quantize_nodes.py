import numpy as np
import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.int8 import ranges
from deploykit.transforms.quantize_nodes import quantize_nodes
from deploykit.transforms.runtime.child_process import call
from tests.support import (
    assert_golden,
    because,
    build,
    building,
    error,
    ops,
    random,
    run,
    says,
    shows,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

# A code is off by half a step, 1/510 of the range of its tensor. Both operands of an op and its
# result are rounded, and a range may be twice the largest value: 3 * 2 / 510 in all, and as much
# again because the kernels of sums and biases round the zero of each range once more.
ONE_OP = 0.024
FEW_OPS = 0.04
# A fake quantization keeps zero a multiple of its step, by moving both ends: one step of the range.
STEP = 1 / 255


def placeholder(*shape, name="x"):
    return tf.compat.v1.placeholder(tf.float32, shape, name=name)


def weights(*shape, name="w", seed=0):
    return tf.constant(random(*shape, seed=seed), name=name)


def fake_quant(tensor, name, low=0.0, high=6.0, **attrs):
    ends = (tf.constant(low, name=f"{name}/min"), tf.constant(high, name=f"{name}/max"))
    raw = tf.raw_ops.FakeQuantWithMinMaxVars
    return raw(inputs=tensor, min=ends[0], max=ends[1], name=name, **attrs)


def one(make, *shape, inputs=("x",), outputs=("y",)):
    """Return the graph of an op y, a function of TensorFlow and a placeholder x of this shape."""
    return build(lambda: make(tf, placeholder(*shape)), inputs, outputs)


def net(x=None):
    y = tf.nn.conv2d(placeholder(2, 8, 8, 3) if x is None else x, weights(3, 3, 3, 4), 1, "SAME")
    y = tf.nn.relu(tf.nn.bias_add(y, weights(4, name="b"), name="bias"), name="relu")
    y = tf.reshape(tf.nn.max_pool2d(y, 2, 2, "SAME", name="pool"), [2, 64], name="flat")
    y = tf.matmul(y, weights(64, 5, name="w2"), name="matmul")
    return tf.raw_ops.AddV2(x=y, y=weights(5, name="b2", seed=3), name="y")


def feeds(graph, seed=1):
    return {name: random(*graph[name].attr("shape"), seed=seed) for name in graph.inputs}


def quantized(graph, text="quantize_nodes"):
    result = transform(graph, text)
    for off, on in zip(
        run(result, feeds(result)), run(result, feeds(result), grappler=True), strict=True
    ):
        np.testing.assert_allclose(off, on, rtol=0, atol=1e-5 * np.abs(off).max())
    return result


def steps(graph, count, width):
    """Return some steps of a range of this width, relative to the outputs of a graph."""
    return count * STEP * width / min(np.abs(value).max() for value in run(graph, feeds(graph)))


@pytest.mark.golden("quantize_nodes/net")
def test_golden():
    graph = build(net, ["x"], ["y"])
    assert_golden(graph, quantized(graph))


@pytest.mark.golden("quantize_nodes/ranges")
def test_golden_with_ranges():
    graph = build(net, ["x"], ["y"])
    text = "quantize_nodes(input_min=-1,input_max=1,fallback_min=-10,fallback_max=10)"
    assert_golden(graph, transform(graph, text))


@pytest.mark.golden("quantize_nodes/fake_quant")
def test_golden_fake_quant():
    def make(tf, x):
        w = fake_quant(weights(1, 1, 2, 2), "fake_w", -1.0, 1.0)
        y = tf.nn.conv2d(fake_quant(x, "fake_x", -1.0, 1.0), w, 1, "SAME", name="conv")
        y = tf.nn.max_pool2d(tf.nn.relu(y, name="relu"), 2, 2, "SAME", name="pool")
        fake_quant(y, "y")

    before = one(make, 1, 4, 4, 2)
    after = quantized(before)
    assert_golden(before, after)
    assert error(before, after, feeds(before)) < steps(before, 2, 6.0)


ONE = {
    "add": (lambda tf, x: tf.raw_ops.Add(x=x, y=weights(5), name="y"), (3, 5)),
    "add_v2": (lambda tf, x: tf.raw_ops.AddV2(x=weights(3, 5), y=x, name="y"), (3, 5)),
    "add_itself": (lambda tf, x: tf.raw_ops.AddV2(x=x, y=x, name="y"), (3, 5)),
    "mul": (lambda tf, x: tf.raw_ops.Mul(x=x, y=weights(5), name="y"), (3, 5)),
    "scalar": (lambda tf, x: tf.raw_ops.Mul(x=x, y=weights(), name="y"), (3, 5)),
    "avg_pool": (lambda tf, x: tf.nn.avg_pool2d(x, 3, 2, "SAME", name="y"), (2, 7, 6, 3)),
    "max_pool": (lambda tf, x: tf.nn.max_pool2d(x, 3, [1, 2], "VALID", name="y"), (2, 7, 6, 3)),
    "bias_add": (lambda tf, x: tf.nn.bias_add(x, weights(3), name="y"), (2, 7, 6, 3)),
    "bias_add_2": (lambda tf, x: tf.nn.bias_add(x, weights(3), name="y"), (4, 3)),
    "concat": (
        lambda tf, x: tf.raw_ops.Concat(concat_dim=1, values=[x, weights(3, 2), x], name="y"),
        (3, 5),
    ),
    "concat_v2": (
        lambda tf, x: tf.raw_ops.ConcatV2(values=[x, weights(3, 5), x], axis=0, name="y"),
        (3, 5),
    ),
    "concat_last": (lambda tf, x: tf.concat([x, 3 * x], -1, name="y"), (2, 3, 5)),
    "concat_int64": (
        lambda tf, x: tf.raw_ops.ConcatV2(values=[x, x], axis=tf.constant(1, tf.int64), name="y"),
        (3, 5),
    ),
    "conv": (
        lambda tf, x: tf.nn.conv2d(x, weights(3, 3, 3, 4), 1, "SAME", name="y"),
        (2, 7, 6, 3),
    ),
    "conv_stride": (
        lambda tf, x: tf.nn.conv2d(x, weights(3, 3, 3, 4), 2, "SAME", name="y"),
        (2, 7, 6, 3),
    ),
    "conv_valid": (
        lambda tf, x: tf.nn.conv2d(x, weights(2, 3, 3, 4), 2, "VALID", name="y"),
        (2, 7, 6, 3),
    ),
    "matmul": (lambda tf, x: tf.matmul(x, weights(5, 7), name="y"), (3, 5)),
    "matmul_a": (lambda tf, x: tf.matmul(x, weights(3, 7), transpose_a=True, name="y"), (3, 5)),
    "matmul_b": (lambda tf, x: tf.matmul(x, weights(7, 5), transpose_b=True, name="y"), (3, 5)),
    "matmul_1": (lambda tf, x: tf.matmul(x, weights(1, 1), name="y"), (1, 1)),
    "matmul_zero": (lambda tf, x: tf.matmul(x, weights(5, 2) * 0 + x[0, 0], name="y"), (3, 5)),
    "relu": (lambda tf, x: tf.nn.relu(x, name="y"), (3, 5)),
    "relu6": (lambda tf, x: tf.nn.relu6(9 * x, name="y"), (3, 5)),
    "reshape": (lambda tf, x: tf.reshape(x, [-1, 3], name="y"), (3, 5)),
    "reshape_int64": (
        lambda tf, x: tf.reshape(x, tf.constant([5, -1], tf.int64), name="y"),
        (3, 5),
    ),
    "port": (lambda tf, x: tf.nn.relu(tf.split(x, 3)[1], name="y"), (3, 5)),
}
for _name, _attrs in {
    "resize": {},
    "resize_corners": {"align_corners": True},
    "resize_centers": {"half_pixel_centers": True},
}.items():
    ONE[_name] = (
        lambda tf, x, attrs=_attrs: tf.raw_ops.ResizeBilinear(
            images=x, size=[14, 12], name="y", **attrs
        ),
        (2, 7, 6, 3),
    )


@pytest.mark.parametrize("case", ONE)
def test_every_op(case):
    make, shape = ONE[case]
    before = one(make, *shape)
    after = quantized(before)
    assert after["y"].op == "Dequantize", after.skipped
    assert error(before, after, feeds(before)) < ONE_OP


BROADCASTS = [
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), (1, 3)), ((2, 3), ()), ((), (2, 3)),
    ((2, 3), (1, 1)), ((5,), (1, 1)), ((2, 3, 4), (3, 4)), ((2, 3, 4), (1, 3, 4)),
    ((2, 3), (2, 1)), ((2, 1), (1, 3)), ((2, 3, 4), (2, 1, 4)), ((2, 3, 4), (3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("op", ["AddV2", "Mul"])
def test_broadcasts_are_right_or_stay_float(op):
    """The kernel adds a wrong vector, or reads foreign memory, where a trailing size is 1."""
    left = []
    for shape, other in BROADCASTS:
        before = one(
            lambda tf, x, s=other: getattr(tf.raw_ops, op)(x=x, y=weights(*s), name="y"), *shape
        )
        after = quantized(before)
        assert error(before, after, feeds(before)) < ONE_OP
        if after["y"].op != "Dequantize":
            left.append((shape, other))
            assert shows(after.skipped[0], "kernel-cannot-broadcast")
    assert left == BROADCASTS[-4:]


def test_net():
    before = build(net, ["x"], ["y"])
    after = quantized(before)
    assert error(before, after, feeds(before)) < FEW_OPS
    assert [ops(after)[op] for op in ("QuantizeV2", "Dequantize")] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("onednn", ["0", "1"])
def test_net_with_and_without_onednn(onednn, monkeypatch):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    before = build(lambda: net(placeholder(2, 8, 8, 3) * 1), ["x"], ["y"])
    after = transform(before, "quantize_nodes")
    value = random(2, 8, 8, 3, seed=1)
    after.replace(after["x"], after["x"].constant("x", value))
    graph_def = b"".join(after.serialized())
    environment = {"TF_ENABLE_ONEDNN_OPTS": onednn}
    found = call(
        "deploykit.transforms.runtime.session:run_each", graph_def, ["y"], env=environment
    )["y"]
    expected = run(before, {"x": value})[0]
    assert np.abs(found - expected).max() < FEW_OPS * np.abs(expected).max()


LEFT_FLOAT = {
    "nchw": (
        lambda tf, x: tf.nn.conv2d(x, weights(1, 1, 3, 4), 1, "SAME", "NCHW", name="y"),
        (1, 3, 5, 5),
        because("layout-unfit", layout="NCHW"),
    ),
    "nchw_bias": (
        lambda tf, x: tf.nn.bias_add(x, weights(3), "NCHW", name="y"),
        (1, 3, 5, 5),
        because("layout-unfit", layout="NCHW"),
    ),
    "dilations": (
        lambda tf, x: tf.nn.conv2d(x, weights(3, 3, 3, 4), 1, "SAME", dilations=2, name="y"),
        (1, 5, 5, 3),
        because("kernel-no-dilations", op="QuantizedConv2D"),
    ),
    "explicit": (
        lambda tf, x: tf.nn.conv2d(
            x, weights(3, 3, 3, 4), 1, [[0, 0], [1, 2], [0, 1], [0, 0]], name="y"
        ),
        (1, 5, 5, 3),
        because("kernel-no-explicit-padding", op="QuantizedConv2D"),
    ),
    "explicit_pool": (
        lambda tf, x: tf.nn.max_pool2d(x, 3, 1, [[0, 0], [1, 2], [0, 1], [0, 0]], name="y"),
        (1, 5, 5, 3),
        because("kernel-no-explicit-padding", op="QuantizedMaxPool"),
    ),
    "strides": (
        lambda tf, x: tf.nn.conv2d(x, weights(3, 3, 3, 4), [1, 2], "SAME", name="y"),
        (1, 5, 5, 3),
        because("kernel-one-stride", op="QuantizedConv2D"),
    ),
    "groups": (
        lambda tf, x: tf.nn.conv2d(x, weights(3, 3, 1, 4), 1, "SAME", name="y"),
        (1, 5, 5, 2),
        because("kernel-groups", op="QuantizedConv2D"),
    ),
    "channel_pool": (
        lambda tf, x: tf.raw_ops.MaxPool(
            input=x, ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID", name="y"
        ),
        (1, 5, 5, 4),
        because("kernel-pools-images", op="QuantizedMaxPool"),
    ),
    "depthwise": (
        lambda tf, x: tf.nn.depthwise_conv2d(x, weights(3, 3, 3, 1), [1] * 4, "SAME", name="y"),
        (1, 5, 5, 3),
        because("depthwise-kernel"),
    ),
    "half": (
        lambda tf, x: tf.cast(tf.nn.relu(tf.cast(x, tf.float16), name="r"), tf.float32, name="y"),
        (3, 5),
        because("type-unfit", type="float16", expected="float32"),
    ),
    "whole": (
        lambda tf, x: tf.cast(tf.reshape(tf.cast(x, tf.int32), [-1]), tf.float32, name="y"),
        (3, 5),
        because("type-unfit", type="int32", expected="float32"),
    ),
    "infinite": (
        lambda tf, x: tf.add(x, tf.constant([0, -np.inf, 0], tf.float32), name="y"),
        (2, 3),
        because("read-constant-not-finite"),
    ),
    "huge": (
        lambda tf, x: tf.add(x, tf.constant([0, 3e38, 0], tf.float32), name="y"),
        (2, 3),
        because("read-constant-not-finite"),
    ),
    "axis": (
        lambda tf, x: tf.concat([x, x], tf.cast(tf.reduce_sum(x), tf.int32), name="y"),
        (2, 3),
        because("concat-axis-unknown"),
    ),
    "four_bits": (
        lambda tf, x: fake_quant(x, "y", num_bits=4),
        (3, 5),
        because("codes-not-uint8"),
    ),
    "measured_range": (
        lambda tf, x: tf.quantization.fake_quant_with_min_max_vars(
            x, 0.0, tf.reduce_max(x), name="y"
        ),
        (3, 5),
        because("range-not-constant"),
    ),
    "range_without_zero": (
        lambda tf, x: fake_quant(x, "y", 1.0, 6.0),
        (3, 5),
        because("range-lacks-zero", min=1.0, max=6.0),
    ),
}


@pytest.mark.parametrize("case", LEFT_FLOAT)
def test_left_float(case):
    make, shape, reason = LEFT_FLOAT[case]
    graph = one(make, *shape)
    text = str(graph)
    quantize_nodes(graph)
    assert str(graph) == text
    assert any(reason in each for each in graph.skipped), graph.skipped


@pytest.mark.parametrize("value", [0.0, -0.5, 0.5])
@pytest.mark.parametrize("behind", ["matmul", "add", "mul", "conv"])
def test_values_that_are_all_equal(value, behind):
    """As a batch of one holds behind a layer with one output: a range without width is refused."""

    with building(["x"], ["y"]) as before:
        y = tf.matmul(placeholder(None, 1), tf.ones([1, 1]))
        if behind == "matmul":
            tf.matmul(y, weights(1, 5), name="y")
        elif behind == "conv":
            tf.nn.conv2d(tf.reshape(y, [-1, 1, 1, 1]), weights(1, 1, 1, 4), 1, "SAME", name="y")
        else:
            op = tf.raw_ops.AddV2 if behind == "add" else tf.raw_ops.Mul
            op(x=y, y=weights(), name="y")
    after = transform(before, "quantize_nodes")
    assert after["y"].op == "Dequantize", after.skipped
    for rows in (1, 3):
        fed = {"x": np.full((rows, 1), value, np.float32)}
        expected, found = run(before, fed)[0], run(after, fed)[0]
        assert np.abs(found - expected).max() <= ONE_OP * max(np.abs(expected).max(), 1e-4)


def test_unknown_shapes_stay_float():
    def make(tf, _):
        a, b = (tf.compat.v1.placeholder(tf.float32, name=name) for name in "ab")
        tf.raw_ops.AddV2(x=a, y=b, name="y")

    graph = one(make, 1, inputs=("a", "b"))
    quantize_nodes(graph)
    assert shows(graph.skipped[0], "kernel-shapes-unknown", op="QuantizedAdd")


def test_unknown_batches_are_added():
    with building(["x"], ["y", "gate"]) as before:
        x = placeholder(None, 4, 4, 3)
        tf.raw_ops.AddV2(x=tf.nn.conv2d(x, weights(3, 3, 3, 3), 1, "SAME"), y=x, name="y")
        tf.raw_ops.Mul(x=x, y=tf.reduce_mean(x, [1, 2], keepdims=True), name="gate")
    after = transform(before, "quantize_nodes")
    assert (after["y"].op, after["gate"].op) == ("Dequantize", "Mul")
    assert error(before, after, {"x": random(5, 4, 4, 3)}) < ONE_OP


@pytest.mark.parametrize(
    ("ignored", "left"),
    [("", set()), ("ignore_op=MatMul", {"MatMul"}), ("ignore_op=MatMul,ignore_op=Relu",) * 2],
)
def test_ignore_op(ignored, left):
    left = {"MatMul", "Relu"} if isinstance(left, str) else left
    after = quantized(build(net, ["x"], ["y"]), f"quantize_nodes({ignored})")
    assert set(ops(after)) & {"Conv2D", "BiasAdd", "Relu", "MaxPool", "MatMul", "AddV2"} == left


def test_fallback_ranges_are_not_measured():
    graph = build(net, ["x"], ["y"])
    after = quantized(graph, "quantize_nodes(fallback_min=-10,fallback_max=10)")
    assert "RequantizationRange" not in ops(after)
    make, shape = ONE["conv"]
    before = one(make, *shape)
    limit = np.abs(run(before, feeds(before))[0]).max()
    after = quantized(before, f"quantize_nodes(fallback_min={-2 * limit},fallback_max={limit})")
    assert error(before, after, feeds(before)) < ONE_OP + 3 * STEP / 2
    cut = quantized(before, f"quantize_nodes(fallback_min={-limit / 2},fallback_max={limit / 2})")
    assert np.abs(run(cut, feeds(before))[0]).max() < limit / 2 * (1 + 2 * STEP)


def test_input_range_takes_codes():
    before = build(net, ["x"], ["y"])
    after = transform(before, "quantize_nodes(input_min=-2,input_max=3)")
    assert after["x"].attr("dtype") == "quint8"
    assert not {"QuantizeV2", "Min"} & set(ops(after))
    codes = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype(np.uint8)
    (expected,) = run(before, {"x": codes.astype(np.float32) * (5 / 255) - 2})
    (found,) = run(after, {"x": codes})
    # zero is a code: the range is moved by up to half a step
    assert np.abs(found - expected).max() < (FEW_OPS + STEP) * np.abs(expected).max()


def test_placeholders_that_hold_no_floats_stay():
    def make(tf, x):
        count = tf.compat.v1.placeholder(tf.int32, [], name="count")
        kept = placeholder(2, name="kept")
        tf.identity(tf.nn.relu(x) + tf.cast(count, tf.float32) + tf.reduce_sum(kept), name="y")

    graph = one(make, 3, 5, inputs=("x", "count", "kept"), outputs=("y", "kept"))
    quantize_nodes(graph, input_min=0.0, input_max=1.0)
    types = [graph[name].attr("dtype") for name in graph.inputs]
    assert types == ["quint8", "int32", "float32"]
    assert graph.skipped[:2] == [
        skipped("count", "placeholder-not-float", type="int32"),
        skipped("kept", "placeholder-fetched"),
    ]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("input_min=0", says("fallback-range-half")),
        ("input_max=0", says("fallback-range-half")),
        ("fallback_min=0", says("fallback-range-half")),
        ("fallback_max=0", says("fallback-range-half")),
        (
            "input_min=1,input_max=1",
            says(
                "fallback-range-invalid", reason="input_min (1.0) should be below input_max (1.0)"
            ),
        ),
        ("input_min=nan,input_max=1", says("fallback-range-invalid")),
        ("input_min=0,input_max=inf", "both finite"),
        ("fallback_min=1,fallback_max=2", says("fallback-range-without-zero", fallback=[1.0, 2.0])),
    ],
)
def test_wrong_ranges(parameters, message):
    with pytest.raises(PipelineError, match=message):
        transform(build(net, ["x"], ["y"]), f"quantize_nodes({parameters})")


@pytest.mark.parametrize("form", ["", ",per_channel=false"])
def test_quantized_weights_are_taken(form):
    before = build(net, ["x"], ["y"])
    after = quantized(before, f"quantize_weights(minimum_size=1{form}) quantize_nodes")
    assert [ops(after)[op] for op in ("QuantizeV2", "Dequantize")] == [1, 1]
    assert ("w_quantized_const" in after) == (form != "")
    assert error(before, after, feeds(before)) < FEW_OPS


def test_channels_over_two_axes_and_depthwise_weights():
    def make(tf, x):
        w = weights(3, 3, 6, 2, name="w")
        y = tf.nn.depthwise_conv2d(x, w, [1] * 4, "SAME", name="depthwise")
        tf.nn.conv2d(y, tf.reshape(w, [1, 9, 12, 1]), 1, "VALID", name="y")

    before = one(make, 1, 5, 9, 6)
    after = quantized(before, "quantize_weights(minimum_size=1) quantize_nodes")
    assert ops(after)["DepthwiseConv2dNative"] == ops(after)["QuantizedConv2D"] == 1
    assert after["w"].inputs[0] == "w_dequantized"  # the depthwise layer keeps a range a channel
    assert error(before, after, feeds(before)) < FEW_OPS


@pytest.mark.parametrize("value", [0.0, 1e-9, -3.0, 1e5])
def test_equal_weights_have_a_range(value):
    before = one(lambda tf, x: tf.matmul(x, tf.fill([5, 4], value), name="y"), 3, 5)
    before = transform(before, "fold_constants")
    after = quantized(before)
    found, expected = run(after, feeds(after))[0], run(before, feeds(before))[0]
    assert np.abs(found - expected).max() <= max(ONE_OP * np.abs(expected).max(), 1e-5)


def test_names_and_uses_of_inputs_and_outputs_stay():
    def make(tf, x):
        y = tf.nn.relu(tf.nn.conv2d(x, weights(1, 1, 2, 2), 1, "SAME", name="conv"), name="relu")
        tf.nn.relu6(y, name="y")
        tf.sin(y, name="z")

    before = one(make, 1, 4, 4, 2, outputs=("y", "z", "conv"))
    after = quantized(before)
    assert error(before, after, feeds(before)) < FEW_OPS
    fed = one(make, 1, 4, 4, 2, inputs=("x", "relu"))
    fed = transform(fed, "quantize_nodes")
    assert fed["relu"].op == "Relu"
    value = random(1, 4, 4, 2, low=0)
    assert np.abs(run(fed, {"x": value, "relu": value})[0] - value).max() < STEP


def test_control_inputs_stay():
    def make(tf, x):
        with tf.control_dependencies([tf.no_op(name="first")]):
            y = tf.nn.relu(x, name="relu")
        with tf.control_dependencies([y]), tf.device("/device:CPU:0"):
            tf.nn.relu6(x, name="y")

    after = quantized(one(make, 3, 5))
    assert after["relu/eightbit"].control_inputs == ("^first",)
    assert after["y/eightbit"].control_inputs == ("^relu",)
    assert not any(node.device for node in after)  # where the kernels are is for TensorFlow to say


def hoisted(tf, y, **attrs):
    fake_quant(tf.nn.max_pool2d(y, 2, 2, "SAME", name="pool"), "y", **attrs)


def test_fake_quant_goes_to_the_top_of_a_chain():
    def make(tf, x):
        hoisted(tf, tf.nn.relu(tf.nn.bias_add(x, weights(2), name="bias"), name="relu"))

    before = one(make, 1, 4, 4, 2)
    after = quantized(before)
    assert after["y_hoisted_eightbit/requantize"].inputs[0] == "bias/eightbit"
    assert after["y/eightbit"].op == "QuantizedMaxPool"
    assert ops(after)["Requantize"] == 1
    assert error(before, after, feeds(before)) < steps(before, 2, 6.0) + ONE_OP


def test_fake_quant_stays_behind_what_changes_or_is_read():
    def change(tf, x):
        hoisted(tf, tf.negative(tf.nn.relu(x)), low=-3.0, high=5.0)

    def read(tf, x):
        y = tf.nn.relu(x, name="relu")
        tf.sin(y, name="z")
        hoisted(tf, y, low=-3.0, high=5.0)

    for make, names in ((change, ("y",)), (read, ("y", "z"))):
        before = one(make, 1, 4, 4, 2, outputs=names)
        after = quantized(before)
        assert after["y_hoisted_eightbit/quantize"].inputs[0] in ("Neg", "relu")
        assert error(before, after, feeds(before)) < steps(before, 2, 8.0) + ONE_OP


def test_needless_pairs_are_dropped():
    def make(tf, x):
        raw = tf.raw_ops
        codes = raw.QuantizeV2(input=x, min_range=-1.0, max_range=1.0, T=tf.quint8,
                               mode="MIN_FIRST", name="codes")  # fmt: skip
        y = raw.Dequantize(input=codes[0], min_range=codes[1], max_range=codes[2],
                           mode="MIN_FIRST", name="float")  # fmt: skip
        flat = tf.reshape(y, [-1], name="flat")
        ends = tf.reduce_min(flat, [0]), tf.reduce_max(flat, [0])
        again = raw.QuantizeV2(input=y, min_range=ends[0], max_range=ends[1], T=tf.quint8,
                               mode="MIN_FIRST", name="again")  # fmt: skip
        raw.Dequantize(input=again[0], min_range=again[1], max_range=again[2],
                       mode="MIN_FIRST", name="y")  # fmt: skip

    before = one(make, 3, 5)
    after = quantized(before)
    assert after["y"].inputs == ("codes", "codes:1", "codes:2")
    # the range is that of the codes, twice the largest value, and not the one that was found
    assert error(before, after, feeds(before)) < 2 * STEP


def test_shared_weights_are_quantized_once():
    def make(tf, x):
        w = weights(5, 5)
        tf.matmul(tf.sin(tf.matmul(x, w)), w, name="y")

    before = one(make, 3, 5)
    after = quantized(before)
    assert sum(node.attr("dtype") == "quint8" for node in after) == 1
    assert error(before, after, feeds(before)) < FEW_OPS


@pytest.mark.parametrize("parameters", ["", "(fallback_min=-9,fallback_max=9)"])
def test_a_loop_runs(parameters):
    def make(tf, x):
        tf.compat.v1.disable_control_flow_v2()

        def body(i, y):
            return i + 1, tf.nn.relu(tf.matmul(y, weights(5, 5)))

        count = tf.constant(0)
        tf.identity(tf.compat.v1.while_loop(lambda i, _: i < 2, body, [count, x])[1], name="y")

    before = one(make, 3, 5)
    assert "Enter" in ops(before)
    after = quantized(before, f"quantize_nodes{parameters}")
    assert ops(after)["QuantizedMatMul"] == 1
    bar = 4 * FEW_OPS if parameters else FEW_OPS
    assert error(before, after, feeds(before)) < bar


def test_a_long_chain():
    graph = one(lambda tf, x: tf.nn.relu(x, name="y"), 3, 5)
    relu = graph["y"]
    for number in range(2_000):
        graph.add(
            relu.with_name(f"r{number}").with_data_inputs(f"r{number - 1}" if number else "y")
        )
    graph.outputs = ("r1999",)
    after = transform(graph, "quantize_nodes")
    assert ops(after)["QuantizedRelu"] == 2_001


def clamped(tf, x, other_reader=False):
    y = tf.nn.conv2d(x, 4 * weights(3, 3, 3, 4), 1, "SAME", name="conv")
    tf.nn.relu6(tf.nn.bias_add(y, weights(4), name="bias"), name="y")
    if other_reader:
        tf.negative(y, name="z")


def test_a_range_ends_where_relu6_cuts(monkeypatch):
    before = transform(one(clamped, 2, 8, 8, 3), "fold_constants")
    after = quantized(before)
    monkeypatch.setattr(ranges, "_CUT_AT", {})  # as the original does
    whole = transform(before, "quantize_nodes")
    assert error(before, after, feeds(before)) < 0.8 * error(before, whole, feeds(before))
    assert after["bias/eightbit/requantize"].inputs[3] == "bias/eightbit/requantize/min"
    assert error(before, after, feeds(before)) < ONE_OP + 2 * STEP


def test_a_range_that_another_reads_stays_whole(monkeypatch):
    def make(tf, x):
        clamped(tf, x, other_reader=True)

    before = transform(one(make, 2, 8, 8, 3, outputs=("y", "z")), "fold_constants")
    after = quantized(before)
    assert after["conv/eightbit/requantize"].inputs[3] == "conv/eightbit/requant_range"
    few = FEW_OPS + STEP  # without oneDNN, TensorFlow's kernels round once more
    assert error(before, after, feeds(before)) < few
    monkeypatch.setitem(ranges._CUT_AT, "Neg", 6.0)
    wrong = transform(before, "quantize_nodes")
    assert error(before, wrong, feeds(before)) > 5 * FEW_OPS


def test_a_bias_behind_a_float_layer_stays_float():
    def make(tf, x):
        y = tf.nn.depthwise_conv2d(x, weights(3, 3, 3, 1), [1] * 4, "SAME", name="depthwise")
        tf.nn.bias_add(y, weights(3, name="b"), name="y")

    after = quantized(one(make, 1, 5, 5, 3))
    assert after["y"].op == "BiasAdd"
    assert shows(after.skipped[-1], "follows-float-layer", op="DepthwiseConv2dNative")


GRAPHS = [Example("quantize_nodes", lambda: build(net, ["x"], ["y"]), bar=0.1)]
