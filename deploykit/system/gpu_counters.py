"""GPU counters of the driver, read with NVML: of all processes, and of one.

The driver counts a GPU as 100 % used even if a kernel uses only one of its cores. So the use
of cores, tensor cores and memory bandwidth is read as well, where available (GPM, from Hopper on).
Source: NVIDIA, NVML API Reference, sections Device Queries and GPM.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Sample = dict[str, float]


class Device(Protocol):
    """A GPU with load counters."""

    @property
    def name(self) -> str:
        """Product name, such as `NVIDIA H200`."""

    def begin(self) -> None:
        """Reset the counters: later values cover only the time from now on."""

    def sample(self, pid: int) -> Sample:
        """Return the current load, without values that the driver does not report.

        utilisation_percent: share of the driver's last period (1/6 to 1 s) in which a kernel ran.
        memory_bytes: in use by all processes. process_memory_bytes: by this one. power_watts.
        sm_mhz, memory_mhz: clocks. Since the last sample: sm_percent, the share of active
        multiprocessors; tensor_percent, that of active tensor cores; memory_bandwidth_percent, of
        the maximum bandwidth.
        """

    def history(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return the driver's samples as (seconds since 1970, utilization in percent).

        Each sample covers the time since the previous one; none covers time before `since`.
        """


class NvmlDevice:
    """A GPU read with NVML."""

    def __init__(self, nvml: Any, number: int) -> None:
        """Open the GPU of this index in NVML's order. NVMLError: it does not exist."""
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))
        self._activity = _Activity(nvml, self._handle)

    def begin(self) -> None:
        """Reset the GPM counters."""
        self._activity.since_last()

    def sample(self, pid: int) -> Sample:
        """Return the values that the driver reports now."""
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
        """Return the driver's utilization samples; empty if it stores none."""
        nvml = self._nvml
        try:
            kind = nvml.NVML_GPU_UTILIZATION_SAMPLES
            _, samples = nvml.nvmlDeviceGetSamples(self._handle, kind, int(since * 1e6))
        except nvml.NVMLError:
            return []
        looks = sorted(
            (sample.timeStamp / 1e6, float(sample.sampleValue.uiVal)) for sample in samples
        )
        before = since  # NVML returns samples after a time, so the first one began before it
        results = []
        for number, (at, percent) in enumerate(looks):
            if number and before >= since and at <= until:
                results.append((at, percent))
            before = at
        return results

    def _memory_of(self, pid: int) -> Sample:
        """Return the GPU memory of a process in bytes; empty if NVML does not list the process.

        In a container, NVML may list it under its number outside.
        """
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            for item in nvml.nvmlDeviceGetComputeRunningProcesses(self._handle):
                if item.pid == pid and item.usedGpuMemory is not None:
                    return {"process_memory_bytes": float(item.usedGpuMemory)}
        return {}


class _Activity:
    """GPM counters of a GPU, from one sample to the next."""

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
        """Return the shares since the last call; empty at the first call, or without counters."""
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
    """Return all GPUs of the machine in NVML's order; empty without NVML."""
    try:
        import pynvml
    except ImportError:  # NVML is an optional extra
        return []
    try:
        pynvml.nvmlInit()
        return [NvmlDevice(pynvml, number) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:
        return []
