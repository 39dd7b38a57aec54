"""Load of the machine, GPUs and the measured process while a benchmark runs."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil

from deploykit.system.cpu_usage import Activity, Look
from deploykit.system.gpu_counters import Device, Sample
from deploykit.transforms.common.documents import NOT_NEGATIVE, Written, written

SECONDS = 0.25  # between samples; a driver updates its metrics 1 to 6 times a second
_SHORTEST = 0.05  # the kernel counts a process's time in ticks of 10 ms


class Sampler:
    """A thread that samples devices and a process inside `watching`."""

    def __init__(
        self,
        devices: Sequence[Device],
        live: Callable[[str], None] = lambda text: None,
        seconds: float = SECONDS,
    ) -> None:
        """Sample every `seconds`; `live` gets a line about the devices each time, if any."""
        self._devices = devices
        self._live = live
        self._seconds = seconds
        self._start = time.perf_counter()
        self._gpus: dict[str, list[list[Sample]]] = {}
        self._processes: dict[str, list[Sample]] = {}

    @contextlib.contextmanager
    def watching(self, name: str, pid: int) -> Iterator[None]:
        """Sample the devices and a process inside this block, and store the samples under a name.

        If a driver keeps timestamped utilization, only samples of this block count.
        """
        gpus = self._gpus.setdefault(name, [[] for _ in self._devices])
        uses = self._processes.setdefault(name, [])
        process = _Process(pid)
        done, here = threading.Event(), [len(item) for item in gpus]
        since = time.time()
        for device in self._devices:
            device.begin()

        def look() -> None:
            at = {"at_seconds": round(time.perf_counter() - self._start, 3)}
            uses.extend(at | use for use in process.use())
            if self._devices:
                samples = [device.sample(pid) for device in self._devices]
                for history, sample in zip(gpus, samples, strict=True):
                    history.append(at | sample)
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
            for device, result, start in zip(self._devices, gpus, here, strict=True):
                self._add_history(device, result[start:], result, since)

    def _add_history(
        self, device: Device, looks: Sequence[Sample], samples: list[Sample], since: float
    ) -> None:
        """Replace the utilization of each sample by the driver's own history."""
        until = time.time()
        seen = device.history(since, until)
        for look in looks if seen else ():
            look.pop("utilisation_percent", None)
        now = time.perf_counter() - self._start
        samples += (
            {"at_seconds": round(now - (until - at), 3), "utilisation_percent": percent}
            for at, percent in seen
        )

    def facts(self, name: str) -> dict[str, Any]:
        """Return the samples under a name: `devices`, GPU by GPU, and `cpu_use`.

        Each has the mean and the maximum of every metric, and the samples. `cpu_use` is that of the
        process; its `percent` is relative to one core. `at_seconds` counts from the sampler's
        start.
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
    results: dict[str, Any] = {}
    for figure in figures:
        values = [sample[figure] for sample in samples if figure in sample]
        results[figure] = {"mean": sum(values) / len(values), "max": max(values)}
    return results | {"samples": sorted(samples, key=lambda item: item["at_seconds"])}


def live_line(samples: Sequence[Sample]) -> str:
    """Return the load of GPUs in words, such as `GPU 0 61 %, 7.9 GB, 310 W`."""
    lines = []
    for number, item in enumerate(samples):
        words = []
        if "utilisation_percent" in item:
            words.append(f"{item['utilisation_percent']:.0f} %")
        if "memory_bytes" in item:
            words.append(f"{item['memory_bytes'] / 1e9:.1f} GB")
        if "power_watts" in item:
            words.append(f"{item['power_watts']:.0f} W")
        lines.append(f"GPU {number} " + (", ".join(words) or "?"))
    return "; ".join(lines)


class _Process:
    """CPU use of a process between samples."""

    def __init__(self, pid: int) -> None:
        self._process = None
        with contextlib.suppress(psutil.Error):
            self._process = psutil.Process(pid)
        self._last = (0.0, 0.0)  # the first sample only starts the count
        self.use()

    def use(self) -> list[Sample]:
        """Return the use since the last sample; empty if too little time passed or the process
        ended.
        """
        if self._process is None:
            return []
        try:
            times, memory = self._process.cpu_times(), self._process.memory_info().rss
        except psutil.Error:
            return []
        (then, before), now, busy = self._last, time.perf_counter(), times.user + times.system
        self._last = (now, busy)
        if now - then < _SHORTEST:
            return []
        percent = 100 * (busy - before) / (now - then)
        return [{"percent": round(percent, 1), "memory_bytes": float(memory)}]


BUSY = 0.15
"""Cores used by others from which on a machine counts as loaded."""
_ELEMENTS, _TIMES = 1 << 14, 200  # 64 KiB per array, about a millisecond


@dataclass(frozen=True)
class Conditions:
    """Load of a machine during the rounds of a benchmark."""

    activity: Activity
    own_cores: Annotated[float, Written(digits=3), NOT_NEGATIVE]
    """Cores used by the measured processes."""
    reference_ms: Annotated[float, NOT_NEGATIVE]
    """Median CPU time of a fixed computation between the rounds. It makes results from different
    times comparable."""
    mhz: Annotated[float, NOT_NEGATIVE] | None = None
    """Mean clock of the CPUs in MHz; None: the kernel does not report it."""

    @property
    @written(digits=3)
    def foreign_cores(self) -> float:
        """Cores used by other processes, or by the host."""
        return self.activity.foreign(self.own_cores)

    @property
    @written()
    def busy(self) -> str:
        """What loaded the machine, in words, for results; empty on an idle machine."""
        if self.foreign_cores < BUSY:
            return ""
        cores = self.activity.busy + self.activity.idle + self.activity.iowait + self.activity.steal
        words = f"other processes used {self.foreign_cores:.1f} of {cores:.0f} cores"
        if self.activity.steal >= BUSY:
            words += f", the host of this virtual machine {self.activity.steal:.1f} of these"
        return f"measured on a loaded machine: {words}"


@dataclass
class Watch:
    """Records the load of the machine from construction to `conditions`."""

    began: Look = field(default_factory=Look.now)
    _references: list[float] = field(default_factory=list)
    _array: Any = field(default_factory=lambda: np.linspace(0.5, 1.5, _ELEMENTS, dtype=np.float32))

    def refer(self) -> None:
        """Run the fixed computation, and store its CPU time."""
        result = np.empty_like(self._array)
        start = time.thread_time_ns()
        for _ in range(_TIMES):
            np.multiply(self._array, self._array, out=result)
        self._references.append((time.thread_time_ns() - start) / 1e6)

    def conditions(self, own_seconds: float) -> Conditions:
        """Return the recorded load; the measured processes used `own_seconds` of CPU time."""
        activity = Look.now().since(self.began)
        while not self._references:
            self.refer()
        reference = statistics.median(self._references)
        return Conditions(activity, own_seconds / activity.seconds, reference, _mhz())


def _mhz() -> float | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return statistics.mean(float(line.partition(":")[2]) for line in lines
                               if line.startswith("cpu MHz"))  # fmt: skip
    except (OSError, ValueError):
        return None
