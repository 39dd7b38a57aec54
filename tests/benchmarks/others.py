"""How much processes that are not measured keep a machine busy meanwhile."""

import os
import time
from collections.abc import Iterable

import psutil


class Others:
    """All processes but this one and those that are named."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._own = [psutil.Process(pid) for pid in (os.getpid(), *pids)]
        self._last = (0.0, 0.0)
        self.cores()

    def cores(self) -> float:
        """Return how many cores they kept busy since the last call, in the mean.

        What the host of a virtual machine takes away counts as theirs.
        """
        now, times = time.perf_counter(), psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0)
        guests = getattr(times, "guest", 0) + getattr(times, "guest_nice", 0)  # counted as user too
        own = (process.cpu_times() for process in self._own)
        theirs = sum(times) - idle - guests - sum(each.user + each.system for each in own)
        (then, before), self._last = self._last, (now, theirs)
        return (theirs - before) / (now - then)
