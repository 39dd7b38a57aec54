"""The machine's limits, measured for real, and what follows from them."""

import pytest

from deploykit.benchmarking.devices import config
from deploykit.benchmarking.profiling import roofline
from deploykit.benchmarking.profiling.roofline import Peak, peak
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.child_process import call
from tests.support import raises, tf

PEAK = Peak(gflops=100.0, gigabytes=10.0, matrix=1024, array_bytes=1 << 27)


@pytest.mark.slow
def test_a_peak_is_measured_in_a_child_with_its_threads():
    found = call("deploykit.benchmarking.profiling.roofline:peak", RunConfig(threads=(1, 1)))
    assert 0.01 < found.gflops < 1e6
    assert 0.01 < found.gigabytes < 1e5
    assert found.matrix in (512, 1024, 2048, 4096, 8192)
    assert 64 << 20 <= found.array_bytes <= 256 << 20


@pytest.mark.slow
def test_it_leaves_no_graph_behind():
    before = len(tf.compat.v1.get_default_graph().as_graph_def().node)
    assert peak(RunConfig()).matrix
    assert len(tf.compat.v1.get_default_graph().as_graph_def().node) == before


def rates(precision: str, count: int):
    """Measure this machine as a GPU is: several operations a call, and arrays as large as fit."""
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config(RunConfig())) as session:
        memory = roofline._gpu_memory_rate(session)
        return roofline._matmul_rate(session, precision, count), memory


def test_several_operations_a_call_have_the_rate_of_one(monkeypatch):
    """A call that costs more than its operation would say less than the device does."""
    monkeypatch.setattr(roofline, "_SIZES", (256,))
    monkeypatch.setattr(roofline, "_GPU_ARRAY_BYTES", (64 << 20, 32 << 20))

    def in_a_second(call, seconds):
        call()
        return 1.0

    monkeypatch.setattr(roofline, "_best", in_a_second)
    for count in (1, 10):
        (gflops, matrix), (gigabytes, size) = rates("fp32", count)
        assert (matrix, size) == (256, 64 << 20)
        assert gflops == pytest.approx(2 * count * 256**3 / 1e9)
        assert gigabytes == pytest.approx(3 * roofline._GPU_OPS * size / 1e9)
    tried = []

    def out_of_memory(session, size, count, seconds):
        tried.append(size)
        if size > 32 << 20:
            raise tf.errors.ResourceExhaustedError(None, None, "no memory")
        return 7.0

    monkeypatch.setattr(roofline, "_sums", out_of_memory)
    assert rates("fp32", 1)[1] == (7.0, 32 << 20)
    assert tried == [64 << 20, 32 << 20]


def test_which_precisions_are_measured():
    assert roofline._precisions(RunConfig(), "fp32") == ["fp32"]
    assert roofline._precisions(RunConfig(precision="bf16"), "fp32") == ["fp32", "bf16"]
    assert roofline._precisions(RunConfig(device="gpu"), "tf32") == ["fp32", "tf32", "fp16", "bf16"]
    assert roofline._precisions(RunConfig(device="gpu"), "fp32") == ["fp32", "fp16", "bf16"]


@pytest.mark.slow  # TensorFlow waits 10 seconds for memory
def test_too_little_memory_is_one_sentence(monkeypatch):
    monkeypatch.setattr(roofline, "_ARRAY_BYTES", (1 << 46, 1 << 46))
    with raises(LimitError, "peak-not-measured"):
        peak(RunConfig())


@pytest.mark.parametrize(
    ("flops", "moved", "milliseconds", "bound"),
    [
        (10**9, 10**6, 10.0, "compute"),
        (10**6, 10**8, 10.0, "memory"),
        (10**9, 10**8, 10.0, "compute"),
        (0, 10**7, 1.0, "memory"),
        (0, 0, 0.0, "compute"),
    ],
)
def test_what_work_takes_at_least(flops, moved, milliseconds, bound):
    assert PEAK.milliseconds(flops, moved) == (pytest.approx(milliseconds), bound)
