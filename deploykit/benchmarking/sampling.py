"""Look at the GPUs and at the measured process every now and then, while its rounds run."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

SECONDS = 0.25  # between two looks; a driver updates its figures 1 to 6 times a second
_SHORTEST = 0.05  # the kernel counts a process's time in ticks of 10 ms

Sample = dict[str, float]


class Device(Protocol):
    """A GPU that tells what it does."""

    @property
    def name(self) -> str:
        """What it is, such as `NVIDIA H200`."""

    def sample(self) -> Sample:
        """Return what it does now, without what its driver does not tell.

        utilisation_percent: share of the driver's last period (1/6 to 1 s) in which a kernel ran.
        memory_bytes: in use by all processes. power_watts. sm_mhz, memory_mhz: clocks.
        """


class _Gpu:
    """A GPU behind NVML."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))

    def sample(self) -> Sample:
        nvml, gpu = self._nvml, self._handle
        asked: Mapping[str, Callable[[], float]] = {
            "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        }
        found = {}
        for name, ask in asked.items():
            with contextlib.suppress(nvml.NVMLError):
                found[name] = float(ask())
        return found


def open_devices() -> Sequence[Device]:
    """Return all GPUs of the machine, in NVML's order; none where there is no NVML."""
    import pynvml

    try:
        pynvml.nvmlInit()
        return [_Gpu(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []


class Sampler:
    """A thread that looks at devices and at a process while `watching` says so."""

    def __init__(
        self,
        devices: Sequence[Device],
        live: Callable[[str], None] = lambda text: None,
        seconds: float = SECONDS,
    ) -> None:
        """Look every so many seconds; `live` gets a line on the devices then, if there are any."""
        self._devices = devices
        self._live = live
        self._seconds = seconds
        self._start = time.perf_counter()
        self._gpus: dict[str, list[list[Sample]]] = {}
        self._processes: dict[str, list[Sample]] = {}

    @contextlib.contextmanager
    def watching(self, name: str, pid: int) -> Iterator[None]:
        """Look at the devices and a process inside this block; what is found is added to a name."""
        gpus = self._gpus.setdefault(name, [[] for _ in self._devices])
        uses = self._processes.setdefault(name, [])
        process = _Process(pid)
        done = threading.Event()

        def look() -> None:
            at = {"at_seconds": round(time.perf_counter() - self._start, 3)}
            uses.extend(at | use for use in process.use())
            if self._devices:
                samples = [device.sample() for device in self._devices]
                for found, sample in zip(gpus, samples, strict=True):
                    found.append(at | sample)
                self._live(f"{name}: {live_line(samples)}")

        def work() -> None:
            looked = False
            while not done.wait(self._seconds):
                look()
                looked = True
            if not looked:  # the block is short
                look()

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def facts(self, name: str) -> dict[str, Any]:
        """Return what was found under a name: `devices`, GPU by GPU, and `cpu_use`.

        Each has the mean and the maximum of every figure, and the samples. `cpu_use` is of the
        process, its `percent` of one core. `at_seconds` counts from this sampler's start.
        """
        gpus = self._gpus.get(name, [])
        return {
            "devices": [
                {"name": device.name, **_summary(samples)}
                for device, samples in zip(self._devices, gpus, strict=False)
            ],
            "cpu_use": _summary(self._processes.get(name, [])),
        }


def _summary(samples: Sequence[Sample]) -> dict[str, Any]:
    figures = dict.fromkeys(name for sample in samples for name in sample if name != "at_seconds")
    found: dict[str, Any] = {}
    for figure in figures:
        values = [sample[figure] for sample in samples if figure in sample]
        found[figure] = {"mean": sum(values) / len(values), "max": max(values)}
    return found | {"samples": list(samples)}


def live_line(samples: Sequence[Sample]) -> str:
    """Return what GPUs do in words, such as `GPU 0 61 %, 7.9 GB, 310 W`."""
    lines = []
    for number, each in enumerate(samples):
        words = []
        if "utilisation_percent" in each:
            words.append(f"{each['utilisation_percent']:.0f} %")
        if "memory_bytes" in each:
            words.append(f"{each['memory_bytes'] / 1e9:.1f} GB")
        if "power_watts" in each:
            words.append(f"{each['power_watts']:.0f} W")
        lines.append(f"GPU {number} " + (", ".join(words) or "?"))
    return "; ".join(lines)


class _Process:
    """How much of the CPU a process uses from one look to the next."""

    def __init__(self, pid: int) -> None:
        import psutil

        self._gone = psutil.Error
        self._process = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid)
        self._last = (0.0, 0.0)  # the first look only starts the count
        self.use()

    def use(self) -> list[Sample]:
        """Return the use since the last look: nothing if that is too short or the process gone."""
        if self._process is None:
            return []
        try:
            times, memory = self._process.cpu_times(), self._process.memory_info().rss
        except self._gone:
            return []
        (then, before), now, busy = self._last, time.perf_counter(), times.user + times.system
        self._last = (now, busy)
        if now - then < _SHORTEST:
            return []
        percent = 100 * (busy - before) / (now - then)
        return [{"percent": round(percent, 1), "memory_bytes": float(memory)}]
