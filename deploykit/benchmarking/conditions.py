"""What else the machine did while something was measured, and how fast it was."""

import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from deploykit.hardware.cpu_usage import Activity, Look
from deploykit.transforms.core.display.documents import NOT_NEGATIVE, Written, written

BUSY = 0.15
"""Cores that others take, from which on a machine counts as loaded."""
_ELEMENTS, _TIMES = 1 << 14, 200  # 64 KiB an array, about a millisecond


@dataclass(frozen=True)
class Conditions:
    """The state of a machine during the turns of a benchmark."""

    activity: Activity
    own_cores: Annotated[float, Written(digits=3), NOT_NEGATIVE]
    """Cores in use by what was measured."""
    reference_ms: Annotated[float, NOT_NEGATIVE]
    """CPU time of a fixed piece of arithmetic between the turns, the median: by it, results of
    different hours are compared."""
    mhz: Annotated[float, NOT_NEGATIVE] | None = None
    """Of the CPUs, the mean; None: the kernel does not tell."""

    @property
    @written(digits=3)
    def foreign_cores(self) -> float:
        """Cores that other processes took, or the host."""
        return self.activity.foreign(self.own_cores)

    @property
    @written()
    def busy(self) -> str:
        """What loaded the machine, as the mark of a measurement; empty on an idle machine."""
        if self.foreign_cores < BUSY:
            return ""
        cores = self.activity.busy + self.activity.idle + self.activity.iowait + self.activity.steal
        words = f"other processes used {self.foreign_cores:.1f} of {cores:.0f} cores"
        if self.activity.steal >= BUSY:
            words += f", the host of this virtual machine {self.activity.steal:.1f} of these"
        return f"measured on a loaded machine: {words}"


@dataclass
class Watch:
    """Looks at the machine from its making until `conditions` is asked for."""

    began: Look = field(default_factory=Look.now)
    _references: list[float] = field(default_factory=list)
    _array: Any = field(default_factory=lambda: np.linspace(0.5, 1.5, _ELEMENTS, dtype=np.float32))

    def refer(self) -> None:
        """Do the fixed piece of arithmetic, and note its CPU time."""
        result = np.empty_like(self._array)
        start = time.thread_time_ns()
        for _ in range(_TIMES):
            np.multiply(self._array, self._array, out=result)
        self._references.append((time.thread_time_ns() - start) / 1e6)

    def conditions(self, own_seconds: float) -> Conditions:
        """Return what was seen; what is measured used the CPUs for so many seconds."""
        activity = Look.now().since(self.began)
        while not self._references:
            self.refer()
        reference = statistics.median(self._references)
        return Conditions(activity, own_seconds / activity.seconds, reference, _mhz())


def _mhz() -> float | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return statistics.mean(float(each.partition(":")[2]) for each in lines
                               if each.startswith("cpu MHz"))  # fmt: skip
    except (OSError, ValueError):
        return None
