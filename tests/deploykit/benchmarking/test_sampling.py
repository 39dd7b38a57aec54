"""What GPUs and a process do meanwhile is sampled; no GPU, no NVML or no process is no error."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from deploykit.benchmarking.system_load import Sampler, live_line
from deploykit.system.gpu_counters import open_devices
from tests.support import Containing

WAIT = 60  # seconds that nothing here comes near


class FakeGpu:
    """Says how busy it is, one figure more each time, and lets a test wait for the third look."""

    name = "Fake"

    def __init__(self):
        self.looks = 0
        self.third = threading.Event()

    def begin(self):
        """It has no counters."""

    def history(self, since, until):
        return self.kept(since, until)

    def kept(self, since, until):
        return []

    def sample(self, pid):
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

    def unsupported(*arguments):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

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
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=77, usedGpuMemory=5_000_000_000),
            SimpleNamespace(pid=78, usedGpuMemory=None),
        ],
        "nvmlGpmQueryDeviceSupport": unsupported,
        "nvmlDeviceGetSamples": unsupported,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(pynvml, name, fake)


def test_gpus_are_read_in_units_that_people_know(nvml):
    first, second = open_devices()
    assert (first.name, second.name) == ("GPU of kind 0", "GPU of kind 1")
    assert first.sample(1) == {
        "utilisation_percent": 61,
        "memory_bytes": 7.9e9,
        "power_watts": 310.4,
        "sm_mhz": 1980,
        "memory_mhz": 3201,
    }
    assert set(first.sample(1)) - set(second.sample(1)) == {"power_watts"}
    line = live_line([first.sample(1), second.sample(1)])
    assert line == Containing("GPU 0 61", "7.9 GB", "310 W", "7.9 GB")


def test_memory_of_a_process_is_told_where_nvml_knows_the_process(nvml):
    gpu, _ = open_devices()
    assert gpu.sample(77)["process_memory_bytes"] == 5e9
    assert "process_memory_bytes" not in gpu.sample(78) | gpu.sample(79)


def test_parts_of_a_gpu_are_counted_from_one_look_to_the_next(nvml, monkeypatch):
    """ "A kernel ran" is no use: the multiprocessors, tensor cores and memory are told apart."""
    import pynvml

    shares = {
        pynvml.NVML_GPM_METRIC_SM_UTIL: 40.0,
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 25.0,
    }
    given, freed = [], []

    def allocate():
        given.append(pynvml.c_nvmlGpmSample_t())
        return given[-1]

    def get(asked):
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for metric in asked.metrics[: asked.numMetrics]:
            known = metric.metricId in shares
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = shares.get(metric.metricId, 99.0)
        return asked

    fakes = {
        "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=1),
        "nvmlGpmSampleAlloc": allocate,
        "nvmlGpmSampleGet": lambda handle, sample: sample,
        "nvmlGpmMetricsGet": get,
        "nvmlGpmSampleFree": freed.append,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(pynvml, name, fake)
    gpu, _ = open_devices()
    gpu.begin()
    found = gpu.sample(1)
    assert (found["sm_percent"], found["memory_bandwidth_percent"]) == (40, 25)
    assert "tensor_percent" not in found  # which this driver does not tell
    gpu.sample(1)
    assert len(given) == 3
    assert len(freed) == 2


def test_what_a_driver_kept_is_of_the_time_that_is_asked_for(nvml, monkeypatch):
    import pynvml

    looks = [(9.9, 90), (10.1, 80), (10.3, 30), (10.5, 40), (11.1, 70)]
    found = [
        SimpleNamespace(timeStamp=int(at * 1e6), sampleValue=SimpleNamespace(uiVal=percent))
        for at, percent in looks
    ]

    def samples(handle, kind, since):
        assert kind == pynvml.NVML_GPU_UTILIZATION_SAMPLES
        return 1, [each for each in found if each.timeStamp > since]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetSamples", samples)
    gpu, _ = open_devices()
    # The look at 10.1 is of the time since 9.9, which is before.
    assert gpu.history(10.0, 11.0) == [(10.3, 30), (10.5, 40)]
    assert gpu.history(12.0, 13.0) == []


def test_utilisation_is_that_of_the_turn_where_the_driver_keeps_it(monkeypatch):
    """What a driver says at a look is of up to a second before it, which may be another's turn."""
    gpu = FakeGpu()
    monkeypatch.setattr(gpu, "kept", lambda since, until: [(since, 5.0), (until, 7.0)])
    sampler = Sampler([gpu], seconds=0.01)
    with sampler.watching("a model", os.getpid()):
        assert gpu.third.wait(WAIT)
    (found,) = sampler.facts("a model")["devices"]
    assert found["utilisation_percent"] == {"mean": 6, "max": 7}
    assert found["power_watts"]["max"] == 300
    kept = [each for each in found["samples"] if "utilisation_percent" in each]
    assert len(kept) == 2
    times = [each["at_seconds"] for each in found["samples"]]
    assert times == sorted(times)
    assert 0 <= kept[0]["at_seconds"] <= kept[1]["at_seconds"]


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
    assert lines[0] == Containing("GPU 0 10", "300 W")
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


@pytest.mark.sampled
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
