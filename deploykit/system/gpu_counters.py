"""What a GPU does, as its driver tells by NVML: of all processes together, and of one.

"A kernel ran" is no use of a GPU: one that keeps a single core of it busy counts as 100 %. So where
the driver has them (GPM, from Hopper on), the shares of its cores, its tensor cores and its memory
are told too. Source: NVIDIA, NVML API Reference, sections Device Queries and GPM.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Sample = dict[str, float]


class Device(Protocol):
    """A GPU that tells what it does."""

    @property
    def name(self) -> str:
        """What it is, such as `NVIDIA H200`."""

    def begin(self) -> None:
        """Forget what was before: what is told from now on is of the time from now on."""

    def sample(self, pid: int) -> Sample:
        """Return what it does now, without what its driver does not tell.

        utilisation_percent: share of the driver's last period (1/6 to 1 s) in which a kernel ran.
        memory_bytes: in use by all processes. process_memory_bytes: by this one. power_watts.
        sm_mhz, memory_mhz: clocks. Since the last sample: sm_percent, the share of its
        multiprocessors that worked, tensor_percent, that of their tensor cores, and
        memory_bandwidth_percent, of what its memory could transfer at most.
        """

    def history(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return when the driver looked in a time, in seconds since 1970, and the utilisation then.

        What it says is of the time since it looked before; none of that is before `since`.
        """


class NvmlDevice:
    """A GPU behind NVML."""

    def __init__(self, nvml: Any, number: int) -> None:
        """Find the GPU of this number in NVML's order. NVMLError: there is none."""
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))
        self._activity = _Activity(nvml, self._handle)

    def begin(self) -> None:
        """Let the counters of its parts begin anew."""
        self._activity.since_last()

    def sample(self, pid: int) -> Sample:
        """Return what the driver tells now."""
        nvml, gpu = self._nvml, self._handle
        requested: Mapping[str, Callable[[], float]] = {
            "utilisation_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        }
        results = {}
        for name, ask in requested.items():
            with contextlib.suppress(nvml.NVMLError):
                results[name] = float(ask())
        return results | self._memory_of(pid) | self._activity.since_last()

    def history(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return what the driver keeps of its utilisation; nothing where it keeps none."""
        nvml = self._nvml
        try:
            kind = nvml.NVML_GPU_UTILIZATION_SAMPLES
            _, samples = nvml.nvmlDeviceGetSamples(self._handle, kind, int(since * 1e6))
        except nvml.NVMLError:
            return []
        looks = sorted(
            (sample.timeStamp / 1e6, float(sample.sampleValue.uiVal)) for sample in samples
        )
        before = since  # NVML gives those after a time, so the first one began before it
        results = []
        for number, (at, percent) in enumerate(looks):
            if number and before >= since and at <= until:
                results.append((at, percent))
            before = at
        return results

    def _memory_of(self, pid: int) -> Sample:
        """Return the bytes that a process has; nothing where NVML does not know the process.

        In a container, NVML may call it by its number outside.
        """
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            for item in nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                if item.pid == pid and item.usedGpuMemory is not None:
                    return {"process_memory_bytes": float(item.usedGpuMemory)}
        return {}


class _Activity:
    """The counters of a GPU's parts, from one look to the next."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._last: Any = None
        self._metrics = {
            "sm_percent": nvml.NVML_GPM_METRIC_SM_UTIL,
            "tensor_percent": nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            "memory_bandwidth_percent": nvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
        }
        self._has = False
        with contextlib.suppress(nvml.NVMLError):
            self._has = bool(nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)

    def since_last(self) -> Sample:
        """Return the shares since the last call; nothing the first time, or without counters."""
        if not self._has:
            return {}
        nvml, before = self._nvml, self._last
        sample: Sample = {}
        with contextlib.suppress(nvml.NVMLError):
            self._last = nvml.nvmlGpmSampleGet(self._handle, nvml.nvmlGpmSampleAlloc())
            if before is not None:
                sample = dict(self._between(before, self._last))
                nvml.nvmlGpmSampleFree(before)
        return sample

    def _between(self, before: Any, now: Any) -> Iterator[tuple[str, float]]:
        nvml = self._nvml
        requested = nvml.c_nvmlGpmMetricsGet_t()
        requested.version = nvml.NVML_GPM_METRICS_GET_VERSION
        requested.numMetrics = len(self._metrics)
        requested.sample1, requested.sample2 = before, now
        for place, metric in enumerate(self._metrics.values()):
            requested.metrics[place].metricId = metric
        reported = nvml.nvmlGpmMetricsGet(requested)
        for place, name in enumerate(self._metrics):
            if reported.metrics[place].nvmlReturn == nvml.NVML_SUCCESS:
                yield name, float(reported.metrics[place].value)


def open_devices() -> Sequence[Device]:
    """Return all GPUs of the machine, in NVML's order; none where there is no NVML."""
    try:
        import pynvml
    except ImportError:  # a GPU's counters are an extra; without them, none is shown
        return []
    try:
        pynvml.nvmlInit()
        return [NvmlDevice(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
