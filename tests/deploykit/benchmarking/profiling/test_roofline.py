"""The machine's limits, measured for real, and what follows from them."""

import pytest

from deploykit.benchmarking.profiling import roofline
from deploykit.benchmarking.profiling.roofline import Peak, peak
from deploykit.benchmarking.settings import Settings
from deploykit.transforms.core.errors import LimitError
from deploykit.transforms.core.running.child import call

PEAK = Peak(gflops=100.0, gigabytes=10.0, matrix=1024, array_bytes=1 << 27)


def test_a_peak_is_measured_in_a_child_with_its_threads():
    found = call("deploykit.benchmarking.profiling.roofline:peak", Settings(threads=(1, 1)))
    assert 0.01 < found.gflops < 1e6
    assert 0.01 < found.gigabytes < 1e5
    assert found.matrix in (512, 1024, 2048, 4096, 8192)
    assert 64 << 20 <= found.array_bytes <= 256 << 20


def test_it_leaves_no_graph_behind():
    import tensorflow as tf

    before = len(tf.compat.v1.get_default_graph().as_graph_def().node)
    assert peak(Settings()).matrix
    assert len(tf.compat.v1.get_default_graph().as_graph_def().node) == before


@pytest.mark.slow  # TensorFlow waits 10 seconds for memory
def test_too_little_memory_is_one_sentence(monkeypatch):
    monkeypatch.setattr(roofline, "_ARRAY_BYTES", (1 << 46, 1 << 46))
    with pytest.raises(LimitError, match=r"peak cannot be measured: .* --memory-limit"):
        peak(Settings())


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
