"""Before an engine is timed, its answers are compared with TensorFlow's: a wrong one is not timed.

They are compared on the batches that are benchmarked; `verification.engines.engine_check` says how.
"""

import logging
from collections.abc import Iterable

from deploykit.benchmarking.engines.openvino_runner import compiling
from deploykit.benchmarking.job import Job
from deploykit.transforms.core.engines.engines import TITLES
from deploykit.transforms.core.errors import LoadError, VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.verification.engines.engine_check import compared_in
from deploykit.verification.engines.engine_feeds import EngineFeeds

logger = logging.getLogger("deploykit")

BATCHES = 4
"""So many are compared at most."""


def check_answers(jobs: Iterable[Job], graph: Graph, name: str) -> None:
    """Compare other engines' answers with TensorFlow's, for jobs that run one graph.

    VerificationError: an output departs; it is named. LoadError: an engine refuses the graph; its
    ops are named.
    """
    compared = set()
    for job in jobs:
        settings = job.settings
        asked = settings.engine, settings.precision, settings.batch
        if settings.engine is None or asked in compared:
            continue
        compared.add(asked)
        fed = [dict(zip(job.inputs, each, strict=True)) for each in job.batches[:BATCHES]]
        found = compared_in(graph, compiling(settings), engine=settings.engine,
                            feeds=EngineFeeds(fed))  # fmt: skip
        title = TITLES[settings.engine]
        if found.refused:
            raise LoadError("engine-refuses", source=name, reason=found.refused)
        if found.departs:
            raise VerificationError(
                "engine-differs-untimed", source=name, engine=title, reason=found.departs
            )
        if found.not_compared:
            logger.warning("%s: its answers in %s were not compared: %s", name, title,
                           found.not_compared)  # fmt: skip
