"""What the CPUs did, as the kernel counts it."""

import time
from pathlib import Path

import pytest

from deploykit.system import cpu_usage
from deploykit.system.cpu_usage import Look
from deploykit.transforms.common.documents import document


def counted(monkeypatch, tmp_path, stat, pressure=None):
    files = {"/proc/stat": tmp_path / "stat", "/proc/pressure/cpu": tmp_path / "pressure"}
    files["/proc/stat"].write_text(stat)
    if pressure is not None:
        files["/proc/pressure/cpu"].write_text(pressure)
    monkeypatch.setattr(cpu_usage, "Path", lambda name: files[name])
    monkeypatch.setattr(cpu_usage.os, "sched_getaffinity", lambda pid: {0, 2})
    monkeypatch.setattr(cpu_usage.os, "sysconf", lambda name: 100)
    return Look.now()


def test_only_usable_cpus_count(monkeypatch, tmp_path):
    before = Look(0.0, dict.fromkeys(cpu_usage._FIELDS, 0.0), 1.0)
    stat = "cpu 1 1 1 1 1 1 1 1\ncpu0 100 20 30 40 5 0 0 5 9 9\ncpu1 900 9 9 9 9 9 9 9\n" \
           "cpu2 100 0 0 100 0 0 0 0\nintr 5\n"  # fmt: skip
    after = counted(monkeypatch, tmp_path, stat, "some avg10=0.00 total=3000000\nfull total=9\n")
    found = Look(2.0, after.ticks, after.waited).since(before)
    assert (found.busy, found.idle, found.iowait, found.steal) == (1.25, 0.7, 0.025, 0.025)
    assert found.waiting == 1.0
    assert found.foreign(own=1.0) == pytest.approx(0.275)
    assert found.foreign(own=5.0) == 0.025  # only what the host took


def test_what_the_kernel_does_not_tell_is_none(monkeypatch, tmp_path):
    files = {"/proc/stat": Path(tmp_path, "none"), "/proc/pressure/cpu": Path(tmp_path, "none")}
    monkeypatch.setattr(cpu_usage, "Path", lambda name: files[name])
    found = Look.now().since(Look.now())
    assert (found.busy, found.waiting) == (0.0, None)
    assert document(found)["waiting"] is None


@pytest.mark.sampled
def test_own_work_is_seen():
    before, end = Look.now(), time.process_time() + 0.3
    while time.process_time() < end:
        pass
    found = Look.now().since(before)
    assert found.busy * found.seconds > 0.2
