"""Runs an inference plan: runs the parts, logs progress, and writes the index."""

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
    """Statistics of one run; earlier runs may have run other parts."""

    scheduler: str
    """Where the workers ran: local or ray."""
    workers: int = 0
    """The number of workers; 0 if there was nothing to do."""
    rows: int = 0
    """The number of rows that this run processed or skipped."""
    kept: int = 0
    """The number of parts of earlier runs."""
    lost: int = 0
    """The number of lost workers."""
    seconds: float = 0.0
    """The seconds from the start of the workers, including loading the model, to the end."""
    rows_per_second: float | None = None
    """The rate of all workers together after loading the model; None if too few rows ran."""
    cpus: float | None = None
    """The mean number of CPUs that the workers used at that rate."""


def _told(index: Mapping[str, Any]) -> dict[str, Any]:
    return {name: index[name] for name in _REPORTED}


@dataclass(frozen=True)
class Inferred(AsHtml):
    """The results in a folder, as described by their index, and the last run."""

    path: Annotated[str, Written("index")]
    """The path of the index."""
    index: Annotated[Mapping[str, Any], Written(flat=True, by=_told)]
    """The content of the index, which is the same for every run."""
    run: InferRun
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """The preprocessing of the data for each input, as text."""

    @property
    def outputs(self) -> list[str]:
        """The output tensors."""
        return list(self.index["options"]["outputs"].values())

    @property
    def rows(self) -> int:
        """The number of rows in all parts."""
        return int(self.index["rows"])

    @property
    def parts(self) -> int:
        """The number of result files."""
        return len(self.index["shards"])

    @property
    def skipped(self) -> list[dict[str, Any]]:
        """The `file`, the `row` and the `reason` of each skipped row."""
        return list(self.index["skipped"])

    @property
    def skipped_files(self) -> list[str]:
        """The files of an image folder that are not images that TensorFlow decodes."""
        return list(self.index["data"].get("skipped_files", ()))


logger = logging.getLogger("deploykit")

STEP = "compute"
STEPS = ("read", STEP)
_REPORT_SECONDS = 0.5
"""Minimum seconds between two progress reports."""
_TIMED_SECONDS = 0.5
"""Minimum seconds of a rate: a shorter time shows what starts and ends, not the computation."""


@dataclass
class Pace:
    """The progress of all workers. The rate starts when the last worker has loaded its model."""

    work: Work
    rows: int
    """The number of rows to process."""
    parts: int
    workers: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    losses: int = 0
    """The number of lost workers."""
    _start: float = 0.0
    _loaded: int = 0
    """The number of workers that have loaded the model, including replaced ones."""
    _first: float = 0.0
    """The time at which the last of the initial workers had loaded it."""
    _last: float = 0.0
    """The time of the last rows."""
    _timed: int = 0
    """The number of rows between the two."""
    _cpu_seconds: float = 0.0
    _told: float = 0.0

    def __post_init__(self) -> None:
        self._start = self._told = self.clock()

    @property
    def seconds(self) -> float:
        """The seconds since the workers were started."""
        return self.clock() - self._start

    @property
    def rate(self) -> float | None:
        """The rows per second since all workers are running; None if too few ran for a rate."""
        seconds = self._last - self._first if self._first else 0.0
        return self._timed / seconds if self._timed > 0 and seconds >= _TIMED_SECONDS else None

    @property
    def cpus(self) -> float | None:
        """The mean number of CPUs that the workers have used since then; None if unknown."""
        return None if (rate := self.rate) is None else rate * self._cpu_seconds / self._timed

    def take(self, progress: PartProgress) -> None:
        """Add the progress of a worker, and report the total progress."""
        now = self.clock()
        self.done += progress.rows
        if not progress.loading:
            self._timed += progress.rows
            self._last = now
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
        """Subtract the rows of a lost worker."""
        self.losses += 1
        self.done -= rows
        self._timed = max(self._timed - rows, 0)  # some may be from before the timing started

    def run(self, scheduler: str, kept: int) -> InferRun:
        """Return the statistics of the run."""
        return InferRun(
            scheduler, self.workers, self.done, kept, self.losses, self.seconds, self.rate,
            self.cpus,
        )  # fmt: skip

    @property
    def said(self) -> str:
        """The progress as text, such as `120 of 1,280 rows, 146/s, 2 workers on 1.98 CPUs`."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        pace = f", {self.rate:,.3g}/s" if self.rate is not None else ""
        cpus = f" on {self.cpus:.2f} CPUs" if self.cpus is not None else ""
        return f"{self.done:,} of {self.rows:,} rows{pace}, {workers}{cpus}"


def carried_out(
    plan: InferPlan,
    place: AbstractContextManager[Backend],
    folder: ResultsFolder,
    work: Work,
) -> Inferred:
    """Run the missing parts, and return the result.

    `place` is the backend of the workers; it is entered only if there is work. LimitError: a part
    lost its worker too often. GraphError, FileError: a row is invalid, the model cannot run, or a
    file cannot be read or written. Finished parts are kept.
    """
    kept = folder.kept()
    parts = [part for part in plan.parts if part.number not in kept]
    run = InferRun(plan.scheduler, kept=len(kept))
    if parts:
        work.begin(STEP)
        with _model_file(plan) as model, place as backend:
            task = replace(plan.task, model=model)
            run = _computed(task, parts, backend, folder, work).run(plan.scheduler, len(kept))
    return Inferred(str(folder.path), folder.finish(), run, plan.fed)


def _computed(
    task: InferTask,
    parts: Sequence[DataPart],
    backend: Backend,
    folder: ResultsFolder,
    work: Work,
) -> Pace:
    """Run parts, record the finished ones, and return the progress."""
    workers = min(backend.processes, len(parts))
    pace = Pace(work, sum(part.rows for part in parts), len(parts), workers)
    with contextlib.closing(computed(backend, task, parts)) as reported:
        for news in reported:
            if isinstance(news, Loss):
                pace.lost(news.rows)
                logger.warning("%s; retrying its work", news.error, extra={"repeats": True})
                continue
            if news.done is not None:
                folder.note(news.done)
            pace.take(news)
    return pace


@contextlib.contextmanager
def _model_file(plan: InferPlan) -> Iterator[str]:
    """Write the graph for the workers, to a hidden file next to the results."""
    path = Path(plan.task.folder, f"{plan.task.name}.model.pb")
    remove_leftovers(path.parent, glob.escape(path.name))  # from a killed run
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
