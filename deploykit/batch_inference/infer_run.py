"""A plan carried out: parts are computed, noted, and in the end listed in the index."""

import contextlib
import glob
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from deploykit.batch_inference.backends.backend import Backend
from deploykit.batch_inference.driver import Loss, computed
from deploykit.batch_inference.infer_plan import InferPlan
from deploykit.batch_inference.infer_task import InferTask
from deploykit.batch_inference.inferred import Inferred, InferRun
from deploykit.batch_inference.pace import STEP, Pace
from deploykit.batch_inference.reading.data_part import DataPart
from deploykit.batch_inference.results_folder import ResultsFolder
from deploykit.storage.files import hidden, remove_leftovers
from deploykit.text.progress import Work
from deploykit.transforms.core.errors import cannot_be

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
    kept = folder.kept()
    parts = [part for part in plan.parts if part.number not in kept]
    run = InferRun(plan.engine, kept=len(kept))
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
    with contextlib.closing(computed(backend, task, parts)) as told:
        for news in told:
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
