"""A profile of graphs whose operations are known by hand, as TensorFlow fuses and runs them."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling.execution import Event, ExecutedGraph, layer_of
from deploykit.benchmarking.profiling.profile import profile_tables
from deploykit.benchmarking.profiling.traced_calls import _times, trace
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.child_process import Worker
from tests.support import build, raises, random, shows, tf

BY_HAND = {  # at batch 1
    "Conv2D": 2 * (16 * 16 * 16) * (3 * 3 * 8),
    "DepthwiseConv2dNative": 2 * (8 * 8 * 16) * (3 * 3),
    "MatMul": 2 * 16 * 10,
}


def layers():
    x = tf.compat.v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
    y = tf.nn.conv2d(x, random(3, 3, 8, 16), 1, "SAME", name="conv")
    y = tf.nn.relu(tf.nn.bias_add(y, random(16)), name="conv_relu")
    y = tf.nn.depthwise_conv2d(y, random(3, 3, 16, 1), [1, 2, 2, 1], "SAME", name="depthwise")
    y = tf.matmul(tf.reduce_mean(y, [1, 2]), random(10, 16), transpose_b=True, name="dense")
    tf.nn.softmax(tf.nn.bias_add(y, random(10)), name="out")


def folded_layer():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    weights = tf.matmul(random(4, 3), random(3, 5), name="of_constants")
    tf.nn.relu(tf.matmul(x, weights, name="dense"), name="out")


def loop():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    _, y = tf.while_loop(
        lambda i, _: i < 5, lambda i, y: (i + 1, tf.matmul(y, random(4, 4), name="step")), (0, x)
    )
    tf.identity(y, name="out")


def call():
    @tf.function(experimental_attributes={"_noinline": True})
    def function(x):
        return tf.matmul(x, random(4, 4), name="inside")

    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    tf.identity(function(x), name="out")


def eight_bits():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 4], name="x")
    image = tf.raw_ops.QuantizeV2(input=x, min_range=-1.0, max_range=1.0, T=tf.quint8)
    weights = tf.raw_ops.QuantizeV2(
        input=random(3, 3, 4, 6), min_range=-1.0, max_range=1.0, T=tf.quint8
    )
    y = tf.raw_ops.QuantizedConv2D(
        input=image.output,
        filter=weights.output,
        min_input=image.output_min,
        max_input=image.output_max,
        min_filter=weights.output_min,
        max_filter=weights.output_max,
        strides=[1, 2, 2, 1],
        padding="SAME",
    )
    tf.cast(tf.bitcast(y.output, tf.int32), tf.float32, name="out")


def two_devices():
    x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
    with tf.device("/cpu:1"):
        y = tf.matmul(tf.nn.relu(x), random(4, 6), name="there")
    with tf.device("/cpu:0"):
        tf.matmul(y, random(6, 3), name="out")


def job(tmp_path, body, *shape: int) -> Job:
    path = tmp_path / "graph.pb"
    path.write_bytes(b"".join(build(body, ["x"], ["out"]).serialized()))
    return Job(str(path), ("x",), ("out",), ((random(*shape),),), RunConfig(threads=(2, 1)))


def run(runner: TensorFlowRunner) -> list[Event]:
    options = tf.compat.v1.RunOptions(
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True
    )
    metadata = runner.run_once(options)[1]
    return ExecutedGraph(metadata.partition_graphs).events(metadata.step_stats)


@pytest.fixture(scope="module", params=[1, 3])
def found(request, tmp_path_factory):
    worker = Worker(
        "deploykit.benchmarking.engines.tensorflow_runner:TensorFlowRunner",
        job(tmp_path_factory.mktemp("profile"), layers, request.param, 16, 16, 8),
    )
    try:
        yield worker.ask("profile", 4)
    finally:
        worker.close()


def check_counts(found) -> None:
    """Hold the operations of each layer against those by hand."""
    counted = dict.fromkeys(BY_HAND, 0)
    for node in found.nodes:
        if (layer := layer_of(node.op)) is not None:
            counted[layer] += node.flops
        else:
            assert node.flops == 0
    assert counted == {layer: found.samples * count for layer, count in BY_HAND.items()}
    assert found.total.flops == found.model_flops
    assert found.unattributed_share == 0
    assert found.uncounted == ()


@pytest.mark.slow
def test_each_layer_is_counted_once_though_it_is_fused(found):
    assert any("Fused" in node.op for node in found.nodes)
    assert not any(node.name == "conv" for node in found.nodes)  # fused into one of its readers
    check_counts(found)


def test_operations_counted_twice_are_caught(found):
    fused = next(node for node in found.nodes if "FusedConv2D" in node.op)
    twice = replace(found, nodes=(*found.nodes, replace(fused, name="conv", op="Conv2D")))
    with pytest.raises(AssertionError):
        check_counts(twice)


def test_the_sums_are_right(found):
    for costs in (found.nodes, found.ops):
        for field in ("calls", "ms", "allocated", "moved", "flops"):
            total = sum(getattr(cost, field) for cost in costs)
            assert getattr(found.total, field) == pytest.approx(total)
        assert sum(map(found.share, costs)) == pytest.approx(1)
        assert [cost.ms for cost in costs] == sorted((cost.ms for cost in costs), reverse=True)
    assert len({node.name for node in found.nodes}) == len(found.nodes)
    assert 0 < found.busy_ms <= found.span_ms
    assert 0 <= found.idle_share < 1
    assert min(found.untraced_ms, found.traced_ms) > 0


def test_bytes(found):
    batch = found.samples
    (conv,) = (node for node in found.nodes if layer_of(node.op) == "Conv2D")
    image, result = 16 * 16 * 8 * batch, 16 * 16 * 16 * batch
    assert conv.moved == 4 * (image + 3 * 3 * 8 * 16 + 16 + result)
    assert conv.allocated >= 4 * result
    assert all(node.moved == 0 for node in found.nodes if node.op in ("Const", "_Arg", "_Retval"))


def test_the_trace(found):
    document = json.loads(json.dumps(trace({"model": found.events}), allow_nan=False))
    events = [each for each in document["traceEvents"] if each["ph"] == "X"]
    assert sorted(each["args"]["node"] for each in events) == sorted(n.name for n in found.nodes)
    ops = {node.name: node.op for node in found.nodes}
    assert all(each["name"] == ops[each["args"]["node"]] for each in events)
    assert all(each["ts"] >= 0 and each["dur"] >= 0 for each in events)
    assert sum(each["args"].get("flops", 0) for each in events) == found.total.flops
    named = [each for each in document["traceEvents"] if each["ph"] == "M"]
    assert {each["pid"] for each in named} == {each["pid"] for each in events}
    assert len(named) + len(events) == len(document["traceEvents"])


def test_the_document_is_json(found):
    read = json.loads(json.dumps(document(found), allow_nan=False))
    assert read["total"]["flops"] == sum(node["flops"] for node in read["nodes"])
    assert [node["name"] for node in read["nodes"]] == [node.name for node in found.nodes]


@pytest.mark.parametrize(("top", "tables"), [(0, 1), (2, 2), (1000, 2)])
def test_the_tables(found, top, tables):
    text = profile_tables(found, top)
    shown = [each for each in text if not isinstance(each, str)]
    assert len(shown) == tables
    assert len(shown[0].rows) == len(found.ops) + 1
    if tables == 2:
        assert len(shown[1].rows) == min(top, len(found.nodes))
    lines = "\n".join(each for each in text if isinstance(each, str))
    assert f"{found.samples} sample" in lines
    assert not shows(lines, "flops-elsewhere")


def test_what_was_computed_beforehand_is_told(tmp_path):
    found = TensorFlowRunner(job(tmp_path, folded_layer, 2, 4)).profile(2)
    assert found.model_flops == 2 * 4 * 5 * 3 + 2 * 2 * 5 * 4
    assert found.total.flops == 2 * 2 * 5 * 4
    assert found.unattributed_share == pytest.approx(120 / 200)
    lines = [each for each in profile_tables(found) if isinstance(each, str)]
    assert any(shows(line, "flops-elsewhere", share="60.0") for line in lines)


def test_a_node_in_a_loop_counts_each_time(tmp_path):
    steps = [event for event in run(TensorFlowRunner(job(tmp_path, loop, 3, 4))) if event.flops]
    assert [event.flops for event in steps] == [2 * 3 * 4 * 4] * 5
    assert len({event.node for event in steps}) == 1


def test_an_8_bit_layer_counts_as_its_float_one(tmp_path):
    layers = [
        event
        for event in run(TensorFlowRunner(job(tmp_path, eight_bits, 3, 8, 8, 4)))
        if event.flops
    ]
    assert [event.flops for event in layers] == [3 * 2 * (4 * 4 * 6) * (3 * 3 * 4)]
    image, weights, result = 3 * 8 * 8 * 4, 3 * 3 * 4 * 6, 3 * 4 * 4 * 6
    assert layers[0].moved == image + weights + 4 * result + 6 * 4  # and six ends of ranges


def test_what_a_called_function_runs_counts_once(tmp_path):
    events = run(TensorFlowRunner(job(tmp_path, call, 3, 4)))
    assert not any("Call" in event.op for event in events)
    (inside,) = (event for event in events if event.node == "inside")
    assert inside.flops is None  # it is listed as not counted, since its inputs are not told


def test_a_layer_on_another_device_knows_what_it_was_sent(tmp_path):
    runner = TensorFlowRunner(job(tmp_path, two_devices, 5, 4))
    runner.config.device_count["CPU"] = 2
    runner.session = tf.compat.v1.Session(graph=runner.graph, config=runner.config)
    events = run(runner)
    assert len({event.device for event in events}) == 2
    assert sum(event.flops or 0 for event in events) == 2 * 5 * 4 * 6 + 2 * 5 * 6 * 3
    assert all(event.flops is not None for event in events)
    pids = {each["pid"] for each in trace({"model": events})["traceEvents"]}
    assert pids == {0, 1}


def test_a_refusal_is_one_sentence(tmp_path):
    runner = TensorFlowRunner(job(tmp_path, folded_layer, 2, 7))
    with raises(GraphError, "runtime-failed", runtime="TensorFlow", action="run the graph"):
        runner.profile(1)


@pytest.mark.parametrize(
    ("op", "layer"),
    [
        ("Conv2D", "Conv2D"),
        ("_FusedConv2D", "Conv2D"),
        ("_MklNativeConv2D", "Conv2D"),
        ("_MklNativePadWithFusedConv2D", "Conv2D"),
        ("FusedPadConv2D", "Conv2D"),
        ("FusedResizeAndPadConv2D", "Conv2D"),
        ("_FusedQuantizedConv2D", "Conv2D"),
        ("QuantizedConv2DWithBiasAndReluAndRequantize", "Conv2D"),
        ("QuantizedConv2DPerChannel", "Conv2D"),
        ("_MklNativeFusedDepthwiseConv2dNative", "DepthwiseConv2dNative"),
        ("_FusedQuantizedDepthwiseConv2D", "DepthwiseConv2dNative"),
        ("_MklFusedBatchMatMulV2", "BatchMatMulV2"),
        ("_MklMatMul", "MatMul"),
        ("_QuantizedMatMul", "MatMul"),
        ("_MklNativeConv2DBackpropInput", "Conv2DBackpropInput"),
        ("_FusedConv3D", "Conv3D"),
        ("Conv2DBackpropInputV2", None),
        ("Conv2DBackpropFilter", None),
        ("DepthwiseConv2dNativeBackpropInput", None),
        ("SparseMatMul", None),
        ("_FusedBatchNormEx", None),
        ("Relu", None),
    ],
)
def test_the_layer_of_an_executed_op(op, layer):
    assert layer_of(op) == layer


def test_nodes_that_run_at_once_lie_in_lanes_of_their_own():
    random_ = np.random.default_rng(0)
    starts = random_.integers(0, 10**6, 200)
    events = [
        Event(
            f"n{i}", "Op", f"/device:CPU:{i % 2}", int(start), int(start + random_.integers(1, 9e4))
        )
        for i, start in enumerate(starts)
    ]
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for each in trace({"model": events})["traceEvents"]:
        if each["ph"] == "X":
            lanes.setdefault((each["pid"], each["tid"]), []).append((each["ts"], each["dur"]))
    assert {pid for pid, _ in lanes} == {0, 1}
    assert len(lanes) > 2
    assert sum(map(len, lanes.values())) == len(events)
    for lane in lanes.values():
        for (start, duration), (next_start, _) in pairwise(sorted(lane)):
            assert start + duration <= next_start + 1e-6


def test_a_trace_holds_each_model_apart():
    events = [Event("n", "Op", "/job:localhost/replica:0/task:0/device:CPU:0", 5000, 6000)]
    later = [Event("n", "Op", "/device:GPU:0/stream:13", 9000, 9500)]
    document = trace({"a": events, "b": [*events, *later]})
    names = {each["pid"]: each["args"]["name"] for each in document["traceEvents"]
             if each["name"] == "process_name"}  # fmt: skip
    assert names == {0: "a CPU:0", 1: "b CPU:0", 2: "b GPU:0/stream:13"}
    runs = [(each["pid"], each["ts"], each["dur"], each["cat"]) for each in document["traceEvents"]
            if each["ph"] == "X"]  # fmt: skip
    assert runs == [(0, 0, 1, "node"), (1, 0, 1, "node"), (2, 4, 0.5, "kernel")]


def test_time_without_a_node():
    events = [Event(n, "Op", "/device:CPU:0", *times) for n, times in (
        ("a", (1000, 2000)), ("b", (1500, 3000)), ("c", (1600, 1700)), ("d", (4000, 5000))
    )]  # fmt: skip
    span, busy, total = _times(events)
    assert (span, busy, total) == pytest.approx((0.004, 0.003, 0.0036))
    assert _times([]) == (0, 0, 0)
