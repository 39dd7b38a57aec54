"""What GPUs and a process do meanwhile is sampled; no GPU, no NVML or no process is no error."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from deploykit.benchmarking.sampling import Sampler, live_line, open_devices

WAIT = 60  # seconds that nothing here comes near


class FakeGpu:
    """Says how busy it is, one figure more each time, and lets a test wait for the third look."""

    name = "Fake"

    def __init__(self):
        self.looks = 0
        self.third = threading.Event()

    def sample(self):
        self.looks += 1
        if self.looks == 3:
            self.third.set()
        return {"utilisation_percent": 10.0 * self.looks, "power_watts": 300.0}


@pytest.fixture
def nvml(monkeypatch):
    """NVML with two GPUs, the second of which does not tell its power."""
    import pynvml

    def power(handle):
        if handle == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 310_400

    fakes = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda number: number,
        "nvmlDeviceGetName": lambda handle: f"GPU of kind {handle}",
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=61, memory=5),
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=7_900_000_000),
        "nvmlDeviceGetPowerUsage": power,
        "nvmlDeviceGetClockInfo": lambda handle, kind: {
            pynvml.NVML_CLOCK_SM: 1980,
            pynvml.NVML_CLOCK_MEM: 3201,
        }[kind],
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(pynvml, name, fake)


def test_gpus_are_read_in_units_that_people_know(nvml):
    first, second = open_devices()
    assert (first.name, second.name) == ("GPU of kind 0", "GPU of kind 1")
    assert first.sample() == {
        "utilisation_percent": 61,
        "memory_bytes": 7.9e9,
        "power_watts": 310.4,
        "sm_mhz": 1980,
        "memory_mhz": 3201,
    }
    assert set(first.sample()) - set(second.sample()) == {"power_watts"}
    line = live_line([first.sample(), second.sample()])
    assert line == "GPU 0 61 %, 7.9 GB, 310 W; GPU 1 61 %, 7.9 GB"


def test_without_nvml_there_are_no_devices(monkeypatch):
    import pynvml

    def absent():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    assert open_devices() == []


def test_every_look_is_kept_with_its_time_and_summed_up():
    gpu, lines = FakeGpu(), []
    sampler = Sampler([gpu], lines.append, seconds=0.01)
    with sampler.watching("a model", os.getpid()):
        assert gpu.third.wait(WAIT)
    seen = gpu.looks
    (found,) = sampler.facts("a model")["devices"]
    assert found["name"] == "Fake"
    assert [each["utilisation_percent"] for each in found["samples"]] == [
        10.0 * (n + 1) for n in range(seen)
    ]
    times = [each["at_seconds"] for each in found["samples"]]
    assert times == sorted(times)
    mean = pytest.approx(10 * (seen + 1) / 2)
    assert found["utilisation_percent"] == {"mean": mean, "max": 10 * seen}
    assert found["power_watts"] == {"mean": 300, "max": 300}
    assert lines[0] == "a model: GPU 0 10 %, 300 W"
    assert len(lines) == seen


def test_it_looks_only_inside_and_keeps_names_apart():
    gpu = FakeGpu()
    sampler = Sampler([gpu], seconds=WAIT)
    for name in ("a", "b", "a"):
        with sampler.watching(name, os.getpid()):
            pass  # shorter than the time between two looks: one look at its end
    assert gpu.looks == 3
    found = {name: sampler.facts(name)["devices"][0]["samples"] for name in ("a", "b")}
    assert [each["utilisation_percent"] for each in found["a"]] == [10, 30]
    assert [each["utilisation_percent"] for each in found["b"]] == [20]


def test_without_devices_nothing_is_said():
    lines = []
    sampler = Sampler([], lines.append, seconds=0.01)
    with sampler.watching("a model", os.getpid()):
        pass
    assert sampler.facts("a model")["devices"] == []
    assert sampler.facts("another") == {"devices": [], "cpu_use": {"samples": []}}
    assert lines == []


def test_a_process_tells_its_cpu_use_and_memory():
    busy = "import sys; data = bytearray(64 << 20); print(flush=True)\nwhile True: pass"
    idle = "import sys; print(flush=True); sys.stdin.read()"
    shares = {}
    for name, code in {"busy": busy, "idle": idle}.items():
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            gpu = FakeGpu()
            sampler = Sampler([gpu], seconds=0.2)
            with sampler.watching(name, process.pid):
                assert gpu.third.wait(WAIT)
            process.kill()
        shares[name] = sampler.facts(name)["cpu_use"]
        assert len(shares[name]["samples"]) >= 3
    assert shares["busy"]["memory_bytes"]["max"] > 64 << 20
    assert shares["busy"]["percent"]["max"] > shares["idle"]["percent"]["max"]


def test_a_process_that_is_gone_has_no_use():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    sampler = Sampler([], seconds=0.01)
    with sampler.watching("gone", process.pid):
        pass
    assert sampler.facts("gone")["cpu_use"] == {"samples": []}
