"""The engine that measures a model, and the check of its outputs before timing."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from deploykit.benchmarking.engines.runner import OpenVinoRunner, Runner, compiling
from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.process_variables import check_preloaded
from deploykit.benchmarking.run_config import RunConfig
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.errors import GraphError, LoadError, VerificationError
from deploykit.transforms.engines.engines import OPENVINO, TENSORFLOW, TITLES, lacking
from deploykit.transforms.engines.openvino_model import imported
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.tensorflow_start import start_tensorflow
from deploykit.verification.engine_check import compared_in
from deploykit.verification.engine_feeds import EngineFeeds

logger = logging.getLogger("deploykit")


def in_own_engine(model: OpenedModel, settings: Sequence[RunConfig]) -> tuple[RunConfig, ...]:
    """Return settings with the engine that a model was written for, if this machine has it.

    A log line names the engine. GraphError: a setting applies only to TensorFlow.
    """
    use = model.about.engine
    if use is None or use.engine == TENSORFLOW:
        return tuple(settings)
    title = TITLES[use.engine]
    if why := lacking(use.engine):
        warn_emulated(model, why)
        return tuple(settings)
    logger.info("%s was written for %s and is measured there; use --engine tensorflow to "
                "measure it in TensorFlow", model.source, title)  # fmt: skip
    results = []
    for setting in settings:
        precision = setting.precision or ("bf16" if use.precision == "bf16" else None)
        own = replace(setting, engine=use.engine, precision=precision)
        if own.left_out:
            raise GraphError(
                "settings-other-engine", file=model.source, title=title, reason=own.left_out
            )
        own.check_here()
        results.append(own)
    return tuple(results)


def warn_emulated(model: OpenedModel, why: str) -> None:
    """Warn if TensorFlow only emulates the engine that a model was written for."""
    use = model.about.engine
    if use is not None and use.engine != TENSORFLOW:
        logger.warning("%s was written for %s; TensorFlow only emulates it, which is slow: %s",
                       model.source, TITLES[use.engine], why)  # fmt: skip


def import_engine(engine: str) -> None:
    """Import the modules of an engine, which takes longer than loading a small model."""
    if engine == OPENVINO:
        imported()
    else:
        start_tensorflow()


def opened(job: Job, like: Runner | None = None) -> Runner:
    """Load a model; a further session may share the graph of `like`.

    GraphError: the engine does not accept the graph or cannot run it, or a library of the settings
    is not preloaded.
    """
    check_preloaded(job.settings.env)
    if job.settings.engine == OPENVINO:
        return OpenVinoRunner(job)
    return TensorFlowRunner(job, like if isinstance(like, TensorFlowRunner) else None)


BATCHES = 4
"""Number of batches that are compared at most."""


def check_answers(jobs: Iterable[Job], graph: Graph, name: str) -> None:
    """Compare the outputs of other engines with TensorFlow's, for jobs that run one graph.

    VerificationError: an output differs; the message names it. LoadError: an engine refuses the
    graph; the message names its ops.
    """
    compared = set()
    for job in jobs:
        settings = job.settings
        requested = settings.engine, settings.precision, settings.batch
        if settings.engine is None or requested in compared:
            continue
        compared.add(requested)
        fed = [dict(zip(job.inputs, batch, strict=True)) for batch in job.batches[:BATCHES]]
        result = compared_in(graph, compiling(settings), engine=settings.engine,
                            feeds=EngineFeeds(fed))  # fmt: skip
        title = TITLES[settings.engine]
        if result.refused:
            raise LoadError("engine-refuses", source=name, reason=result.refused)
        if result.departs:
            raise VerificationError(
                "engine-differs-untimed", source=name, engine=title, reason=result.departs
            )
        if result.not_compared:
            logger.warning("%s: its outputs in %s were not compared: %s", name, title,
                           result.not_compared)  # fmt: skip
