"""Traces as TensorFlow writes them on a GPU: a node takes its kernels' time, not its launch's.

They are made of a trace of this machine's CPU by the rules of TensorFlow's
xplane_to_step_stats.cc (2.21): every kernel is on its stream and on one of all streams, every copy
on its stream and on one of all copies, in whole microseconds.
"""

import re

import numpy as np
import pytest

from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.profiling import traced_calls
from deploykit.benchmarking.profiling.execution import ExecutedGraph
from deploykit.benchmarking.profiling.profile import profile_tables
from deploykit.benchmarking.profiling.traced_calls import trace
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.documents import document
from tests.support import Containing, build, random, shows, tf

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
LAUNCH_US, KERNEL_US = 10, 3000
DETAILS = "regs:32 static_shared:0 dynamic_shared:49152 grid:64,1,1 block:256,1,1 occ_pct:50"
KERNEL = "void cutlass::Kernel<cutlass_80_simt_sgemm, (int)4>(Params)"


def layers():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
    y = tf.nn.relu(tf.matmul(x, random(8, 16), name="block/dense"), name="relu")
    tf.nn.softmax(tf.matmul(y, random(16, 4), name="head"), name="out")


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    path = tmp_path_factory.mktemp("gpu") / "graph.pb"
    path.write_bytes(b"".join(build(layers, ["x"], ["out"]).serialized()))
    job = Job(str(path), ("x",), ("out",), ((random(2, 8),),), RunConfig(threads=(1, 1)))
    return TensorFlowRunner(job)


def add(step_stats, device, node_name, label, start, took):
    """Add what ran on a stream, as TensorFlow does: times in whole microseconds."""
    stats = next((each for each in step_stats.dev_stats if each.device == device), None)
    if stats is None:
        stats = step_stats.dev_stats.add(device=device)
    stats.node_stats.add(
        node_name=node_name, timeline_label=label, all_start_micros=start,
        op_start_rel_micros=0, op_end_rel_micros=took, all_end_rel_micros=took,
    )  # fmt: skip


def layers_of(host):
    """Yield the names and the ops of the layers that the host ran."""
    for node in host.node_stats:
        op = re.search(r" = (\w+)\(", node.timeline_label)
        if op is not None and "MatMul" in op[1]:
            yield node.node_name, op[1]


def on_gpu(metadata, *, kernels=True, clock=0, kernel_us=KERNEL_US):
    """Return what TensorFlow would have written, had the nodes been on a GPU."""
    stats = metadata.step_stats
    host = stats.dev_stats[0]
    host.device = GPU
    at = min(node.all_start_micros for node in host.node_stats)
    for graph in metadata.partition_graphs:
        for node in graph.node:
            node.device = GPU
    for node in host.node_stats:
        node.op_start_rel_nanos, node.op_end_rel_nanos = 0, 1000 * LAUNCH_US
        node.op_start_rel_micros, node.op_end_rel_micros = 0, LAUNCH_US
    if not kernels:
        return metadata
    now = at + 50 + clock
    for device in ("/device:GPU:0/stream:14<MemcpyH2D>", "/device:GPU:0/memcpy"):
        label = "MemcpyH2D kind_src:pageable kind_dst:device size:64 dest:0 async:1"
        add(stats, device, "edge_7_x:MemcpyH2D", label, now, 20)
    now += 20
    for name, op in layers_of(host):
        for _ in range(2):
            for device in ("/device:GPU:0/stream:13", "/device:GPU:0/stream:all"):
                add(stats, device, f"{name}:{op}", f"{KERNEL} {DETAILS}", now, kernel_us // 2)
            now += kernel_us // 2
    for device in ("/device:GPU:0/stream:13", "/device:GPU:0/stream:all"):
        add(stats, device, "void cub::scan<float>(Args)", f"void cub::scan<float>(Args) {DETAILS}",
            now, 5)  # fmt: skip
    for device in ("/device:GPU:0/stream:15<MemcpyD2H>", "/device:GPU:0/memcpy"):
        label = "MemcpyD2H kind_src:device kind_dst:pageable size:32 dest:0 async:1"
        add(stats, device, "MemcpyD2H", label, now + 5, 7)
    add(stats, "/device:GPU:0/sync", "cuStreamSynchronize", "ThreadId 3", now, 40)
    return metadata


@pytest.fixture
def profiled(runner):
    """Profile the runner's job as if it ran on a GPU."""

    def profile(**how):
        def run_once(options=None):
            taken, metadata = runner.run_once(options)
            return taken, None if metadata is None else on_gpu(metadata, **how)

        return traced_calls.profile(run_once, runner.job, 3)

    return profile


@pytest.mark.parametrize("clock", [0, -(10**15)])
def test_a_node_takes_the_time_of_its_kernels(profiled, clock):
    """Also where the streams have another clock than the host."""
    found = profiled(clock=clock)
    nodes = {node.name: node for node in found.nodes}
    heavy = [node for node in nodes.values() if "MatMul" in node.op]
    assert len(heavy) == 2
    assert nodes["head"].flops == 2 * 2 * 16 * 4
    for node in heavy:
        assert node.ms == pytest.approx(KERNEL_US / 1e3)
        assert node.launch_ms == pytest.approx(LAUNCH_US / 1e3)
        assert node.calls == 1
        assert node.flops > 0
    light = [node for node in nodes.values() if node.launch_ms and node not in heavy]
    assert light
    assert all(node.ms == 0 for node in light)
    assert found.total.ms == pytest.approx(2 * KERNEL_US / 1e3 + 0.005)
    assert found.launch_ms == pytest.approx(LAUNCH_US / 1e3 * (len(heavy) + len(light)))
    assert found.span_ms == pytest.approx(found.total.ms + 0.027, abs=0.002)


def test_a_kernel_without_a_node_is_shown_by_its_own_name(profiled):
    (node,) = [each for each in profiled().nodes if "cub" in each.name]
    assert node.op == "void cub::scan<float>(Args)"
    assert (node.ms, node.launch_ms) == (pytest.approx(0.005), 0)


def test_kernels_and_copies_are_told_apart_and_counted_once(profiled):
    found = profiled()
    streams = {
        each.kind: (each.calls, pytest.approx(each.ms), each.moved) for each in found.streams
    }
    assert streams == {
        "kernel": (5, 2 * KERNEL_US / 1e3 + 0.005, 0),
        "MemcpyH2D": (1, 0.02, 64),
        "MemcpyD2H": (1, 0.007, 32),
    }
    assert document(found)["streams"][0]["kind"] == "kernel"
    lines = [each for each in profile_tables(found) if isinstance(each, str)]
    (line,) = [each for each in lines if each.startswith("GPU:")]
    assert "kernels 6.00 ms" in line
    assert line == Containing("0.02 ms (0.0", "MB)", "0.01 ms")
    assert shows(line, "launch-time")


def test_without_cupti_no_time_is_made_up(profiled):
    found = profiled(kernels=False)
    assert found.streams == ()
    assert found.total.ms == 0
    assert found.launch_ms > 0
    said = " ".join(each for each in profile_tables(found) if isinstance(each, str))
    assert shows(said, "no-kernel-traced")


def test_the_trace_shows_kernels_by_name_once(runner):
    options = tf.compat.v1.RunOptions(
        trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True
    )
    metadata = on_gpu(runner.run_once(options)[1])
    events = ExecutedGraph(metadata.partition_graphs).events(metadata.step_stats)
    shown = [e for e in trace({"m": events})["traceEvents"] if e["ph"] == "X"]
    kernels = [each for each in shown if each["cat"] == "kernel"]
    assert {each["name"] for each in kernels} == {KERNEL, "void cub::scan<float>(Args)"}
    assert len(kernels) == 5
    assert {each["cat"] for each in shown} == {"launch", "kernel", "copy", "wait"}
    assert all(each["ts"] >= 0 for each in shown)
    assert np.isclose(sum(each["dur"] for each in kernels), 2 * KERNEL_US + 5)
