"""A plan carried out: parts computed, logged, and listed in the index, with its progress and
result.
"""

import contextlib
import glob
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.batch_inference.driver import Loss, computed
from deploykit.batch_inference.infer_plan import InferPlan
from deploykit.batch_inference.infer_task import InferTask, PartProgress
from deploykit.batch_inference.process_backend import Backend
from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.batch_inference.results_folder import ResultsFolder
from deploykit.rendering.progress import Work
from deploykit.storage.files import hidden, remove_leftovers
from deploykit.transforms.common.documents import AsHtml, Hidden, Written
from deploykit.transforms.common.errors import cannot_be

_REPORTED = ("name", "model", "data", "options", "columns", "rows", "bytes", "skipped", "shards")


@dataclass(frozen=True)
class InferRun:
    """How one run went; other runs may have computed other parts."""

    engine: str
    """What scheduled the work."""
    workers: int = 0
    """How many computed at once; 0: there was nothing to do."""
    rows: int = 0
    """That this run computed or left out."""
    kept: int = 0
    """Parts that were there already."""
    lost: int = 0
    """Workers that ended before their work."""
    seconds: float = 0.0
    """From the start of the workers, which load the model, to the end of the last part."""
    rows_per_second: float | None = None
    """Of all workers, from the first rows on; None: there was too little to tell."""
    cpus: float | None = None
    """That they took in the mean meanwhile."""


def _told(index: Mapping[str, Any]) -> dict[str, Any]:
    return {name: index[name] for name in _REPORTED}


@dataclass(frozen=True)
class Inferred(AsHtml):
    """Results in a folder, as their index tells of them, and the run that ended with it."""

    path: Annotated[str, Written("index")]
    """Of the index."""
    index: Annotated[Mapping[str, Any], Written(flat=True, by=_told)]
    """What it says, which is the same on every run."""
    run: InferRun
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of the data on the way to each input, in words."""

    @property
    def outputs(self) -> list[str]:
        """The tensors that were fetched."""
        return list(self.index["options"]["outputs"].values())

    @property
    def rows(self) -> int:
        """How many rows there are, in all parts."""
        return int(self.index["rows"])

    @property
    def parts(self) -> int:
        """How many files hold them."""
        return len(self.index["shards"])

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """The `file`, the `row` and the `reason` of each row that was left out."""
        return list(self.index["skipped"])


STEP = "compute"
_REPORT_SECONDS = 0.5
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
        if progress.done is None and now - self._told < _REPORT_SECONDS:
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


logger = logging.getLogger("deploykit")

STEPS = ("read", STEP)


def carried_out(
    plan: InferPlan,
    place: AbstractContextManager[Backend],
    folder: ResultsFolder,
    work: Work,
) -> Inferred:
    """Compute the parts that are not there yet, and return what came of all.

    `place` is where workers run; it is entered only if there is something to do. LimitError: a part
    was lost with its worker too often. GraphError, FileError: a row cannot be used, the model
    cannot be run, or a file cannot be read or written. What is finished by then stays.
    """
    retained = folder.kept()
    parts = [part for part in plan.parts if part.number not in retained]
    run = InferRun(plan.engine, kept=len(retained))
    if parts:
        work.begin(STEP)
        with _model_file(plan) as model, place as backend:
            run = _computed(replace(plan.task, model=model), parts, backend, folder, work, run)
    return Inferred(str(folder.path), folder.finish(), run, plan.fed)


def _computed(
    task: InferTask,
    parts: Sequence[DataPart],
    backend: Backend,
    folder: ResultsFolder,
    work: Work,
    run: InferRun,
) -> InferRun:
    """Compute parts, note each that is done, and return how that went."""
    workers, lost = min(backend.processes, len(parts)), 0
    pace = Pace(work, sum(part.rows for part in parts), len(parts), workers)
    with contextlib.closing(computed(backend, task, parts)) as reported:
        for news in reported:
            if isinstance(news, Loss):
                lost += 1
                pace.lost(news.rows)
                logger.warning("%s; what it was at is done again", news.error)
                continue
            if news.done is not None:
                folder.note(news.done)
            pace.take(news)
    return replace(
        run,
        workers=workers,
        rows=pace.done,
        lost=lost,
        seconds=pace.seconds,
        rows_per_second=pace.rate,
        cpus=pace.cpus,
    )


@contextlib.contextmanager
def _model_file(plan: InferPlan) -> Iterator[str]:
    """Write the graph where all workers read it: beside the results, under a hidden name."""
    path = Path(plan.task.folder, f"{plan.task.name}.model.pb")
    remove_leftovers(path.parent, glob.escape(path.name))  # of a run that was killed
    is_written = False
    try:
        with hidden(path) as (partial, file):
            for piece in plan.graph.serialized():
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            is_written = True
            yield str(partial)
    except OSError as error:
        if is_written:
            raise
        raise cannot_be("written", path, error) from None
