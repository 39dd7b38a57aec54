"""A plan carried out: parts are computed, noted, and in the end listed in the index."""

import contextlib
import glob
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from deploykit.batch_inference.backends.backend import Backend
from deploykit.batch_inference.driver import Loss, computed
from deploykit.batch_inference.infer_plan import InferPlan
from deploykit.batch_inference.inferred import Inferred, InferRun
from deploykit.batch_inference.pace import STEP, Pace
from deploykit.batch_inference.results_folder import ResultsFolder
from deploykit.storage.files import hidden, remove_leftovers
from deploykit.text.progress import Work

logger = logging.getLogger("deploykit")

STEPS = ("read", STEP)


def carried_out(plan: InferPlan, backend: Backend, folder: ResultsFolder, work: Work) -> Inferred:
    """Compute the parts that are not there yet, and return what came of all.

    LimitError: a part was lost with its worker too often. GraphError, FileError: a row cannot be
    used, the model cannot be run, or a file cannot be read or written. What is finished by then
    stays.
    """
    kept = folder.kept()
    parts = [part for part in plan.parts if part.number not in kept]
    workers = min(backend.processes, len(parts))
    pace = Pace(work, sum(part.rows for part in parts), len(parts), workers)
    lost = 0
    if parts:
        work.begin(STEP)
        with _model_file(plan) as model, contextlib.closing(
            computed(backend, replace(plan.task, model=model), parts)
        ) as told:  # fmt: skip
            for news in told:
                if isinstance(news, Loss):
                    lost += 1
                    pace.lost(news.rows)
                    logger.warning("%s; what it was at is done again", news.error)
                    continue
                if news.done is not None:
                    folder.note(news.done)
                pace.take(news)
    else:
        backend.close()
    document = folder.finish()
    run = InferRun(
        backend.name,
        workers,
        pace.done,
        len(kept),
        lost,
        pace.seconds if parts else 0.0,
        pace.rate,
        pace.cpus,
    )
    return Inferred(str(folder.path), document, run)


@contextlib.contextmanager
def _model_file(plan: InferPlan) -> Iterator[str]:
    """Write the graph where all workers read it: beside the results, under a hidden name."""
    path = Path(plan.task.folder, f"{plan.task.name}.model.pb")
    remove_leftovers(path.parent, glob.escape(path.name))  # of a run that was killed
    with hidden(path) as (partial, file):
        for piece in plan.graph.serialized():
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        yield str(partial)
