"""Use of the CPUs between two samples: work, idle time, waiting for disks, and steal time.

Sources: proc_stat(5) for the times of each CPU; Linux's Documentation/accounting/psi.rst for the
time in which a runnable process had to wait.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from deploykit.transforms.common.documents import NOT_NEGATIVE, Written

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
WORK = ("user", "nice", "system", "irq", "softirq")
"""States in which a CPU works for a process of this machine."""
_NONE = dict.fromkeys(_FIELDS, 0.0)


Cores = Annotated[float, Written(digits=3), NOT_NEGATIVE]


@dataclass(frozen=True)
class Activity:
    """Use of the CPUs available to this process, in cores: 1.5 is one and a half of them."""

    seconds: Cores
    """Seconds between the two samples."""
    busy: Cores
    """Cores used by any process of this machine."""
    idle: Cores
    """Idle cores, without those waiting for disks."""
    iowait: Cores
    """Cores that were idle while a process waited for a disk."""
    steal: Cores
    """Cores taken by the host of this virtual machine."""
    waiting: Annotated[Annotated[float, NOT_NEGATIVE] | None, Written(digits=3)]
    """Share of the time in which a runnable process waited for a CPU, from 0 to 1; None: the kernel
    does not report it."""

    def foreign(self, own: float) -> float:
        """Return the cores used by others, given the `own` cores used by deploykit's processes."""
        return max(0.0, self.busy - own) + self.steal


@dataclass(frozen=True)
class Look:
    """The kernel's CPU counters at one time."""

    at: float
    ticks: dict[str, float]
    """Seconds of all usable CPUs in each state."""
    waited: float | None

    @classmethod
    def now(cls) -> "Look":
        """Read the counters. Without `/proc/stat`, all are 0."""
        return cls(time.monotonic(), _ticks(), _waited())

    def since(self, earlier: "Look") -> Activity:
        """Return the use between an earlier sample and this one."""
        seconds = max(self.at - earlier.at, 1e-9)
        cores = {
            name: max(0.0, self.ticks[name] - earlier.ticks[name]) / seconds for name in _FIELDS
        }
        waiting = None
        if self.waited is not None and earlier.waited is not None:
            waiting = min(1.0, max(0.0, self.waited - earlier.waited) / seconds)
        return Activity(
            seconds,
            busy=sum(cores[name] for name in WORK),
            idle=cores["idle"],
            iowait=cores["iowait"],
            steal=cores["steal"],
            waiting=waiting,
        )


def cpu_ticks() -> dict[int, dict[str, float]]:
    """Return the seconds that each CPU of this machine has spent in each state; empty if the kernel
    does not report them.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    hertz = os.sysconf("SC_CLK_TCK")
    results = {}
    for name, *counts in (line.split() for line in lines if line.startswith("cpu")):
        if number := name.removeprefix("cpu"):
            ticks = [int(count) / hertz for count in counts]
            results[int(number)] = {**_NONE, **dict(zip(_FIELDS, ticks, strict=False))}
    return results


def _ticks() -> dict[str, float]:
    usable, every = os.sched_getaffinity(0), cpu_ticks()
    known = [ticks for cpu, ticks in every.items() if cpu in usable]
    return {field: sum(ticks[field] for ticks in known) for field in _FIELDS}


def _waited() -> float | None:
    try:
        first = Path("/proc/pressure/cpu").read_text().split("\n")[0]
        return int(first.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None
