import importlib.util
import logging

import numpy as np
import pytest

from deploykit.quantization.calibration import calibrate
from deploykit.transforms import quantize_weights as module
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.quantize_weights import quantize_weights
from deploykit.transforms.runtime.child_process import call
from tests.support import (
    assert_golden,
    because,
    build,
    building,
    error,
    ops,
    raises,
    random,
    run,
    shows,
    skipped,
    tf,
    transform,
)
from tests.transforms.examples import Example

# Layer: shape of the input, shape of the weights, axes that number the output channels.
LAYERS = {
    "conv": ((1, 5, 5, 6), (3, 3, 6, 24), (3,)),
    "conv3d": ((1, 3, 4, 4, 6), (2, 2, 2, 6, 24), (4,)),
    "backprop": ((1, 4, 4, 24), (3, 3, 6, 24), (2,)),
    "depthwise_1": ((1, 5, 5, 120), (3, 3, 120, 1), (2, 3)),
    "depthwise_2": ((1, 5, 5, 60), (3, 3, 60, 2), (2, 3)),
    "matmul": ((2, 40), (40, 40), (1,)),
    "matmul_transposed": ((2, 40), (40, 40), (0,)),
    "gather": ((7,), (40, 40), (0,)),
}


def unequal(shape, axes, seed=0):
    """Random weights whose channels differ in size by up to six orders of magnitude."""
    sizes = np.random.default_rng(seed).uniform(
        -3, 3, [n if axis in axes else 1 for axis, n in enumerate(shape)]
    )
    return (random(*shape, seed=seed) * 10**sizes).astype(np.float32)


def apply(name, x, w):
    if name == "conv":
        return tf.nn.conv2d(x, w, 1, "SAME")
    if name == "conv3d":
        return tf.nn.conv3d(x, w, [1] * 5, "SAME")
    if name == "backprop":
        return tf.nn.conv2d_transpose(x, w, [1, 8, 8, 6], 2, "SAME")
    if name.startswith("depthwise"):
        return tf.nn.depthwise_conv2d(x, w, [1] * 4, "SAME")
    if name == "gather":
        return tf.gather(w, tf.cast(tf.abs(x) * 40, tf.int32))
    return tf.matmul(x, w, transpose_b=name == "matmul_transposed")


def layers(*names):
    """Return a graph with an input x_NAME, weights w_NAME and an output y_NAME for each layer."""

    with building([f"x_{n}" for n in names], [f"y_{n}" for n in names]) as graph:
        for name in names:
            shape, weights_shape, axes = LAYERS[name]
            x = tf.compat.v1.placeholder(tf.float32, shape, name=f"x_{name}")
            w = tf.constant(unequal(weights_shape, axes), name=f"w_{name}")
            tf.identity(apply(name, x, w), name=f"y_{name}")
    return graph


def feeds(*names):
    return {f"x_{name}": random(*LAYERS[name][0], seed=1) for name in names}


def values(graph, tensor):
    graph = graph.copy()
    graph.outputs = (tensor,)
    return run(graph, {})[0]


def half_steps(weights, restored, axes):
    """Return the largest error of a weight, in halves of the step of its channel."""
    others = tuple(axis for axis in range(weights.ndim) if axis not in axes)
    half_step = np.abs(weights).max(others, keepdims=True).astype(np.float64) / 127 / 2
    return float((np.abs(restored.astype(np.float64) - weights) / half_step).max())


def quantized(graph, **parameters):
    result = graph.copy()
    quantize_weights(result, **parameters)
    return result


@pytest.mark.golden("quantize_weights/layers")
def test_golden():
    graph = layers("conv", "depthwise_2")
    assert_golden(graph, quantized(graph))


@pytest.mark.golden("quantize_weights/original")
def test_golden_of_one_range_for_all_channels():
    graph = layers("matmul")
    assert_golden(graph, quantized(graph, per_channel=False))


@pytest.mark.parametrize("name", LAYERS)
def test_every_weight_within_half_a_step_of_its_channel(name):
    before = layers(name)
    after = transform(before, "quantize_weights")
    weights, restored = before[f"w_{name}"].value, values(after, f"w_{name}")
    assert half_steps(weights, restored, LAYERS[name][2]) < 1 + 1e-5
    # a step is 1/127 of the largest weight: the worst relative error of a sum of such terms
    assert error(before, after, feeds(name)) < 1 / 127
    assert after[f"w_{name}"].op == ("Reshape" if "depthwise" in name else "Dequantize")


@pytest.mark.parametrize("onednn", ["0", "1"])
def test_tensorflow_restores_what_was_judged(onednn, monkeypatch):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    before = layers(*LAYERS)
    holes = unequal((40, 40), (1,), seed=3)
    holes[:, 7] = 0
    for name, value in (("holes", holes), ("few", random(2, 1000, seed=4, low=0.5))):
        w = before.add(before["w_matmul"].with_name(name).with_attrs(value=value))
        x = before["x_matmul"].with_name(f"x_{name}").with_attrs(shape=(2, len(value)))
        inputs = before.add(x).name, w.name
        before.add(before["MatMul"].with_name(f"y_{name}").with_data_inputs(*inputs))
    after = quantized(before)
    names = [node.name for node in before if node.op == "Const" and after[node.name] != node]
    assert len(names) == len(LAYERS) + 2
    graph_def = b"".join(after.serialized())
    environment = {"TF_ENABLE_ONEDNN_OPTS": onednn}
    found = call("deploykit.transforms.runtime.session:run_each", graph_def, names, env=environment)
    for name in names:
        axes = {"holes": (1,), "few": ()}.get(name) or LAYERS.get(name[2:], [()] * 3)[2]
        view = before[name].value.reshape(module._extent(before[name].value.shape, axes))
        expected = module._symmetric(view)[3].reshape(before[name].value.shape)
        np.testing.assert_array_equal(found[name], expected)
    assert not found["holes"][:, 7].any()


def test_grappler_gives_the_same():
    graph = quantized(layers("conv", "depthwise_2", "matmul"))
    inputs = feeds("conv", "depthwise_2", "matmul")
    for off, on in zip(run(graph, inputs), run(graph, inputs, grappler=True), strict=True):
        np.testing.assert_allclose(off, on, rtol=0, atol=1e-5 * np.abs(off).max())


def test_file_is_about_a_quarter():
    with building(["x"], ["y"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 128], name="x")
        tf.nn.conv2d(x, tf.constant(random(3, 3, 128, 256)), 1, "SAME", name="y")
    after = quantized(before)
    size = [sum(map(len, graph.serialized())) for graph in (before, after)]
    assert 0.25 < size[1] / size[0] < 0.26


@pytest.mark.parametrize("name", ["matmul", "depthwise_2"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_idempotent(name, per_channel):
    graph = quantized(layers(name), per_channel=per_channel)
    assert str(quantized(graph, per_channel=per_channel, minimum_size=1)) == str(graph)


@pytest.mark.parametrize(("size", "op"), [(1023, "Const"), (1024, "Dequantize")])
def test_minimum_size(size, op):
    weights = random(size, 1)
    graph = build(lambda: tf.identity(tf.ones([1, size]) @ tf.constant(weights, name="w")))
    graph.outputs = ("Identity",)
    assert quantized(graph)["w"].op == op
    assert quantized(graph, minimum_size=size + 1)["w"].op == "Const"
    assert quantized(graph, minimum_size=size)["w"].op == "Dequantize"


def matmul_with(weights):
    """Return the graph of a MatMul with other weights."""
    graph = layers("matmul")
    node = graph["w_matmul"].with_attrs(value=weights)
    graph.replace(graph["w_matmul"], node)
    x = graph["x_matmul"].with_attrs(shape=(2, len(weights)))
    graph.replace(graph["x_matmul"], x)
    return graph


def outlier(*shape):
    """Weights of which one is so large that a step wipes out all others of its channel."""
    weights = random(*shape)
    weights[(shape[0] // 2, 5)[: len(shape)]] = 300
    return weights


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (np.zeros((40, 40), np.float32), because("values-equal-and-stored-once")),
        (np.full((40, 40), 0.1, np.float32), because("values-equal-and-stored-once")),
        (
            random(40, 40) * np.float32(1e-40),
            because("weights-too-coarse", decibels=0.0, channel=0),
        ),
        (outlier(1000, 40), because("weights-too-coarse", decibels=24.3, channel=5)),
    ],
)
def test_stays_float(weights, reason, caplog):
    before = matmul_with(weights)
    with caplog.at_level(logging.WARNING, "transforms"):
        after = quantized(before)
    assert reason in after.skipped[0]
    assert after["w_matmul"].op == "Const"
    np.testing.assert_array_equal(after["w_matmul"].value, weights)
    assert len(caplog.messages) == shows(reason, "weights-too-coarse")
    assert all(text.startswith(f"node 'w_matmul': {reason}") for text in caplog.messages)


@pytest.mark.parametrize("per_channel", [True, False])
def test_equal_values_are_stored_once_and_exactly(per_channel):
    graph = quantized(matmul_with(np.zeros((40, 40), np.float32)), per_channel=per_channel)
    assert len(b"".join(graph.serialized())) < 1000
    assert not run(graph, feeds("matmul"))[0].any()


@pytest.mark.parametrize("size", [1e30, 1e-30, 3e38])
def test_huge_and_small_weights(size):
    weights = random(40, 40) * np.float32(size)
    assert half_steps(weights, values(quantized(matmul_with(weights)), "w_matmul"), (1,)) < 1 + 1e-5


def test_what_the_original_form_cannot_hold_stays_float():
    for size in (3e38, 1e-37):
        graph = quantized(matmul_with(random(40, 40) * np.float32(size)), per_channel=False)
        assert graph["w_matmul"].op == "Const"
        assert shows(graph.skipped[0], "weights-too-coarse")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("per_channel", [True, False])
def test_not_finite_weights_are_refused(value, per_channel):
    weights = random(40, 40)
    weights[3, 5] = value
    graph = matmul_with(weights)
    with raises(GraphError, "weights-nan", node="w_matmul"):
        quantize_weights(graph, per_channel=per_channel)
    assert "w_matmul_quantized_const" not in graph
    assert quantized(graph, skip=("w_matmul",))["w_matmul"].op == "Const"


def test_unknown_name_in_skip():
    with raises(GraphError, "missing", name="w_matmu"):
        quantize_weights(layers("matmul"), skip=("w_matmu",))


ROLE = "reader-of-other-role"
LEFT_ALONE = {
    "half": (lambda tf, w: w * 2, np.float16, "constant-not-float32", {"type": "float16"}),
    "double": (lambda tf, w: w * 2, np.float64, "constant-not-float32", {"type": "float64"}),
    "output": (lambda tf, w: tf.identity(w, name="out"), np.float32, "graph-output", {}),
    "index": (
        lambda tf, w: tf.cast(w, tf.int32),
        np.float32,
        ROLE,
        {"reader": "Cast", "op": "Cast"},
    ),
    "truth": (lambda tf, w: w > 0.5, np.float32, ROLE, {"reader": "Greater", "op": "Greater"}),
    "rounding": (lambda tf, w: tf.floor(w), np.float32, ROLE, {"reader": "Floor", "op": "Floor"}),
    "fake": (
        lambda tf, w: tf.quantization.fake_quant_with_min_max_vars(w, -1.0, 1.0),
        np.float32,
        ROLE,
        {"op": "FakeQuantWithMinMaxVars"},
    ),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    use, dtype, code, fields = LEFT_ALONE[case]
    weights = random(40, 40).astype(dtype)
    graph = build(lambda: tf.identity(use(tf, tf.constant(weights, name="w")), name="y"))
    graph.outputs = ("out",) if case == "output" else ("y",)
    text = str(graph)
    quantize_weights(graph)
    assert str(graph) == text
    (reason,) = (each for each in graph.skipped if each.startswith("node 'w'"))
    assert shows(reason, code, **fields)


def test_fed_and_fetched_constants_are_left_alone():
    for role in ("inputs", "outputs"):
        graph = layers("matmul")
        setattr(graph, role, (*getattr(graph, role), "w_matmul"))
        quantize_weights(graph)
        assert graph["w_matmul"].op == "Const"
        assert graph.skipped[0] == skipped("w_matmul", f"graph-{role[:-1]}")


def test_infinite_mask_is_left_alone():
    mask = np.triu(np.full((40, 40), -np.inf, np.float32), 1)
    graph = build(lambda: tf.add(tf.ones([40, 40]), tf.constant(mask, name="w"), name="y"))
    graph.outputs = ("y",)
    quantize_weights(graph)
    assert graph.skipped == [skipped("w", ROLE, reader="y", op="AddV2")]


def test_table_of_unequal_values_stays_float(caplog):
    vector = outlier(2000)
    graph = build(lambda: tf.gather(tf.constant(vector, name="w"), [3, 5], name="y"))
    graph.outputs = ("y",)
    quantize_weights(graph)
    assert graph["w"].op == "Const"
    assert shows(graph.skipped[-1], "weights-too-coarse")
    assert not caplog.messages


def test_shared_weights_and_identities_read_one_dequantize():
    weights = unequal((40, 40), (0,))

    with building(["x"], ["y"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, [2, 40], name="x")
        w = tf.constant(weights, name="w")
        first = tf.matmul(x, tf.identity(tf.identity(w)), transpose_b=True)
        second = tf.matmul(x, w, transpose_b=True)
        tf.add_n([first, second, tf.gather(w, [3, 5])], name="y")
    after = quantized(before)
    assert ops(after)["Dequantize"] == 1
    assert half_steps(weights, values(after, "w"), (0,)) < 1 + 1e-5
    assert error(before, after, {"x": random(2, 40)}) < 1 / 127


def test_readers_with_different_channels_are_all_kept_within_30_db(caplog):
    def make(weights):
        x = tf.compat.v1.placeholder(tf.float32, [2, 40], name="x")
        w = tf.constant(weights, name="w")
        tf.add(tf.matmul(x, w), tf.matmul(x, w, transpose_b=True), name="y")

    alike = build(lambda: make(random(40, 40)), ["x"], ["y"])
    assert quantized(alike)["w"].op == "Dequantize"
    # with a range a row, the large rows make both the signal and the noise of every column
    rows = build(lambda: make(unequal((40, 40), (0,))), ["x"], ["y"])
    assert quantized(rows)["w"].attr("axis") == 0
    columns = build(lambda: make(unequal((40, 40), (1,))), ["x"], ["y"])
    assert quantized(columns)["w"].attr("axis") == 1
    differing = unequal((40, 40), (0,)) * unequal((40, 40), (1,), seed=1)
    assert quantized(build(lambda: make(differing), ["x"], ["y"]))["w"].op == "Const"
    assert shows(caplog.messages[0], "channel-kept-float")


def test_device_and_control_inputs_are_carried():
    graph = layers("depthwise_2")
    node = graph["w_depthwise_2"].with_control_inputs("^x_depthwise_2")
    object.__setattr__(node, "device", "/device:CPU:0")
    graph.replace(node, node)
    quantize_weights(graph)
    graph.check()
    made = [n for n in graph if n.name.startswith("w_depthwise_2")]
    assert len(made) == 6
    assert {n.device for n in made} == {"/device:CPU:0"}
    consts = [n for n in made if n.op == "Const"]
    assert [n.control_inputs for n in consts] == [("^x_depthwise_2",)] * 4
    run(graph, feeds("depthwise_2"))


def test_taken_names_are_avoided():
    graph = layers("matmul")
    graph.add(graph["x_matmul"].with_name("w_matmul_quantized_const"))
    quantize_weights(graph)
    assert graph["w_matmul"].inputs[0] == "w_matmul_quantized_const_1"


def test_few_weights_per_channel_share_one_range():
    graph = matmul_with(random(2, 40, low=0.5))
    quantize_weights(graph, minimum_size=1)
    assert graph["w_matmul"].op == "Dequantize"
    assert graph["w_matmul_quantized_max"].value.shape == ()
    run(graph, {"x_matmul": random(2, 2)})


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow.python.util._pywrap_transform_graph") is None,
    reason="this TensorFlow does not carry the original tool",
)
def test_per_channel_false_is_the_original_form():
    before = layers("conv", "matmul", "gather")
    from tensorflow.python.util import _pywrap_transform_graph as original

    ends = [",".join(tensors).encode() for tensors in (before.inputs, before.outputs)]
    text = b"".join(before.serialized())
    there = original.TransformGraphWithStringInputs(text, *ends, b"quantize_weights")
    theirs = Graph.from_graph_def(GraphDef.FromString(there), before.inputs, before.outputs)
    ours = quantized(before, per_channel=False)
    assert {n.name for n in ours} == {n.name for n in theirs}
    for node in ours:
        other = theirs[node.name]
        assert (node.op, node.inputs) == (other.op, other.inputs)
        if node.name.startswith("w_"):
            assert set(node.attrs) == set(other.attrs)
            assert node.attr("T") == other.attr("T")
        if node.name.endswith("_quantized_const"):
            assert node.attr("dtype") == DType("quint8")
        if node.op == "Const" and node.name.startswith("w_"):
            np.testing.assert_array_equal(node.value, other.value)
    for name in ("w_conv", "w_matmul", "w_gather"):
        np.testing.assert_array_equal(values(ours, name), values(theirs, name))


@pytest.mark.parametrize("form", ["", "(per_channel=false)"])
def test_a_bias_stays_float(form):
    with building(["x"], ["y"]) as before:
        x = tf.compat.v1.placeholder(tf.float32, [1, 8], name="x")
        tf.nn.bias_add(tf.matmul(x, random(8, 2048)), tf.constant(random(2048), name="b"), name="y")
    after = transform(before, f"quantize_weights{form}")
    assert after["b"].op == "Const"
    assert ops(after)["Dequantize"] == 1


GRAPHS = [
    Example(
        "quantize_weights(minimum_size=16)",
        lambda: layers("conv", "depthwise_2", "matmul"),
        bar=0.05,
    ),
]


def errors_of(parameters, name="conv"):
    """Return weights and the errors of what they became, by the output channels of a layer."""
    graph = transform(layers(name), f"quantize_weights({parameters})")
    weights = unequal(*LAYERS[name][1:])
    return weights, values(graph, f"w_{name}") - weights


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "gather"])
def test_sums_are_kept(name):
    """The errors of a channel sum to less than a step, at little cost, and without to more."""
    axes = LAYERS[name][2]
    others = tuple(i for i in range(len(LAYERS[name][1])) if i not in axes)
    weights, error = errors_of("minimum_size=1, keep_sums=true", name)
    step = np.abs(weights).max(others) / 127
    assert (np.abs(error.sum(others)) <= 0.51 * step).all()
    plain = errors_of("minimum_size=1", name)[1]
    assert (np.abs(plain.sum(others)) > 0.51 * step).any(), "rounding alone does not keep them"
    assert (
        np.square(error / np.abs(weights).max()).sum()
        < 1.6 * np.square(plain / np.abs(weights).max()).sum()
    )
    assert (np.abs(error).max(others) <= step).all()


def test_rows_of_a_table_do_not_keep_sums():
    found = [
        errors_of(f"minimum_size=1, keep_sums={given}", "gather")[1] for given in (True, False)
    ]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    "name", ["conv", "depthwise_1", "depthwise_2", "matmul", "matmul_transposed"]
)
def test_biases_take_back_what_rounding_shifts(name, tmp_path):
    """On inputs that are alike at each position of a channel, nothing is shifted any more."""
    graph, feed = layers(name), feeds(name)
    feed = {t: np.broadcast_to(x[(slice(1), *[slice(1)] * (x.ndim - 2))], x.shape).copy()
            for t, x in feed.items()}  # fmt: skip
    path = tmp_path / "ranges.json"
    path.write_text(calibrate(graph, [feed]).ranges.text())
    expected = run(graph, feed)[0]
    shifts = []
    for given in ("", f', ranges="{path}"'):
        found = transform(graph, f"quantize_weights(minimum_size=1{given})")
        away = run(found, feed)[0] - expected
        inner = away[:, 1:-1, 1:-1] if away.ndim == 4 else away  # a border reads zeros too
        shifts.append(np.abs(inner / np.abs(expected).max(tuple(range(away.ndim - 1)))).max())
    assert shifts[1] < 1e-5 < 1e-4 < shifts[0]


def test_a_bias_that_is_there_takes_it(tmp_path):
    with building(["x"], ["out"]) as net:
        x = tf.compat.v1.placeholder(tf.float32, [None, 40], name="x")
        y = tf.nn.bias_add(tf.matmul(x, random(40, 40), name="layer"), random(40), name="biased")
        tf.nn.relu(y, name="out")
    graph, feed = net, {"x": random(9, 40, low=0)}
    path = tmp_path / "ranges.json"
    path.write_text(calibrate(graph, [feed]).ranges.text())
    found = transform(graph, f'quantize_weights(minimum_size=1, ranges="{path}")')
    assert ops(found)["BiasAdd"] == 1
    error = [run(each, feed)[0] - run(graph, feed)[0]
             for each in (found, transform(graph, "quantize_weights(minimum_size=1)"))]  # fmt: skip
    assert np.square(error[0]).sum() < 0.8 * np.square(error[1]).sum()
