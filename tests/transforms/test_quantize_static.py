"""A layer on codes gives what its rounded weights and inputs give; what has no kernel stays."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploykit.benchmarking.profiling.execution import flops
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.plan import OPS
from deploykit.transforms.int8.ranges import Ranges, TensorRange, load_ranges
from deploykit.transforms.int8.weights import restored, weight_codes
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.composites import gelu_of
from deploykit.transforms.layers.layers import channel_axes
from deploykit.transforms.runtime.child_process import Worker
from deploykit.transforms.runtime.differences import compare
from deploykit.transforms.shapes.static_shapes import Shapes
from tests.int8_cpus import needs_exact_sums
from tests.support import (
    Containing,
    assert_golden,
    because,
    build,
    ops,
    random,
    run,
    says,
    shows,
    tf,
    transform,
)
from tests.transforms.examples import Example
from tests.transforms.int8_nets import C, calibrated, feeds_of, image, layer, ranges_of, relu
from tests.transforms.layer_matrix import Runner

BAR_DB = 30.0  # 8 bits give 6.02 * 8 + 1.76 = 50 dB at best; these nets have up to five layers


def quantized(graph: Graph, path: str, more: str = "isa=avx2") -> Graph:
    return transform(graph, f'quantize_static(ranges="{path}", {more})')


def sqnr(before: Graph, after: Graph, low: float = 0.0) -> float:
    """Return the smallest signal-to-noise ratio of the outputs at two batches."""
    batches = [feeds_of(before, batch, low) for batch in (1, 3)]
    pairs = [compare(run(before, feeds), run(after, feeds)) for feeds in batches]
    return min(found.sqnr_db for differences in pairs for found in differences)


def equal(graph: Graph, folder: Path, low: float = 0.0) -> Graph:
    """Return the 8-bit graph, after a comparison of its numbers."""
    result = quantized(graph, calibrated(graph, folder, low))
    assert sqnr(graph, result, low) >= BAR_DB
    return result


def net(make, inputs=("x",), outputs=("out",)) -> Graph:
    graph = build(make, inputs, outputs)
    graph.prune()
    return graph


def kinds(graph: Graph) -> list[str]:
    """Return the 8-bit layers in execution order, each with what it computes."""
    nodes = (graph[name] for name in graph.order())
    return [" ".join(node.attr("fused_ops")) for node in nodes if node.op in OPS.values()]


# By name: kind, what precedes the input, lowest input, attributes.
VALID, EXPLICIT = {"padding": "VALID"}, {"padding": "EXPLICIT"}
LAYERS = {
    "conv": ("conv", 0.0, {}),
    "conv, odd channels": ("conv", 0.0, {"channels": 5}),
    "conv, stride 2": ("conv", 0.0, {"strides": [1, 2, 2, 1]}),
    "conv, explicit": (
        "conv",
        0.0,
        EXPLICIT | {"explicit_paddings": [0, 0, 1, 2, 0, 1, 0, 0], "strides": [1, 2, 2, 1]},
    ),
    "conv, dilated": ("conv", 0.0, {"dilations": [1, 2, 3, 1]}),
    "conv, signed": ("conv", -0.5, VALID),
    "conv, explicit nothing, signed": ("conv", -2.0, EXPLICIT | {"explicit_paddings": [0] * 8}),
    "conv 1x1, signed": ("conv", -1.0, {"weights": random(1, 1, C, 7)}),
    "conv, no bias": ("conv", 0.0, {"bias": False}),
    "conv, no bias, signed": ("conv", -1.0, VALID | {"bias": False}),
    "conv, zeros in channels": (
        "conv",
        0.0,
        {"weights": random(3, 3, C, 4) * np.float32([1, 0, 1, 1]), "bias": False},
    ),
    "depthwise": ("depthwise", 0.0, {}),
    "depthwise, multiplier 2": ("depthwise", 0.0, {"channels": 2 * C, "strides": [1, 2, 2, 1]}),
    "depthwise, signed": ("depthwise", -1.0, VALID | {"channels": 2 * C}),
    "matmul": ("matmul", 0.0, {}),
    "matmul, signed": ("matmul", -1.0, {"channels": 5}),
    "matmul, no bias": ("matmul", -0.3, {"bias": False}),
}


def one_layer(name: str, activation: str) -> Graph:
    kind, _, attrs = LAYERS[name]

    def make():
        x = image((None, C) if kind == "matmul" else (None, 9, 8, C))
        y = layer(kind, x, "layer", **attrs)
        if activation:
            y = getattr(tf.raw_ops, activation)(features=y)
        tf.identity(y, name="out")

    return net(make)


def simulated(graph: Graph, feeds, path: str, exact_sums: bool) -> tuple[np.ndarray, float]:
    """Return what one layer must give, computed on floats that codes stand for, and its step."""
    known, (layer,) = load_ranges(path), (node for node in graph if node.op in OPS)
    read, made = known.of("x"), known.of("out")
    low = min(read.min, 0.0)
    step = (max(read.max, 0.0) - low) / 255
    codes = np.clip(np.rint((feeds["x"].astype(np.float64) - low) / step), 0, 255)
    rounded, weights = graph.copy(), graph.constant(layer.inputs[1])
    floats = restored(layer, *weight_codes(layer, weights.value, exact_sums))
    rounded.replace(rounded[weights.name], Node.constant(weights.name, floats))
    (value,) = run(rounded, {"x": (codes * step + low).astype(np.float32)})
    if layer.op == "MatMul":
        return value, 0.0
    lowest, levels = (0, 255) if made.min >= 0 else (-128, 127)
    out_step = max(made.max, -made.min) / levels
    return np.clip(np.rint(value / out_step), lowest, levels) * out_step, out_step


@pytest.mark.parametrize(
    ("name", "activation", "isa"),
    [
        pytest.param(name, activation, isa, marks=needs_exact_sums if isa == "vnni" else [])
        for i, name in enumerate(LAYERS)
        for j, activation in enumerate(("", "Relu", "Relu6"))
        for isa in (("avx2", "vnni") if name == "conv" else (("avx2", "vnni")[(i + j) % 2],))
    ],
)
def test_one_layer_gives_what_its_codes_stand_for(name, activation, isa, tmp_path):
    """At most one code aside, where the exact value lies between two codes, so seldom."""
    _, low, _ = LAYERS[name]
    graph = one_layer(name, activation)
    path = calibrated(graph, tmp_path, low)
    result = quantized(graph, path, f"isa={isa}")
    assert len(kinds(result)) == 1
    for batch in (1, 3):
        feeds = feeds_of(graph, batch, low)
        expected, step = simulated(graph, feeds, path, isa == "vnni")
        (found,) = run(result, feeds)
        aside = np.abs(found - expected)
        assert aside.max() <= step * 1.01 + 1e-5 * np.abs(expected).max()
        assert (aside > step / 2 + 1e-5).mean() < 0.02


def residual(read_again=None):
    """A layer, two behind it, and the sum of both ends, as ResNets do."""

    def make():
        y = relu(layer("conv", image(), "first"), "first/relu")
        z = relu(layer("conv", y, "second"))
        sum_ = tf.raw_ops.AddV2(x=y, y=layer("conv", z, "third"), name="sum")
        sum_ = relu(sum_, "sum/relu")
        tf.identity(sum_ if read_again is None else read_again(y, sum_), name="out")

    return net(make)


SUM = "BiasAdd Sum Relu Requantize"


def test_a_residual_sum_goes_into_the_layer_before_it(tmp_path):
    result = equal(residual(), tmp_path)
    assert kinds(result)[-1] == SUM
    assert ops(result)["QuantizeV2"] == ops(result)["Dequantize"] == 1


@pytest.mark.golden("quantize_static")
def test_golden(tmp_path):
    """With ranges in whole numbers, which do not depend on the processor that found them."""
    graph, path = residual(), tmp_path / "whole.ranges.json"
    found = ranges_of(graph, [feeds_of(graph, 3)])
    whole = {name: TensorRange(round(r.min), round(r.max)) for name, r in found.tensors.items()}
    path.write_text(replace(found, tensors=whole).text())
    assert_golden(graph, quantized(graph, str(path)))


def signed_end():
    """Layers whose results have a sign: their codes are made and read in another way."""
    y = relu(layer("conv", image(), "first"))
    layer("depthwise", layer("conv", y, "out"), "again")


def test_codes_with_a_sign_are_read(tmp_path):
    result = equal(net(signed_end, outputs=("out/biased", "again/biased")), tmp_path)
    assert [n.attr("T") for n in result if n.op == "Dequantize"] == ["qint8"] * 2


@pytest.mark.parametrize("onednn", "01")
def test_an_empty_batch_stays_empty(onednn, tmp_path):
    """It must not end the process; oneDNN's convolutions give it the sizes that they read."""
    runner = Runner(onednn)
    for make, outputs in ((residual, ("out",)), (signed_end, ("out/biased", "again/biased"))):
        graph = net(make, outputs=outputs) if make is signed_end else make()
        result = quantized(graph, calibrated(graph, tmp_path))
        found = runner.run(result, feeds_of(graph, 0))
        assert [each.shape for each in found] == [(0, 9, 8, C)] * len(outputs)
    graph = inception()
    refused = runner.run(quantized(graph, calibrated(graph, tmp_path)), feeds_of(graph, 0))
    assert shows(
        refused,
        "runtime-failed",
        action="run the graph",
        reason=Containing("be evenly divisible"),
        runtime="TensorFlow",
    )
    runner.close()


def test_groups_behind_an_8_bit_layer_stay(tmp_path):
    def make():
        y = relu(layer("conv", image(), "first"))
        relu(layer("conv", y, "second", weights=random(3, 3, C // 2, 4)), "out")

    graph = net(make)
    result = equal(graph, tmp_path)
    assert len(kinds(result)) == 1
    assert result["second"].op == "Conv2D"


@pytest.mark.parametrize("inner", ["first/relu", "second", "sum"])
def test_what_is_fetched_keeps_its_value(inner, tmp_path):
    graph = residual()
    graph.outputs = ("out", inner)
    result = equal(graph, tmp_path)
    assert SUM not in kinds(result) or inner == "second"


def two_branches(y, sum_):
    return relu(sum_) + layer("conv", y, "branch")


def through_a_reshape(y, sum_):
    return sum_ + tf.reshape(tf.reshape(y, [-1, 72, C]), [-1, 9, 8, C])


def pooled(y, sum_):
    return sum_ + tf.nn.max_pool2d(y, 3, 1, "SAME")


@pytest.mark.parametrize("again", [two_branches, through_a_reshape, pooled])
def test_a_summand_that_is_read_again_is_not_overwritten(again, tmp_path):
    assert SUM not in kinds(equal(residual(again), tmp_path))


def test_a_layer_does_not_overwrite_its_own_input(tmp_path):
    """Doing so ends the process."""

    def make():
        y = relu(layer("conv", image(), "first"))
        relu(layer("conv", y, "second") + y, "out")

    assert SUM not in kinds(equal(net(make), tmp_path))


def test_a_summand_is_not_merged_with_an_equal_tensor(tmp_path):
    """Grappler would merge both and their memory would be written to twice: the process ends."""

    def make():
        x = image()
        for end in "ab":
            y = relu(layer("conv", x, f"first_{end}"))
            z = relu(layer("conv", y, f"second_{end}"))
            last = layer("conv", z, f"third_{end}", weights=random(3, 3, C, C, seed=ord(end)))
            relu(y + last, f"sum_{end}")

    graph = net(make, outputs=("sum_a", "sum_b"))
    result = equal(graph, tmp_path)
    assert kinds(result).count(SUM) == 2
    assert_runs(graph, result)


def assert_runs(graph: Graph, result: Graph) -> None:
    """Run in children with and without oneDNN's flag and Grappler, and compare."""
    content = b"".join(result.serialized())
    for onednn, grappler in (("0", True), ("1", True), ("0", False), ("1", False)):
        forced = {"TF_ENABLE_ONEDNN_OPTS": onednn}
        worker = Worker(
            "deploykit.transforms.runtime.session:Session", content, grappler, forced=forced
        )
        try:
            for batch in (1, 3, 1):
                feeds = feeds_of(graph, batch)
                found = worker.ask("run", list(graph.outputs), feeds)
                assert min(d.sqnr_db for d in compare(run(graph, feeds), found)) >= BAR_DB
        finally:
            worker.close()


def inception() -> Graph:
    """Return a net of branches that are joined, with pools, a Pad and a dense end."""

    def make():
        y = relu(layer("conv", image(), "first"))
        a = relu(layer("conv", y, "a", weights=random(1, 1, C, 5)))
        b = relu(layer("depthwise", y, "b"))
        c = tf.nn.max_pool2d(y, 3, 1, "SAME", name="c")
        y = tf.concat([tf.concat([a, b], -1, name="inner"), c], -1, name="joined")
        y = tf.pad(y, [[0, 0], [1, 2], [1, 1], [0, 0]], name="padded")
        y = relu(layer("conv", y, "wide", padding="VALID", strides=[1, 2, 2, 1]))
        y = tf.nn.avg_pool2d(y, 2, 2, "VALID", name="averaged")
        y = tf.reshape(y, [-1, 2 * 2 * C], name="flat")
        layer("matmul", y, "dense")

    return net(make, outputs=("dense/biased",))


def test_codes_are_handed_on(tmp_path):
    graph = inception()
    result = equal(graph, tmp_path)
    found = ops(result)
    assert found["QuantizeV2"] == 2  # of the image, and behind the mean, which stays float
    assert found["Dequantize"] == 1
    assert {"QuantizedMaxPool", "AvgPool", "Bitcast", "ConcatV2", "Reshape"} <= set(found)
    assert_runs(graph, result)


def test_what_is_joined_has_one_peak(tmp_path):
    result = equal(inception(), tmp_path)
    peaks = {str(n.inputs[-1]) for n in result if n.op in ("QuantizedMaxPool",)}
    layers = [n for n in result if n.name in ("Relu/codes", "Relu_1/codes", "Relu_2/codes")]
    assert len(layers) == 3
    assert peaks == {n.data_inputs[-1] for n in layers}


def test_shapes_and_operations_are_those_of_the_float_graph(tmp_path):
    graph = inception()
    result = quantized(graph, calibrated(graph, tmp_path))
    before, after = Shapes(graph, batch=1), Shapes(result, batch=1)
    assert after.shape("dense/biased") == before.shape("dense/biased") == (1, C)
    assert flops(result, after)["total"] == flops(graph, before)["total"] > 0
    floats = transform(graph, "use_onednn_kernels(matmul=true)")
    shapes = Shapes(floats, batch=1)
    assert flops(floats, shapes)["total"] == flops(graph, before)["total"]
    assert shapes.shape("dense/biased") == (1, C)


def test_a_float_branch_is_joined_in_float(tmp_path):
    def make():
        y = relu(layer("conv", image(), "first"))
        y = tf.concat([y, tf.sigmoid(layer("conv", y, "gate"))], -1)
        tf.identity(relu(layer("conv", y, "last")), name="out")

    result = equal(net(make), tmp_path)
    assert len(kinds(result)) == 3
    assert result["concat"].attr("T") == "float32"


def test_survives_a_saved_model(tmp_path):
    graph, v1 = residual(), tf.compat.v1
    result, feeds = quantized(graph, calibrated(graph, tmp_path)), feeds_of(graph, 3)
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(result.to_graph_def(), name="")
        x, out = loaded.get_tensor_by_name("x:0"), loaded.get_tensor_by_name("out:0")
        with v1.Session() as session:
            v1.saved_model.simple_save(session, str(tmp_path / "saved"), {"x": x}, {"out": out})
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    found = serve(tf.constant(feeds["x"]))["out"].numpy()
    (difference,) = compare(run(graph, feeds), [found])
    assert difference.sqnr_db >= BAR_DB


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e9])
def test_small_and_large_values(scale, tmp_path):
    """A range is never widened: QuantizeV2 would not go below 0.01 by itself."""

    def make():
        y = image() * scale
        y = relu(layer("conv", y, "first", bias=False))
        layer("conv", y, "second", bias=False)

    assert len(kinds(equal(net(make, outputs=("second",)), tmp_path))) == 2


def test_an_edited_range_cuts_off_what_lies_outside(tmp_path):
    graph = one_layer("conv", "Relu")
    path = Path(calibrated(graph, tmp_path))
    document = json.loads(path.read_text())
    document["tensors"]["Relu"]["max"] = 0.5
    path.write_text(json.dumps(document))
    feeds = feeds_of(graph, 3)
    (found,), (floats,) = run(quantized(graph, str(path)), feeds), run(graph, feeds)
    assert found.max() == np.float32(0.5) < floats.max()
    (difference,) = compare([np.minimum(floats, 0.5)], [found])
    assert difference.sqnr_db >= BAR_DB


def left_alone(graph: Graph, path: str, more: str = "isa=avx2") -> list[str]:
    """Return why the graph stays as it is, which it must."""
    (done,) = pipeline.run(graph, pipeline.parse(f'quantize_static(ranges="{path}", {more})'))
    assert str(done.graph) == str(graph)
    return [reason.split(": ", 1)[1] for reason in done.skipped]


def other(kind="conv", shape=(None, 9, 8, C), dtype="float32", before=None, **attrs):
    """Return a net of one layer of any kind, which may be one that TensorFlow does not run."""

    def make():
        x = image(shape) if before is None else before(image(shape))
        layer(kind, tf.cast(x, dtype), "layer", bias=False, **attrs)

    return net(make, outputs=("layer",))


def signed_conv() -> Graph:
    sizes = {"shape": (None, None, None, C), "strides": [1, 2, 2, 1]}
    return other(before=lambda x: x - 0.5, **sizes)


def placed() -> Graph:
    graph = other()
    graph.replace(graph["layer"], replace(graph["layer"], device="/device:GPU:0"))
    return graph


LEFT_ALONE = {
    "double": (
        lambda: other(dtype="float64", weights=np.ones((3, 3, C, 2))),
        because("type-unfit", type="float64", expected="float32"),
    ),
    "half": (
        lambda: other(dtype="float16", weights=np.ones((3, 3, C, 2), "half")),
        because("type-unfit", type="float16", expected="float32"),
    ),
    "integers": (
        lambda: other("matmul", (None, C), "int32", weights=np.ones((C, 5), "int32")),
        because("type-unfit", type="int32", expected="float32"),
    ),
    "channels first": (
        lambda: other(shape=(None, C, 9, 8), data_format="NCHW", weights=random(3, 3, C, 2)),
        because("layout-unfit", layout="NCHW"),
    ),
    "groups": (
        lambda: other(weights=random(3, 3, C // 2, 4)),
        because("kernel-groups", op="_FusedQuantizedConv2D"),
    ),
    "explicit depthwise": (
        lambda: other("depthwise", **EXPLICIT, explicit_paddings=[0, 0, 1, 1, 1, 1, 0, 0]),
        because("kernel-no-explicit-padding", op="_FusedQuantizedDepthwiseConv2D"),
    ),
    "signed input": (
        signed_conv,
        because("input-signed"),
    ),
    "a GPU": (placed, because("device-unfit", device="/device:GPU:0", op="_FusedQuantizedConv2D")),
    "never active": (
        lambda: other(weights=np.zeros((3, 3, C, 2), np.float32)),
        because("never-active", tensor="layer"),
    ),
}


@pytest.mark.parametrize(("make", "reason"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(make, reason, tmp_path):
    graph = make()
    path = tmp_path / "any.ranges.json"
    low = -0.5 if make is signed_conv else 0.0
    active = 0.0 if shows(reason, "never-active") else 1.0
    path.write_text(
        json.dumps(
            {
                "format": 1,
                "model_sha256": "",
                "samples": 1,
                "tensors": {
                    name: {
                        "min": low,
                        "max": active if name == "layer" else 1.0,
                        "channel_mean": [0.0] * C,
                        "channel_min": [0.0] * C,
                    }
                    for name in (node.name for node in graph if node.op != "Const")
                },
            }
        )
    )
    assert left_alone(graph, str(path)) == [reason]


def test_every_layer_can_stay_float(tmp_path):
    graph = inception()
    path = calibrated(graph, tmp_path)
    layers = [node.name for node in graph if node.op in OPS]
    for name in layers:
        result = quantized(graph, path, f"isa=avx2, keep_float={name}")
        assert len(kinds(result)) == len(layers) - 1
        assert sqnr(graph, result) >= BAR_DB
    every = ", ".join(f"keep_float={name}" for name in layers)
    assert left_alone(graph, path, every) == [because("listed", option="keep_float")] * len(layers)


def test_layers_in_branches_and_loops_stay(tmp_path):
    def make():
        y = relu(layer("conv", image(), "first"))
        pick = tf.raw_ops.Switch(data=y, pred=tf.reduce_sum(y) > 0)
        one, two = (layer("conv", y, name) for y, name in zip(pick, ("no", "yes"), strict=True))
        tf.raw_ops.Merge(inputs=[one, two], name="out")

    graph = net(make)
    floats = {"x": random(1, 9, 8, C, low=0.0)}
    known = {name: TensorRange(0, 4) for name in ("x", "Relu")}
    path = tmp_path / "ranges.json"
    path.write_text(Ranges("", 1, known).text())
    result = quantized(graph, str(path))
    assert len(kinds(result)) == 1
    assert len(run(result, floats)) == 1


def test_nothing_to_quantize(tmp_path):
    def make():
        text = tf.compat.v1.placeholder(tf.string, [None], name="x")
        tf.strings.length(text, name="out")

    path = calibrated(residual(), tmp_path)
    assert left_alone(net(make), path) == []


def test_a_tensor_that_is_fed_is_read_as_it_is_fed(tmp_path):
    graph = residual()
    path = calibrated(graph, tmp_path)
    graph.inputs = ("x", "first/relu")
    result = quantized(graph, path)
    feeds = feeds_of(residual(), 3) | {"first/relu": random(3, 9, 8, C, low=0.0)}
    (difference,) = compare(run(graph, feeds), run(result, feeds))
    assert difference.sqnr_db >= 20  # other values than the ranges were taken on


def test_who_waited_still_waits(tmp_path):
    graph = one_layer("conv", "Relu")
    path = calibrated(graph, tmp_path)
    graph.add(Node("side", "NoOp"))
    graph.replace(graph["layer/biased"], graph["layer/biased"].with_control_inputs("^side"))
    assert quantized(graph, path)["Relu/codes"].control_inputs == ("^side",)


def test_weights_that_are_no_numbers(tmp_path):
    weights = random(3, 3, C, 2)
    path = calibrated(other(weights=weights), tmp_path)
    weights[0, 0, 0, 0] = np.nan
    with pytest.raises(GraphError, match=says("weights-nan", node="layer")):
        quantized(other(weights=weights), path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("keep_float=laier", says("missing", name="laier")),
        ("isa=sse", says("not-one-of", what="isa", got="sse")),
    ],
)
def test_wrong_parameters(more, message, tmp_path):
    graph = one_layer("conv", "Relu")
    with pytest.raises(GraphError, match=message):
        quantized(graph, calibrated(graph, tmp_path), more)


def test_ranges_of_another_graph(tmp_path):
    graph = other(shape=(None, 9, 8, C))
    with pytest.raises(GraphError, match=says("ranges-of-other-graph")):
        quantized(graph, calibrated(inception(), tmp_path))


def saturating() -> Graph:
    """Return a layer whose weights and inputs are as large as they can be, in pairs."""

    def make():
        weights = np.full((3, 3, C, 4), 1.0, np.float32) * random(4, low=0.5)
        relu(layer("conv", image(), "layer", weights=weights), "out")

    return net(make)


@pytest.mark.parametrize(("isa", "right"), [("avx2", True), ("vnni", False)])
def test_pairs_do_not_saturate_without_vnni(isa, right, tmp_path):
    """The kernel is held to AVX2; with all levels for each weight it gives wrong sums there."""
    graph = saturating()
    feeds = {"x": np.ones((2, 9, 8, C), np.float32)}
    path = tmp_path / "ones.ranges.json"
    path.write_text(ranges_of(graph, [feeds]).text())
    content = b"".join(quantized(graph, str(path), f"isa={isa}").serialized())
    forced = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    worker = Worker("deploykit.transforms.runtime.session:Session", content, False, forced=forced)
    try:
        (difference,) = compare(run(graph, feeds), worker.ask("run", ["out"], feeds))
    finally:
        worker.close()
    assert (difference.sqnr_db >= BAR_DB) == right


def test_a_chain_of_1_500_layers(tmp_path):
    graph = one_layer("matmul, no bias", "")
    path, weights = Path(calibrated(graph, tmp_path)), graph["layer"].inputs[1]
    document = json.loads(path.read_text())
    source = "x"
    for i in range(1_500):
        graph.add(Node(f"s{i}", "MatMul", (source, weights), graph["layer"].attrs))
        source = f"s{i}"
        document["tensors"][source] = {
            "min": 0, "max": 1, "channel_mean": [], "channel_min": []
        }  # fmt: skip
    graph.replace(graph["layer"], graph["layer"].with_data_inputs(source, weights))
    path.write_text(json.dumps(document))
    assert ops(quantized(graph, str(path)))["_QuantizedMatMul"] == 1_501


def test_weights_of_a_transposed_matmul(tmp_path):
    def make():
        tf.raw_ops.MatMul(a=image((None, C)), b=random(5, C), transpose_b=True, name="out")

    graph = net(make)
    (node,) = (n for n in equal(graph, tmp_path, -1.0) if n.op == "_QuantizedMatMul")
    assert channel_axes(graph["out"]) == (0,)
    assert node.attr("transpose_b", False) is False


def two_products(activate, between=lambda y: y, second="matmul") -> Graph:
    """Return an activation between two products, and what may lie in between."""

    def make():
        y = activate(layer("matmul", image((None, C)), "first", 16, weights=3 * random(C, 16)))
        y = between(tf.identity(y, name="made"))
        tf.identity(layer(second, y, "second"), name="out")

    return transform(net(make), "remove_nodes(op=Identity)")


def gelu(approximate=False):
    return lambda y: tf.nn.gelu(y, approximate=approximate)


@pytest.mark.parametrize("name", ["GeluExact", "GeluApproximate", "Relu"])
def test_products_hand_activations_on_as_codes(name, tmp_path):
    activate = relu if name == "Relu" else gelu(name == "GeluApproximate")
    graph = two_products(activate)
    result = equal(graph, tmp_path, -1.0)
    assert kinds(result) == [f"BiasAdd {name} Requantize", "BiasAdd Dequantize"]
    assert ops(result)["QuantizeV2"] == 1
    assert {"Erf", "Erfc", "Tanh", "Relu", "Dequantize"}.isdisjoint(ops(result))


def test_codes_of_a_gelu_pass_a_reshape_and_go_into_convolutions(tmp_path):
    """Zeros around an image are not the code 0, which stands for the lowest value of the GELU."""

    def between(y):
        return tf.reshape(y, [-1, 2, 2, 4])

    graph = two_products(gelu(), between, "conv")
    result = equal(graph, tmp_path, -1.0)
    assert kinds(result)[:1] == ["BiasAdd GeluExact Dequantize"]
    alone = net_with_two_readers()
    result = equal(alone, tmp_path, -1.0)
    assert "BiasAdd GeluExact Requantize" in kinds(result)
    conv = next(node for node in result if node.op == OPS["Conv2D"])
    zeros = result.producer(result.producer(conv.inputs[0]).inputs[0])
    assert zeros.op == "PadV2"
    assert result.constant(zeros.inputs[2]).value > 0
    assert ops(result)["QuantizeV2"] == 1


def net_with_two_readers() -> Graph:
    """Return a GELU that a product reads, and a convolution with zeros around."""

    def make():
        y = layer("matmul", image((None, C)), "first", 16, weights=3 * random(C, 16))
        y = gelu()(y)
        small = layer("matmul", y, "second")
        picture = layer("conv", tf.reshape(y, [-1, 2, 2, 4]), "third", 4)
        tf.add(tf.reduce_sum(small, 1), tf.reduce_sum(picture, [1, 2, 3]), name="out")

    return net(make)


def test_an_activation_that_others_read_too_is_there_in_floats(tmp_path):
    graph = two_products(gelu())
    made = gelu_of(graph, graph["first/biased"]).nodes[-1].name
    graph.outputs = ("out", made)
    result = equal(graph, tmp_path, -1.0)
    assert kinds(result)[0] == "BiasAdd GeluExact Requantize"
    assert ops(result)["Dequantize"] == 1


def test_what_no_product_reads_is_floats(tmp_path):
    graph = two_products(gelu(), between=abs)
    assert kinds(equal(graph, tmp_path, -1.0)) == [
        "BiasAdd GeluExact Dequantize",
        "BiasAdd Dequantize",
    ]


GRAPHS = [
    Example(
        "quantize_static(ranges={ranges}, isa=avx2)",
        lambda: one_layer("conv", "Relu"),
        bar=0.1,
        low=0.0,
    )
]
