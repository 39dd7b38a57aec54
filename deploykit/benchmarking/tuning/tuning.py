"""Search of faster settings: short trials, then a full measurement of the best.

Settings that TensorFlow and the C library read at start are tried in separate processes. Variables
that the user has set are not changed.
"""

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deploykit.benchmarking.engines.engine_choice import warn_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs, samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.rounds import ROUNDS, Advance, everyone, jobs_of, measure
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tuning.recommendation import Recommendation, without_one
from deploykit.benchmarking.tuning.search import Search, SettingsTrial, Trials
from deploykit.benchmarking.tuning.search_space import TuneOptions, coordinates, held
from deploykit.benchmarking.worker_sessions import BenchmarkCandidate
from deploykit.importers.open_model import OpenedModel
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.system.machine import environment, machine, usable_cores
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.engines.engines import AUTO, ENGINES, TENSORFLOW, lacking, version_of
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import limits
from deploykit.verification.synthetic.sample_inputs import batch_axes

logger = logging.getLogger("deploykit")

BATCHES = (8, 32)  # besides 1, if the batch is not fixed
FINALISTS = 5  # default, lowest latency, highest throughput, and these without one change
MAX_LAST = 6
LATE_CALLS = 2 + 1.5 * ROUNDS  # first calls, and calls at the ends of rounds


class _Pace:
    """Division of the time between trials and the final measurement."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self.measured = max(1.0, min(10.0, seconds / 45))  # seconds of each of the best, in the end
        self.warm_up = max(1.0, self.measured / 3)  # at most, before

    def left(self, start_seconds: float, best: Sequence[SettingsTrial] = ()) -> float:
        """Return the remaining seconds before the final measurement of the best."""
        late = sum(item.figures.p50_ms for item in best if item.figures) / 1000
        item = 2 * start_seconds + self.warm_up + 1.4 * self.measured  # two processes of each
        return self._end - time.monotonic() - FINALISTS * item - LATE_CALLS * late


def tune_model(
    model: OpenedModel,
    how: TuneOptions,
    feeding: BenchmarkInputs = SYNTHETIC,
    *,
    state: str | os.PathLike[str] | None = None,
    advance: Advance = lambda name, count: None,
) -> Recommendation:
    """Search the settings with the lowest latency and those with the highest throughput.

    `state` is a file that stores the trials, so that an interrupted search resumes; it is removed
    at the end. `advance` is called with the next step, and with the estimated number of steps.
    Errors are those of the API's function.
    """
    pace, feeding = _Pace(60 * how.budget), feeding.read()
    own = model.about.engine.engine if model.about.engine else TENSORFLOW
    if how.engine is None and (why := lacking(own)):
        warn_emulated(model, why)
    with jobs_of(model.graph, feeding) as (job, sha256_of_graph), contextlib.ExitStack() as stack:
        sizes, engines, variables = _batches(job, how.batches), how.engines(own), how.variables
        default = RunConfig(batch=sizes[0], engine=engines[0], env=variables[0])
        default.check_here()
        bound = _bound(model.graph, sha256_of_graph, feeding) | {"env": variables}
        stored = State(state, "tuning", bound)
        earlier = _resumed(stored, variables)
        trials = stack.enter_context(contextlib.closing(Trials(job, default, model)))
        trials.left = left = functools.partial(pace.left, trials.start_seconds)
        retained = held({**os.environ, **variables[0]})
        search = Search(
            trials,
            default,
            coordinates(usable_cores(), sizes, trials.onednn, retained, engines, variables),
            left=left,
            latency_limit=how.latency_limit,
            done=earlier,
            keep=lambda result: stored.keep("trials", document(result)),
            advance=advance,
        )
        try:
            search.run()
            stack.close()
            final = _measured(search, model, job, pace, left(search.finalists), advance)
        except KeyboardInterrupt:
            for goal, settings in search.best.items():
                logger.info("best %s so far: %s", goal, settings)
            if state is not None and search.trials:
                logger.info("%d trials are stored in %s; run the same command to resume",
                            len(search.trials), state)  # fmt: skip
            raise
    stored.forget()
    same = {n: v for n, v in variables[0].items() if all(v == other[n] for other in variables)}
    absent = {e: why for e in ENGINES if how.engine == AUTO and (why := lacking(e))}
    return Recommendation(
        model, how.goal, how.latency_limit, final, search.trials, held({**os.environ, **same}),
        search.complete, lacking=absent,
    )  # fmt: skip


def _measured(
    search: Search,
    model: OpenedModel,
    job: Callable[[RunConfig], Job],
    pace: _Pace,
    left: float,
    advance: Advance,
) -> BenchmarkResult:
    """Measure the defaults and the best settings; `left` seconds are added to those planned."""
    chosen = _measured_last(search)
    seconds = (left + FINALISTS * pace.measured) / len(chosen)
    result = measure(
        [BenchmarkCandidate(str(item), model.source, model.sha256, job(item)) for item in chosen],
        seconds=max(1.0, min(pace.measured, seconds)),
        warm_up=pace.warm_up,
        advance=lambda name, steps: advance(name, steps and len(search.trials) + steps),
        undecided=everyone,  # candidates are compared with each other too
    )
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _measured_last(search: Search) -> list[RunConfig]:
    """Return the candidates of the final measurement: the default, the best, and reverted changes.

    It adds variants of gains too small for a trial: the lowest latency with one concurrent op or
    one thread, and the runner-up.
    """
    best, others = search.best["latency"], [*search.finalists]
    if (other := search.runner_up) is not None:
        others.append(other)
    chosen = [trial.settings for trial in others]
    threads = [
        replace(best, **coordinate[-1 if best.executor else 1])
        for coordinate in search.coordinates
        if [*coordinate[0]] == ["threads"]
    ]
    reverted = [item for settings in chosen for item in without_one(search.start, settings)]
    every = dict.fromkeys([*chosen, *without_one(search.start, best), *threads, *reverted])
    failed = {trial.settings for trial in search.trials if trial.failure}
    return [item for item in every if item not in failed and item.in_engine == item][:MAX_LAST]


def _bound(graph: Graph, sha256: str, feeding: BenchmarkInputs) -> dict[str, Any]:
    """Return everything that trials depend on."""
    data: Any = feeding.data
    seen, shapes = machine(), {name: tuple(sizes) for name, sizes in feeding.shapes.items()}
    return {
        "graph": [sha256, list(graph.inputs), list(graph.outputs)],
        "inputs": [
            repr([shapes, feeding.input_range, *batch_axes(graph).items()]),
            digest(pieces(getattr(data, "arrays", data) or {})),
        ],
        "memory_limit": limits.memory,
        "environment": environment(),
        "engines": {e: version_of(e) for e in ENGINES if e != TENSORFLOW and not lacking(e)},
        **{name: seen[name] for name in ("cpu", "affinity", "cpu_limit")},
        **{name: seen["versions"][name] for name in ("tensorflow", "wheel")},
    }


def _batches(job: Callable[[RunConfig], Job], requested: Sequence[int]) -> list[int | None]:
    """Return the batch sizes to try, smallest first; None: the batch that the inputs require."""

    def samples(size: int | None) -> int:
        return samples_in(job(RunConfig(batch=size)).batches[0])

    if requested:
        for size in requested:
            if samples(size) != size:
                raise GraphError("batch-cannot-be-tried", size=size, samples=samples(size))
        return [*sorted(requested)]
    smallest = samples(None)
    batches: list[int | None] = []
    for size in (smallest, *(batch for batch in BATCHES if batch > smallest)):
        with contextlib.suppress(GraphError):
            if samples(size) == size:
                batches.append(size)
    return batches if len(batches) > 1 else [None]


def _resumed(
    state: State, variables: Sequence[Mapping[str, str | None]]
) -> tuple[SettingsTrial, ...]:
    """Return the trials of an interrupted run; `variables` are the user's own."""
    own = {pair for item in variables for pair in item.items()}
    try:
        trials = tuple(SettingsTrial.of(item, own) for item in state.stored.get("trials", ()))
    except (Error, KeyError, TypeError, ValueError) as error:
        logger.info("%s: the trials cannot be read (%s), so the search starts again",
                    state.path, error)  # fmt: skip
        return ()
    if trials:
        logger.info("%s: the search resumes after %d trials", state.path, len(trials))
    return trials
