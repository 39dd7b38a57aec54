"""Search of faster settings: short trials, then a full measurement of the best.

Settings that TensorFlow and the C library read at start are tried in separate processes. Variables
that the user has set are not changed.
"""

import contextlib
import functools
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.engines.engine_choice import warn_emulated
from deploykit.benchmarking.inputs import SYNTHETIC, BenchmarkInputs, samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.rounds import ROUNDS, Advance, everyone, measure, spill
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


@dataclass(frozen=True)
class _Pace:
    """Division of the time between trials and the final measurement."""

    seconds: float
    began: float = field(default_factory=time.monotonic)

    @property
    def measured(self) -> float:
        """Seconds to measure each of the best in the end."""
        return max(1.0, min(10.0, self.seconds / 45))

    @property
    def warm_up(self) -> float:
        """Maximum seconds to warm up each of the best before."""
        return max(1.0, self.measured / 3)

    @property
    def left(self) -> float:
        """Remaining seconds of the whole budget."""
        return self.began + self.seconds - time.monotonic()

    def last(self, start_seconds: float, best: Sequence[SettingsTrial]) -> float:
        """Return the seconds of the final measurement, if the best settings do not change."""
        late = sum(item.figures.p50_ms for item in best if item.figures) / 1000
        item = 2 * start_seconds + self.warm_up + 1.4 * self.measured  # two processes of each
        return FINALISTS * item + LATE_CALLS * late


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
    pace = _Pace(60 * how.budget)
    graph, feeding = model.graph, feeding.read()
    fed = functools.cache(lambda size: feeding.batches(graph, size))
    sizes = _batches(fed, how.batches)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        path = Path(folder, "model.pb")
        sha256_of_graph = spill(graph, path)

        def job(settings: RunConfig) -> Job:
            return Job(str(path), graph.inputs, graph.outputs, fed(settings.batch), settings)

        bound = _bound(graph, sha256_of_graph, feeding) | {"env": how.variables}
        stored_trials = State(state, "tuning", bound)
        own = model.about.engine.engine if model.about.engine else TENSORFLOW
        if how.engine is None and (why := lacking(own)):
            warn_emulated(model, why)
        engines = how.engines(own)
        among = _Among(sizes, engines, how.variables)
        search, last = _searched(model, job, among, pace, how.latency_limit, stored_trials, advance)
        with _explained(state, search):
            chosen = _measured_last(search)
            left = (pace.left - last + FINALISTS * pace.measured) / len(chosen)
            final = measure(
                [
                    BenchmarkCandidate(str(item), model.source, model.sha256, job(item))
                    for item in chosen
                ],
                seconds=max(1.0, min(pace.measured, left)),
                warm_up=pace.warm_up,
                advance=lambda name, steps: advance(name, steps and len(search.trials) + steps),
                undecided=everyone,  # candidates are compared with each other too
            )
            if final.interrupted:
                raise KeyboardInterrupt
    stored_trials.forget()
    first, *others = how.variables
    fixed = {name: value for name, value in first.items() if all(value == o[name] for o in others)}
    retained = held({**os.environ, **fixed})
    tried = ENGINES if how.engine == AUTO else ()
    absent = {engine: why for engine in tried if (why := lacking(engine))}
    return Recommendation(
        model, how.goal, how.latency_limit, final, search.trials, retained, search.complete,
        lacking=absent,
    )  # fmt: skip


def _measured_last(search: Search) -> list[RunConfig]:
    """Return the candidates of the final measurement: the default, the best, and reverted changes.

    It adds variants of gains too small for a trial: the lowest latency with one concurrent op or
    one thread, and the runner-up.
    """
    result = dict.fromkeys(finalist.settings for finalist in search.finalists)
    if (other := search.runner_up) is not None:
        result[other.settings] = None
    best = search.best["latency"]
    for settings in dict.fromkeys([best, *result]):
        result |= dict.fromkeys(without_one(search.start, settings))
        if settings == best:
            result |= dict.fromkeys(
                replace(best, **coordinate[-1 if best.executor else 1])
                for coordinate in search.coordinates
                if [*coordinate[0]] == ["threads"]
            )
    tried = {trial.settings for trial in search.trials if trial.failure}
    possible = [item for item in result if item not in tried and item.in_engine == item]
    return possible[:MAX_LAST]


@dataclass(frozen=True)
class _Among:
    """Values to try; the first of each are the default."""

    sizes: Sequence[int | None]
    engines: Sequence[str]
    variables: Sequence[Mapping[str, str | None]]


def _searched(
    model: OpenedModel,
    job: Callable[[RunConfig], Job],
    among: _Among,
    pace: _Pace,
    latency_limit: float | None,
    stored_trials: State,
    advance: Advance,
) -> tuple[Search, float]:
    """Return the finished search, and the seconds of the final measurement."""
    variables = among.variables[0]
    default = RunConfig(batch=among.sizes[0], engine=among.engines[0], env=variables)
    default.check_here()
    kept = held({**os.environ, **variables})
    earlier = _resumed(stored_trials, among.variables)
    with contextlib.closing(Trials(job, default, model)) as trials:
        last = functools.partial(pace.last, trials.start_seconds)
        trials.until = time.monotonic() + pace.left - last(())
        search = Search(
            trials,
            default,
            coordinates(
                usable_cores(), among.sizes, trials.onednn, kept, among.engines, among.variables
            ),
            seconds=pace.left,
            latency_limit=latency_limit,
            done=earlier,
            keep=lambda result: stored_trials.keep("trials", document(result)),
            advance=advance,
            last=last,
        )
        with _explained(stored_trials.path, search):
            search.run()
    return search, last(search.finalists)


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


def _batches(feeds: Any, requested: Sequence[int]) -> list[int | None]:
    """Return the batch sizes to try, smallest first; None: the batch that the inputs require."""

    def samples(size: int | None) -> int:
        return samples_in(feeds(size)[0])

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


@contextlib.contextmanager
def _explained(state: str | os.PathLike[str] | None, search: Search) -> Iterator[None]:
    """Log the best settings so far on Ctrl-C, and how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        for goal, settings in search.best.items():
            logger.info("best %s so far: %s", goal, settings)
        if state is not None and search.trials:
            logger.info("%d trials are stored in %s; run the same command to resume",
                        len(search.trials), state)  # fmt: skip
        raise
