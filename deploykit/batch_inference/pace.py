"""How fast rows are computed, by how many workers and CPUs, and how long it will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from deploykit.batch_inference.infer_task import PartProgress
from deploykit.text.progress import Work

STEP = "compute"
_TOLD = 0.5
"""Seconds between two lines at least."""


@dataclass
class Pace:
    """Rows of all workers. Times count from the first rows on, when models are loaded."""

    work: Work
    rows: int
    """That are to be computed."""
    parts: int
    workers: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    cpu_seconds: float = 0.0
    _start: float = 0.0
    _first: float | None = None
    _before: int = 0
    _told: float = field(default=-1.0)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def seconds(self) -> float:
        """Since the workers were started."""
        return self.clock() - self._start

    @property
    def rate(self) -> float | None:
        """Rows a second, without those that were there when the clock began; None: not known."""
        if self._first is None or self.done == self._before:
            return None
        return (self.done - self._before) / max(self.clock() - self._first, 1e-9)

    @property
    def cpus(self) -> float:
        """How many CPUs the workers took in the mean, their start included."""
        return self.cpu_seconds / max(self.seconds, 1e-9)

    def take(self, progress: PartProgress) -> None:
        """Count what a worker tells, and say how far all of it is."""
        self.done += progress.rows
        self.cpu_seconds += progress.cpu_seconds
        if self._first is None:
            self._first, self._before = self.clock(), self.done
        if progress.done is None and self.seconds - self._told < _TOLD:
            return
        self._told = self.seconds
        if self.rate:
            left = (self.rows - self.done) / self.rate
            self.work.expect({STEP: self.seconds + left})
        self.work(self.said, self.parts if progress.done is not None else 0)

    def lost(self, rows: int) -> None:
        """Count rows as not done, as they went with their worker."""
        self.done -= rows

    @property
    def said(self) -> str:
        """All of it in words, such as `120 of 1,280 rows, 146/s, 2 workers on 1.98 CPUs`."""
        rate = f", {self.rate:,.3g}/s" if self.rate is not None else ""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.done:,} of {self.rows:,} rows{rate}, {workers} on {self.cpus:.2f} CPUs"
