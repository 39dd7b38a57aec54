"""How fast rows are computed, by how many workers and CPUs, and how long it will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from deploykit.batch_inference.infer_task import PartProgress
from deploykit.text.progress import Work

STEP = "compute"
_TOLD = 0.5
"""Seconds between two lines at least."""


@dataclass
class Pace:
    """Rows of all workers. The rate counts from when the last of them had loaded its model."""

    work: Work
    rows: int
    """That are to be computed."""
    parts: int
    workers: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    _start: float = 0.0
    _loaded: int = 0
    """Workers that have loaded the model, replaced ones counted."""
    _first: float = 0.0
    """When the last of the first ones had."""
    _timed: int = 0
    """Rows since then."""
    _cpu_seconds: float = 0.0
    _told: float = 0.0

    def __post_init__(self) -> None:
        self._start = self._told = self.clock()

    @property
    def seconds(self) -> float:
        """Since the workers were started."""
        return self.clock() - self._start

    @property
    def steady_seconds(self) -> float:
        """Since all workers compute; 0: none does."""
        return self.clock() - self._first if self._first else 0.0

    @property
    def rate(self) -> float | None:
        """Rows a second; None: not known."""
        seconds = self.steady_seconds
        return self._timed / seconds if self._timed > 0 and seconds > 0 else None

    @property
    def cpus(self) -> float | None:
        """How many CPUs the workers took in the mean, since then."""
        return None if self.rate is None else self._cpu_seconds / self.steady_seconds

    def take(self, progress: PartProgress) -> None:
        """Count what a worker tells, and say how far all of it is."""
        now = self.clock()
        self.done += progress.rows
        if not progress.loading:
            self._timed += progress.rows
            self._cpu_seconds += progress.cpu_seconds
        elif self._loaded < self.workers:
            self._loaded += 1
            self._first, self._timed, self._cpu_seconds = now, 0, 0.0
        if progress.done is None and now - self._told < _TOLD:
            return
        self._told = now
        if self.rate:
            left = (self.rows - self.done) / self.rate
            self.work.expect({STEP: now - self._start + left})
        self.work(self.said, self.parts if progress.done is not None else 0)

    def lost(self, rows: int) -> None:
        """Count rows as not done, as they went with their worker."""
        self.done -= rows
        self._timed = max(self._timed - rows, 0)  # some may have been of its first ones

    @property
    def said(self) -> str:
        """All of it in words, such as `120 of 1,280 rows, 146/s, 2 workers on 1.98 CPUs`."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        pace = f", {self.rate:,.3g}/s" if self.rate is not None else ""
        cpus = f" on {self.cpus:.2f} CPUs" if self.cpus is not None else ""
        return f"{self.done:,} of {self.rows:,} rows{pace}, {workers}{cpus}"
