"""What the CPUs did between two looks: work, idling, waiting for disks, and what others took.

Sources: proc_stat(5) for the times of each CPU; Linux's Documentation/accounting/psi.rst for the
time in which something that could run had to wait.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from deploykit.transforms.common.documents import NOT_NEGATIVE, Written

_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
WORK = ("user", "nice", "system", "irq", "softirq")
"""The states in which a CPU works for a process of this machine."""
_NONE = dict.fromkeys(_FIELDS, 0.0)


Cores = Annotated[float, Written(digits=3), NOT_NEGATIVE]


@dataclass(frozen=True)
class Activity:
    """What the CPUs that this process may use did, in cores: 1.5 is one and a half of them."""

    seconds: Cores
    """From one look to the other."""
    busy: Cores
    """At work for any process of this machine."""
    idle: Cores
    """Without work, waiting for disks apart."""
    iowait: Cores
    """Idle while a process waited for a disk."""
    steal: Cores
    """Taken by the host of this virtual machine."""
    waiting: Annotated[Annotated[float, NOT_NEGATIVE] | None, Written(digits=3)]
    """Share of the time in which a process that could run waited for a CPU, from 0 to 1; None: the
    kernel does not tell.
    """

    def foreign(self, own: float) -> float:
        """Return the cores that others took, of which `own` are known to be one's own."""
        return max(0.0, self.busy - own) + self.steal


@dataclass(frozen=True)
class Look:
    """What the kernel has counted until a moment."""

    at: float
    ticks: dict[str, float]
    """Seconds of all usable CPUs in each state."""
    waited: float | None

    @classmethod
    def now(cls) -> "Look":
        """Look. Without `/proc/stat`, nothing is known: all figures are 0."""
        return cls(time.monotonic(), _ticks(), _waited())

    def since(self, earlier: "Look") -> Activity:
        """Return what was done from an earlier look to this one."""
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
    """Return the seconds that each CPU of this machine has spent in each state; nothing where the
    kernel does not tell.
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
