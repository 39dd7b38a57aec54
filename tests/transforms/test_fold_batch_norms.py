"""fold_batch_norms: every form after every layer, what is refused, and that the check can fail."""

import numpy as np
import pytest

from deploykit.transforms.fold_batch_norms import foldable
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import (
    assert_golden,
    build,
    building,
    error,
    ops,
    random,
    run,
    shows,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

BAR = 1e-6 * 6  # design: 1e-6 * (5 + depth), one layer


def conv2d(x, data_format="NHWC"):
    return tf.raw_ops.Conv2D(
        input=x, filter=tf.constant(random(3, 3, 4, 6), name="w"), strides=[1, 1, 1, 1],
        padding="SAME", data_format=data_format, name="layer",
    )  # fmt: skip


def depthwise(multiplier):
    def make(x):
        w = tf.constant(random(3, 3, 4, multiplier), name="w")
        return tf.raw_ops.DepthwiseConv2dNative(
            input=x, filter=w, strides=[1, 1, 1, 1], padding="VALID", name="layer"
        )

    return make


def conv3d(x):
    w = tf.constant(random(2, 2, 2, 4, 6), name="w")
    return tf.raw_ops.Conv3D(input=x, filter=w, strides=[1] * 5, padding="SAME", name="layer")


def transposed(x):
    w = tf.constant(random(3, 3, 6, 4), name="w")
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=[2, 10, 10, 6], filter=w, out_backprop=x, strides=[1, 2, 2, 1],
        padding="SAME", name="layer",
    )  # fmt: skip


def matmul(transpose_b):
    def make(x):
        w = tf.constant(random(6, 6), name="w")
        return tf.raw_ops.MatMul(a=x, b=w, transpose_b=transpose_b, name="layer")

    return make


LAYERS = {
    "conv2d": (conv2d, (2, 5, 5, 4), 6),
    "depthwise": (depthwise(1), (2, 5, 5, 4), 4),
    "depthwise multiplier 2": (depthwise(2), (2, 5, 5, 4), 8),
    "conv3d": (conv3d, (2, 3, 5, 5, 4), 6),
    "transposed conv": (transposed, (2, 5, 5, 4), 6),
    "matmul": (matmul(False), (2, 6), 6),
    "matmul transpose_b": (matmul(True), (2, 6), 6),
}


def vectors(channels):
    """Return gamma, beta, mean and variance."""
    return (
        random(channels, seed=1, low=0.5, high=2),
        random(channels, seed=2),
        random(channels, seed=3),
        random(channels, seed=4, low=0.1, high=3),
    )


def mul(y, channels):
    return y * vectors(channels)[0]


def mul_reversed(y, channels):
    return tf.raw_ops.Mul(x=vectors(channels)[0], y=y)


def fused(version):
    def make(y, channels):
        gamma, beta, mean, variance = vectors(channels)
        op = getattr(tf.raw_ops, f"FusedBatchNorm{version}")
        return op(
            x=y, scale=gamma, offset=beta, mean=mean, variance=variance, epsilon=1e-3,
            is_training=False, name="bn",
        )[0]  # fmt: skip

    return make


def as_global_normalization(graph: Graph, scaled: bool) -> None:
    """Turn the fused batch norm into the op that TensorFlow only takes from GraphDef version 8."""
    x, gamma, beta, mean, variance = graph["bn"].inputs
    node = Node("bn", "BatchNormWithGlobalNormalization", (x, mean, variance, beta, gamma))
    attrs = {"T": DType("float32"), "variance_epsilon": 1e-3, "scale_after_normalization": scaled}
    graph.replace(graph["bn"], node.with_attrs(**attrs))
    graph.versions.producer = 8


def decomposed(y, channels):
    """Write what Keras 3 writes."""
    gamma, beta, mean, variance = (tf.identity(tf.constant(v)) for v in vectors(channels))
    scale = tf.raw_ops.Rsqrt(x=tf.raw_ops.AddV2(x=variance, y=1e-3)) * gamma
    return tf.raw_ops.AddV2(x=y * scale, y=beta - mean * scale)


def centred(y, channels):
    gamma, beta, mean, _ = vectors(channels)
    return (y - mean) / gamma + beta


NORMS = {
    "mul": mul,
    "mul reversed": mul_reversed,
    "fused": fused(""),
    "fused v2": fused("V2"),
    "fused v3": fused("V3"),
    "global": fused(""),
    "global without gamma": fused(""),
    "decomposed": decomposed,
    "centred": centred,
}
FOUR_DIMENSIONS = {"fused", "fused v2", "fused v3", "global", "global without gamma"}


def bias(kind, y, channels):
    value = random(channels, seed=5)
    if kind == "bias":
        return tf.nn.bias_add(y, value)
    return y + value if kind == "add" else y


BETWEEN = ("", "bias", "add")
CASES = [
    (layer, norm, between)
    for i, layer in enumerate(LAYERS)
    for j, norm in enumerate(NORMS)
    for k, between in enumerate(BETWEEN)
    if norm not in FOUR_DIMENSIONS or len(LAYERS[layer][1]) == 4
    if layer == "conv2d" or (i + j + k) % 3 == 0  # each pair of two of the three
]


def layer_with_norm(layer, norm, between) -> tuple[Graph, dict[str, np.ndarray]]:
    make, shape, channels = LAYERS[layer]

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        y = NORMS[norm](bias(between, make(x), channels), channels)
        tf.nn.relu(y, name="out")
    if norm.startswith("global"):
        as_global_normalization(graph, scaled=norm == "global")
    return graph, {"x": random(*shape, seed=9)}


@pytest.mark.parametrize(("layer", "norm", "between"), CASES)
def test_folds(layer, norm, between):
    before, feeds = layer_with_norm(layer, norm, between)
    after = transform(before, "fold_batch_norms")
    only_scale = norm.startswith("mul") and not between
    assert set(ops(after)) - {"Const", "Placeholder", "Relu"} == {before["layer"].op} | (
        {"BiasAdd"} if not only_scale else set()
    )
    assert after["w"].op == "Const"  # unshared weights keep their name
    assert error(before, after, feeds) <= BAR
    assert str(transform(after, "fold_batch_norms")) == str(after)  # idempotent


@pytest.mark.parametrize("norm", NORMS)
def test_a_scale_per_channel_is_known_before_it_is_folded(norm):
    graph, _ = layer_with_norm("conv2d", norm, "bias")
    text = str(graph)
    found = foldable(graph)
    assert str(graph) == text
    *steps, last = found.pop("layer")
    assert found == {}
    after = transform(graph, "fold_batch_norms")
    assert set(steps).isdisjoint(node.name for node in after)
    assert after[last].op == "BiasAdd"


@pytest.mark.parametrize("kind", ["", "BiasAdd"])
def test_a_layer_without_a_scale_has_none_to_fold(kind):
    with building(["x"], ["out"]) as graph:
        y = conv2d(tf.compat.v1.placeholder(tf.float32, (2, 5, 5, 4), name="x"))
        if kind:
            y = tf.nn.bias_add(y, tf.constant(random(6)))
        tf.nn.relu(y, name="out")
    assert foldable(graph) == {}


def test_weights_that_are_not_finite_fold_as_they_are():
    """The folded ones are no worse: the layer's outputs were NaN before."""
    graph, feeds = layer_with_norm("conv2d", "mul", "")
    weights = graph["w"].value.copy()
    weights[0, 0, 0, 0] = np.nan
    graph.replace(graph["w"], Node.constant("w", weights))
    after = transform(graph, "fold_batch_norms")
    assert "Mul" not in ops(after)
    for before_value, after_value in zip(run(graph, feeds), run(after, feeds), strict=True):
        np.testing.assert_allclose(after_value, before_value, rtol=1e-5, atol=1e-5)


@pytest.mark.golden("fold_batch_norms/{norm}")
@pytest.mark.parametrize("norm", ["mul", "decomposed", "fused v3"])
def test_golden(norm):
    before, _ = layer_with_norm("conv2d", norm, "")
    assert_golden(before, transform(before, "fold_batch_norms"))


def scaled(shape):
    def make(y):
        return y * random(*shape, seed=6)

    return make


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
@pytest.mark.parametrize("layer", ["conv2d", "depthwise multiplier 2"])
def test_a_shift_by_one_value_for_all_channels_folds(layer, shape):
    """Keras's hard sigmoid adds 3 to what a convolution makes."""
    make, input_shape, channels = LAYERS[layer]

    with building(["x"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, input_shape, name="x")
        y = bias("bias", make(x), channels) + np.full(shape, 3, np.float32)
        tf.nn.relu6(y, name="out")
    after = transform(before, "fold_batch_norms")
    assert set(ops(after)) == {"Placeholder", "Const", before["layer"].op, "BiasAdd", "Relu6"}
    assert error(before, after, {"x": random(*input_shape, seed=9)}) <= BAR


def training(y):
    gamma, beta, mean, variance = vectors(6)
    return tf.raw_ops.FusedBatchNormV3(
        x=y, scale=gamma, offset=beta, mean=mean, variance=variance, is_training=True
    )[0]


def auxiliary(y):
    gamma, beta, mean, variance = vectors(6)
    out = tf.raw_ops.FusedBatchNormV3(
        x=y, scale=gamma, offset=beta, mean=mean, variance=variance, is_training=False
    )
    return out[0] + out[1]


def two_readers(y):
    return mul(y, 6) + y


def itself(y):
    return y * y


def zero_variance(y):
    gamma, beta, mean, _ = vectors(6)
    return tf.raw_ops.FusedBatchNormV3(
        x=y, scale=gamma, offset=beta, mean=mean, variance=np.full(6, -1, np.float32),
        is_training=False,
    )[0]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "code", "fields"),
    [
        *(
            (scaled(shape), "constant-shape", {"shape": shape})
            for shape in ((), (5, 1), (5, 5, 1), (5, 5, 6), (1, 2, 1, 1, 6), (2, 1, 1, 6))
        ),
        (training, "norm-in-training", {}),
        (auxiliary, "second-output-read", {}),
        (two_readers, "layer-read-by-several", {"count": 2}),
        (itself, "step-reads-otherwise", {"op": "Mul"}),
        (zero_variance, "scale-or-shift-not-finite", {}),
    ],
)
def test_left_alone(step, code, fields):
    with building(["x"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, (2, 5, 5, 4), name="x")
        tf.identity(step(conv2d(x)), name="out")
    before.prune()
    after = before.copy()
    from deploykit.transforms.fold_batch_norms import fold_batch_norms

    fold_batch_norms(after)
    assert str(after) == str(before)
    assert any(shows(each, code, **fields) for each in after.skipped), after.skipped


def test_nchw_vector_over_the_width_is_left_alone_and_channels_fold():
    def body(shape):
        x = tf.compat.v1.placeholder(tf.float32, (2, 4, 6, 6), name="x")
        tf.identity(conv2d(x, "NCHW") * random(*shape, seed=6), name="out")

    assert "Mul" in ops(transform(build(lambda: body((6,)), ["x"], ["out"]), "fold_batch_norms"))
    folded = transform(build(lambda: body((6, 1, 1)), ["x"], ["out"]), "fold_batch_norms")
    assert "Mul" not in ops(folded)
    original = build(lambda: body((6, 1, 1)), ["x"], ["out"])
    np.testing.assert_allclose(
        folded["w"].value, original["w"].value * random(6, 1, 1, seed=6).reshape(6), rtol=1e-6
    )


@pytest.mark.parametrize("node", ["layer", "norm"])
@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_fed_and_fetched_nodes_keep_their_values(node, role):
    with building(["x"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, (2, 5, 5, 4), name="x")
        y = tf.multiply(conv2d(x), vectors(6)[0], name="norm")
        tf.nn.relu(tf.nn.bias_add(y, vectors(6)[1]), name="out")
    setattr(before, role, (*getattr(before, role), node))
    after = transform(before, "fold_batch_norms")
    feeds = {"x": random(2, 5, 5, 4)}
    if role == "inputs":
        feeds[node] = random(2, 5, 5, 6)
    assert error(before, after, feeds) <= BAR


def test_shared_weights_get_a_copy_of_their_own():
    with building(["x"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, (2, 6), name="x")
        w = tf.constant(random(6, 6), name="w")
        first = tf.matmul(x, w, name="first") * vectors(6)[0]
        second = tf.matmul(x, w, name="second") * vectors(6)[1]
        tf.concat([first, second, tf.matmul(x, w)], 1, name="out")
    after = transform(before, "fold_batch_norms")
    assert "Mul" not in ops(after)
    np.testing.assert_array_equal(after["w"].value, before["w"].value)
    assert error(before, after, {"x": random(2, 6)}) <= BAR


def test_control_edges_of_tf2_freezing_stop_nothing():
    """A NoOp waits for every weight and for the layer itself; an Identity waits for the NoOp."""

    with building(["x"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, (2, 5, 5, 4), name="x")
        w = tf.identity(tf.constant(random(3, 3, 4, 6), name="w"), name="read")
        scale = tf.identity(tf.constant(vectors(6)[0]), name="read_scale")
        layer = tf.raw_ops.Conv2D(
            input=x, filter=w, strides=[1, 1, 1, 1], padding="SAME", name="layer"
        )
        y = layer * scale
        with tf.control_dependencies([w, scale, layer]):
            barrier = tf.no_op()
        with tf.control_dependencies([barrier]):
            tf.identity(y, name="out")
    after = transform(before, "fold_batch_norms")
    assert "Mul" not in ops(after)
    assert error(before, after, {"x": random(2, 5, 5, 4)}) <= BAR


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types(dtype):
    bars = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-14}

    def body():
        x = tf.compat.v1.placeholder(dtype, (2, 6), name="x")
        numpy_type = tf.as_dtype(dtype).as_numpy_dtype
        y = tf.matmul(x, random(6, 6).astype(numpy_type)) * vectors(6)[0].astype(numpy_type)
        tf.identity(y + vectors(6)[1].astype(numpy_type), name="out")

    before = build(body, ["x"], ["out"])
    after = transform(before, "fold_batch_norms")
    assert "Mul" not in ops(after)
    x = random(2, 6).astype(tf.as_dtype(dtype).as_numpy_dtype)
    expected, found = (run(g, {"x": x})[0].astype(np.float64) for g in (before, after))
    assert np.abs(expected - found).max() <= bars[dtype] * np.abs(expected).max()


def test_folded_weights_that_overflow_are_left_alone():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, (2, 6), name="x")
        w = tf.constant(np.full((6, 6), 1e38, np.float32) * random(6, 6))
        tf.identity(tf.matmul(x, w) * tf.constant([1e30] * 6), name="out")
    assert "Mul" in ops(transform(graph, "fold_batch_norms"))


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("before", ["placeholder", "residual add"])
def test_a_batch_norm_without_a_layer_becomes_one_mul_and_one_add(data_format, before):
    shape = [2, 3, 4, 5]
    channels = shape[data_format.index("C")]

    def body():
        x = y = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        if before == "residual add":
            y = x + tf.nn.relu(x)
        parameters = [random(channels, seed=s, low=0.5) for s in range(4)]
        out = tf.raw_ops.FusedBatchNormV3(
            x=y, scale=parameters[0], offset=parameters[1], mean=parameters[2],
            variance=parameters[3], data_format=data_format, is_training=False,
        )  # fmt: skip
        tf.nn.relu6(out[0], name="out")

    after = transform(build(body, ["x"], ["out"]), "fold_batch_norms")
    assert "FusedBatchNormV3" not in ops(after)
    assert ops(after)["Mul"] == 1
    x = random(*shape, seed=9)
    y = x + np.maximum(x, 0) if before == "residual add" else x
    gamma, beta, mean, variance = (
        random(channels, seed=s, low=0.5).reshape((-1, 1, 1) if data_format == "NCHW" else -1)
        for s in range(4)
    )
    expected = gamma * (y - mean) / np.sqrt(variance + 1e-4) + beta
    (found,) = run(after, {"x": x})  # the CPU has no FusedBatchNormV3 for NCHW
    np.testing.assert_allclose(found, np.clip(expected, 0, 6), rtol=1e-5, atol=1e-6)


def test_a_batch_norm_in_training_without_a_layer_is_left_alone():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2, 3, 4, 6], name="x")
        tf.nn.relu(training(x), name="out")
    after = transform(graph, "fold_batch_norms")
    assert "FusedBatchNormV3" in ops(after)


def test_a_layer_that_is_an_output_is_left_alone():
    before, _ = layer_with_norm("conv2d", "mul", "")
    before.outputs = ("layer", "out")
    after = transform(before, "fold_batch_norms")
    assert str(after) == str(before)
    assert after.skipped == [skipped("layer", "tensor-fetched", tensor="layer")]


def test_fed_statistics_are_not_folded():
    with building(["x", "scale"], ["out"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, (2, 5, 5, 4), name="x")
        scale = tf.constant(vectors(6)[0], name="scale")
        tf.identity(conv2d(x) * scale, name="out")
    after = transform(before, "fold_batch_norms")
    feeds = {"x": random(2, 5, 5, 4), "scale": random(6, seed=7)}
    assert error(before, after, feeds) == 0


GRAPHS = [
    Example(
        "fold_batch_norms",
        lambda layer=layer, norm=norm: layer_with_norm(layer, norm, "bias")[0],
        BAR,
    )
    for layer, norm in (("conv2d", "fused v3"), ("depthwise", "decomposed"), ("matmul", "mul"))
]


def test_a_batch_norm_in_float64_without_a_layer_is_left_alone():
    """A product in float64 would read constants in float32."""
    kind = {"T": DType("float64")}
    values = [Node.constant(name, np.ones(4)) for name in ("mean", "variance", "beta", "gamma")]
    norm = Node(
        "norm", "BatchNormWithGlobalNormalization", ("x", "mean", "variance", "beta", "gamma")
    ).with_attrs(variance_epsilon=0.001, scale_after_normalization=True, **kind)
    x = Node("x", "Placeholder").with_attrs(dtype=DType("float64"))
    graph = Graph([x, *values, norm, Node("out", "Relu", ("norm",)).with_attrs(**kind)])
    graph.inputs, graph.outputs = ("x",), ("out",)
    assert ops(transform(graph, "fold_batch_norms"))["BatchNormWithGlobalNormalization"] == 1
