"""Measurement of models in short interleaved rounds, so that load affects all of them alike."""

import contextlib
import datetime
import functools
import hashlib
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import check_devices, once_each
from deploykit.benchmarking.engines.engine_choice import check_answers
from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.benchmarking.measurement import Job, Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import SECONDS, BenchmarkOptions, RunConfig
from deploykit.benchmarking.speed_verdict import LOOKS, inconclusive_against_first
from deploykit.benchmarking.system_load import Sampler, Watch
from deploykit.benchmarking.worker_sessions import (
    MAX_SESSIONS,
    BenchmarkCandidate,
    CandidateRun,
    CandidateSession,
    SessionPool,
)
from deploykit.importers.open_model import OpenedModel
from deploykit.system.gpu_counters import open_devices
from deploykit.system.machine import machine
from deploykit.transforms.engines.engines import TENSORFLOW, TITLES
from deploykit.transforms.ir.graph import Graph

TURN = 0.015
"""Seconds of a round. With rounds of half a second, ratios scatter six times as much on a loaded
machine."""
GPU_TURN = 1.0  # a driver reports GPU utilization over periods of up to a second
LONG_CALL = 0.1  # seconds; above it, an untimed call before each round is not worthwhile
SLICES = 20  # progress reports
TURNS_PER_CANDIDATE = 4  # minimum rounds of a session if calls are counted
Undecided = Callable[[Sequence[Measurement]], Collection[int]]
"""Returns the indices of the measurements that need more time."""


def everyone(used: Sequence[Measurement]) -> Collection[int]:
    """Return the indices of all candidates: all run to the end of their time."""
    return range(len(used))


def together(decided: Callable[[Sequence[Measurement]], bool]) -> Undecided:
    """Return a rule that runs all candidates until every comparison is conclusive."""
    return lambda used: () if decided(used) else everyone(used)


class MeasurementLoop:
    """The benchmark loop, until its time or number of calls is used up."""

    def __init__(
        self,
        session_pool: SessionPool,
        sampler: Sampler,
        step: Callable[[], None],
        undecided: Undecided,
    ) -> None:
        """Store the parameters; `step` is called after each of SLICES equal parts of the time."""
        self._session_pool, self._sampler, self._step = session_pool, sampler, step
        self._undecided = undecided
        self._order = random.Random(0)

    def for_seconds(self, seconds: float, watch: Watch) -> None:
        """Run rounds for `seconds` per candidate, or until its comparison is conclusive."""
        candidate_runs = self._session_pool.candidate_runs
        used, reported, looks, block = 0.0, 0, list(LOOKS), 0
        while True:
            watch.refer()
            began, shares = time.monotonic(), seconds * len(candidate_runs)
            sessions = [session for run in candidate_runs for session in run.sessions]
            self._order.shuffle(sessions)
            for session in sessions:
                passed = used + (time.monotonic() - began) / shares
                while reported < min(SLICES, int(passed * SLICES) + 1):
                    reported += 1
                    self._step()
                if passed >= 1 and block:
                    return
                self._turn(session, block, _length(session.candidate_run), None)
            block += 1
            used += (time.monotonic() - began) / shares
            if looks and used >= looks[0]:
                looks.pop(0)
                left = self._undecided([run.measurement() for run in candidate_runs])
                candidate_runs = [run for n, run in enumerate(candidate_runs) if n in left]
                if not candidate_runs:
                    return

    def for_calls(self, runs: int, rounds: int, watch: Watch) -> None:
        """Run `runs` calls of each candidate, in `rounds` rounds."""
        rounds = min(rounds, runs)
        for number in range(rounds):
            watch.refer()
            calls = runs * (number + 1) // rounds - runs * number // rounds
            if number * SLICES // rounds != (number - 1) * SLICES // rounds:
                self._step()
            candidate_runs = self._session_pool.candidate_runs
            for run in self._order.sample(candidate_runs, len(candidate_runs)):
                session = run.sessions[number % len(run.sessions)]
                self._turn(session, number, 1e9, calls)

    def _turn(
        self, session: CandidateSession, block: int, seconds: float, runs: int | None
    ) -> None:
        run = session.candidate_run
        on_gpu = run.candidate.job.settings.device != "cpu"
        watching = self._sampler.watching(run.candidate.name, session.process.worker.pid)
        with watching if on_gpu else contextlib.nullcontext():
            session.run_turn(block, seconds, runs, run.call_seconds < LONG_CALL)


def _length(run: CandidateRun) -> float:
    """Return the seconds of a round: time for at least two calls, unless calls are very long."""
    if run.candidate.job.settings.device != "cpu":
        return GPU_TURN
    call = run.call_seconds
    return TURN if call >= LONG_CALL else max(TURN, 1.5 * call)


ROUNDS = 20
"""Number of rounds into which a number of calls is divided."""
WARM_UP_SECONDS = 15.0  # maximum

SettingsOf = Iterable[RunConfig] | Mapping[str, Sequence[RunConfig]]
"""Settings of all models, or by the name of a model."""
Advance = Callable[[str, int], None]


def measure(
    candidates: Sequence[BenchmarkCandidate],
    *,
    seconds: float = SECONDS,
    runs: int | None = None,
    rounds: int = ROUNDS,
    warm_up: float = WARM_UP_SECONDS,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
    undecided: Undecided = inconclusive_against_first,
) -> BenchmarkResult:
    """Measure candidates in short rounds in random order.

    Each runs for `seconds`, or until its comparison is conclusive. With `runs`, it runs that many
    calls in `rounds` rounds instead. `warm_up` limits the seconds until its latency is steady.
    `profile_runs` is the number of traced calls at the end.

    Ctrl-C ends the measurement early: the result contains the rounds until then. LimitError:
    TensorFlow died, or took too long. KeyboardInterrupt: nothing was measured yet.
    """
    steps = len(candidates) * (1 + bool(profile_runs)) + 1 + SLICES
    most = MAX_SESSIONS if runs is None else max(1, min(rounds, runs) // TURNS_PER_CANDIDATE)
    start = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seen, interrupted = machine(), False
    profiles: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        sampler = Sampler(open_devices(), lambda line: advance(line, 0))
        session_pool = SessionPool(candidates, stack)
        for name in session_pool.open_first(warm_up):
            advance(f"load {name}", steps)
        advance("load further sessions", steps)
        session_pool.open_more(seconds if runs is None else None, most, lambda: advance("", 0))
        loop = MeasurementLoop(session_pool, sampler, lambda: advance("turns", steps), undecided)
        own, watch = session_pool.own_seconds(), Watch()
        try:
            if runs is None:
                loop.for_seconds(seconds, watch)
            else:
                loop.for_calls(runs, rounds, watch)
            conditions = watch.conditions(session_pool.own_seconds() - own)
            for run in session_pool.candidate_runs if profile_runs else ():
                name, session = run.candidate.name, run.sessions[0]
                advance(f"profile {name}", steps)
                profiles[name] = session.ask("profile", session.number, profile_runs)
        except KeyboardInterrupt:
            interrupted = True
            conditions = watch.conditions(session_pool.own_seconds() - own)
        candidate_runs = [run for run in session_pool.candidate_runs if run.rounds_ms]
        if not candidate_runs:
            raise KeyboardInterrupt
        results = tuple(_measurement(run, sampler) for run in candidate_runs)
    return BenchmarkResult(results, seen, start, interrupted, profiles, conditions=conditions)


def _measurement(run: CandidateRun, sampler: Sampler) -> Measurement:
    """Return the measurement of a candidate, with its use of CPU and devices."""
    seen_by = sampler.facts(run.candidate.name)
    run.facts = {**run.facts, "cpu_use": run.cpu_use} | (
        seen_by if seen_by["devices"] else {"devices": []}
    )
    if run.candidate.job.settings.device != "cpu":
        peaks = run.sessions[0].ask("gpu_bytes_peak")
        run.facts = {**run.facts, "gpu_bytes_peak": peaks}
    return run.measurement()


def measure_models(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
    timing: BenchmarkOptions,
    *,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure models by name with each of the settings, interleaved, as `measure` does.

    `settings` apply to all models, or are given by a model's name.

    GraphError: an input has no known shape, or does not fit the data; a GPU does not exist.
    LimitError: TensorFlow died.
    """
    with candidates_of(models, settings, feeding) as candidates:
        result = measure(
            candidates,
            seconds=timing.seconds,
            runs=timing.runs,
            rounds=timing.rounds or ROUNDS,
            profile_runs=profile_runs,
            advance=advance,
        )
    return replace(result, models=models)


@contextlib.contextmanager
def candidates_of(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
) -> Iterator[list[BenchmarkCandidate]]:
    """Yield a candidate for every model and setting; their files exist inside the block.

    Outputs of other engines are compared with TensorFlow's before: VerificationError, LoadError.
    Other errors are those of `measure_models`.
    """
    chosen = settings if isinstance(settings, Mapping) else dict.fromkeys(models, tuple(settings))
    seen = check_devices(item.device for several in chosen.values() for item in several)
    chosen = {name: once_each(several, seen) for name, several in chosen.items()}
    feeding = feeding.read()
    candidates = []
    with contextlib.ExitStack() as stack:
        for name, model in models.items():
            job, _ = stack.enter_context(jobs_of(model.graph, feeding))
            jobs = [job(item) for item in chosen[name]]
            check_answers(jobs, model.graph, name)
            candidates += [BenchmarkCandidate("", name, model.sha256, item) for item in jobs]
        yield _named(candidates)


@contextlib.contextmanager
def jobs_of(
    graph: Graph, feeding: BenchmarkInputs
) -> Iterator[tuple[Callable[[RunConfig], Job], str]]:
    """Yield a function that returns the job of settings, and the SHA-256 of the graph.

    The graph's file exists inside the block. Jobs of the same batch share its arrays. `feeding`
    has been read.
    """
    fed = functools.cache(lambda size: feeding.batches(graph, size))
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        path = Path(folder, "model.pb")
        sha256 = spill(graph, path)
        yield (
            lambda s: Job(str(path), graph.inputs, graph.outputs, fed(s.batch), s),
            sha256,
        )


def _named(candidates: Sequence[BenchmarkCandidate]) -> list[BenchmarkCandidate]:
    """Name each candidate after its model, and its settings where they differ."""
    models = {candidate.model for candidate in candidates}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({candidate.job.settings for candidate in candidates}) > 1
    engines = {candidate.job.settings.engine for candidate in candidates}
    results = []
    for candidate in candidates:
        words = [short[candidate.model]] if len(models) > 1 or not several else []
        words += [_in_words(candidate.job.settings, engines)] if several else []
        results.append(replace(candidate, name=", ".join(words)))
    return results


def _in_words(settings: RunConfig, engines: Collection[str | None]) -> str:
    """Return settings in words; TensorFlow is named only if other engines are measured too."""
    is_said = len(engines) == 1 or settings.engine is not None or settings == RunConfig()
    return str(settings) if is_said else f"{TITLES[TENSORFLOW]}, {settings}"


def spill(graph: Graph, path: Path) -> str:
    """Write a graph to a temporary file of this run, and return its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in graph.serialized():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
