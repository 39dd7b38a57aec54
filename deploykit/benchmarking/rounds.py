"""Measures models in short interleaved rounds, so that load of the machine affects all of them
alike.
"""

import contextlib
import datetime
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
from deploykit.benchmarking.speed_verdict import LOOKS, undecided_beside_the_first
from deploykit.benchmarking.system_load import Sampler, Watch
from deploykit.benchmarking.worker_sessions import MOST_SESSIONS, Contestant, Course, Seat, Seating
from deploykit.importers.open_model import OpenedModel
from deploykit.system.gpu_counters import open_devices
from deploykit.system.machine import machine
from deploykit.transforms.engines.engines import TENSORFLOW, TITLES
from deploykit.transforms.ir.graph import Graph

TURN = 0.015
"""Seconds of a turn. Of turns of half a second, ratios scatter six times as much on a busy
machine."""
GPU_TURN = 1.0  # a driver tells what a GPU did for periods of up to a second
LONG_CALL = 0.1  # seconds, from which on a call before the timed ones costs more than it tells
SLICES = 20  # of the time, after which progress is told
TURNS_EACH = 4  # that a session has at least where calls are counted
Undecided = Callable[[Sequence[Measurement]], Collection[int]]
"""Returns the places of the measurements of which more time would tell more."""


def everyone(used: Sequence[Measurement]) -> Collection[int]:
    """Let all contestants go on to the end of their time."""
    return range(len(used))


def together(decided: Callable[[Sequence[Measurement]], bool]) -> Undecided:
    """Return what lets all contestants go on until all is decided."""
    return lambda used: () if decided(used) else everyone(used)


class Play:
    """Turns that go on until their time or number is over."""

    def __init__(
        self, seating: Seating, sampler: Sampler, step: Callable[[], None], undecided: Undecided
    ) -> None:
        """Begin nothing yet; `step` is called after each of SLICES equal parts of the time."""
        self._seating, self._sampler, self._step = seating, sampler, step
        self._undecided = undecided
        self._order = random.Random(0)

    def for_seconds(self, seconds: float, watch: Watch) -> None:
        """Take turns for so many seconds of each contestant, or until its comparison is decided."""
        courses = self._seating.courses
        used, reported, looks, block = 0.0, 0, list(LOOKS), 0
        while True:
            watch.refer()
            began, shares = time.monotonic(), seconds * len(courses)
            for seat in self._shuffled(courses):
                passed = used + (time.monotonic() - began) / shares
                while reported < min(SLICES, int(passed * SLICES) + 1):
                    reported += 1
                    self._step()
                if passed >= 1 and block:
                    return
                self._turn(seat, block, _length(seat.course), None)
            block += 1
            used += (time.monotonic() - began) / shares
            if looks and used >= looks[0]:
                looks.pop(0)
                left = self._undecided([course.measurement() for course in courses])
                courses = [course for n, course in enumerate(courses) if n in left]
                if not courses:
                    return

    def for_calls(self, runs: int, rounds: int, watch: Watch) -> None:
        """Take so many calls of each contestant, in so many turns."""
        rounds = min(rounds, runs)
        for number in range(rounds):
            watch.refer()
            calls = runs * (number + 1) // rounds - runs * number // rounds
            if number * SLICES // rounds != (number - 1) * SLICES // rounds:
                self._step()
            courses = self._seating.courses
            for course in self._order.sample(courses, len(courses)):
                seat = course.seats[number % len(course.seats)]
                self._turn(seat, number, 1e9, calls)

    def _shuffled(self, courses: Sequence[Course]) -> list[Seat]:
        seats = [seat for course in courses for seat in course.seats]
        self._order.shuffle(seats)
        return seats

    def _turn(self, seat: Seat, block: int, seconds: float, runs: int | None) -> None:
        on_gpu = seat.course.contestant.job.settings.device != "cpu"
        watching = self._sampler.watching(seat.course.contestant.name, seat.process.worker.pid)
        with watching if on_gpu else contextlib.nullcontext():
            seat.take_a_turn(block, seconds, runs, seat.course.call_seconds < LONG_CALL)


def _length(course: Course) -> float:
    """Return the seconds of a turn: two calls at least, where these are not very long."""
    if course.contestant.job.settings.device != "cpu":
        return GPU_TURN
    call = course.call_seconds
    return TURN if call >= LONG_CALL else max(TURN, 1.5 * call)


ROUNDS = 20
"""Into how many turns a number of calls is divided."""
WARM_UP_SECONDS = 15.0  # at most

SettingsOf = Iterable[RunConfig] | Mapping[str, Sequence[RunConfig]]
"""Of all models, or by the name of a model."""
Advance = Callable[[str, int], None]


def measure(
    contestants: Sequence[Contestant],
    *,
    seconds: float = SECONDS,
    runs: int | None = None,
    rounds: int = ROUNDS,
    warm_up: float = WARM_UP_SECONDS,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
    undecided: Undecided = undecided_beside_the_first,
) -> BenchmarkResult:
    """Measure contestants in short turns in random order, each for so many seconds, or calls.

    `warm_up` is how many seconds each may take until it is steady. With `runs`, these calls are
    divided into `rounds` turns; without, each ends early that is not among `undecided`. With
    `profile_runs`, each makes so many traced calls in the end.
    Ctrl-C ends it early: what was measured until then is the result. LimitError: TensorFlow died,
    or took too long. KeyboardInterrupt: nothing was measured yet.
    """
    steps = len(contestants) * (1 + bool(profile_runs)) + 1 + SLICES

    def take_turns(seating: Seating, sampler: Sampler, watch: Watch) -> None:
        play = Play(seating, sampler, lambda: advance("turns", steps), undecided)
        if runs is None:
            play.for_seconds(seconds, watch)
        else:
            play.for_calls(runs, rounds, watch)

    def open_more(seating: Seating) -> None:
        advance("load further sessions", steps)
        most = MOST_SESSIONS if runs is None else max(1, min(rounds, runs) // TURNS_EACH)
        seating.open_more(seconds if runs is None else None, most, lambda: advance("", 0))

    return performed(contestants, take_turns, warm_up, steps, profile_runs, advance, open_more)


def performed(
    contestants: Sequence[Contestant],
    play: Callable[[Seating, Sampler, Watch], None],
    warm_up: float,
    steps: int,
    profile_runs: int,
    advance: Advance,
    prepare: Callable[[Seating], None] = lambda seating: None,
) -> BenchmarkResult:
    """Open contestants and warm them up, let `play` measure them, and return what was found."""
    start = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seen, interrupted = machine(), False
    profiles: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        sampler = Sampler(open_devices(), lambda line: advance(line, 0))
        seating = Seating(contestants, stack)
        for name in seating.open_first(warm_up):
            advance(f"load {name}", steps)
        prepare(seating)
        own, watch = seating.own_seconds(), Watch()
        try:
            play(seating, sampler, watch)
            conditions = watch.conditions(seating.own_seconds() - own)
            for course in seating.courses if profile_runs else ():
                name, seat = course.contestant.name, course.seats[0]
                advance(f"profile {name}", steps)
                profiles[name] = seat.ask("profile", seat.number, profile_runs)
        except KeyboardInterrupt:
            interrupted = True
            conditions = watch.conditions(seating.own_seconds() - own)
        courses = [course for course in seating.courses if course.rounds_ms]
        if not courses:
            raise KeyboardInterrupt
        for course in courses:
            seen_by = sampler.facts(course.contestant.name)
            course.facts = {**course.facts, "cpu_use": course.cpu_use} | (
                seen_by if seen_by["devices"] else {"devices": []}
            )
            if course.contestant.job.settings.device != "cpu":
                peaks = course.seats[0].ask("gpu_bytes_peak")
                course.facts = {**course.facts, "gpu_bytes_peak": peaks}
        results = tuple(course.measurement() for course in courses)
    return BenchmarkResult(results, seen, start, interrupted, profiles, conditions=conditions)


def measure_models(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
    timing: BenchmarkOptions,
    *,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure models by name, each with each of the settings, in turn, as `measure` does.

    `settings` count for all models, or are given by a model's name.
    GraphError: an input has no known shape, or does not fit the data; a GPU is not there.
    LimitError: TensorFlow died.
    """
    with contestants_of(models, settings, feeding) as contestants:
        result = measure(
            contestants,
            seconds=timing.seconds,
            runs=timing.runs,
            rounds=timing.rounds or ROUNDS,
            profile_runs=profile_runs,
            advance=advance,
        )
    return replace(result, models=models)


@contextlib.contextmanager
def contestants_of(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
    *,
    everything: bool = False,
) -> Iterator[list[Contestant]]:
    """Give every model with each of the settings, while the files that they are read from last.

    Other engines' answers are compared with TensorFlow's before: VerificationError, LoadError.
    `everything` means that all data are fed, not some. Errors are those of `measure_models`.
    """
    chosen = settings if isinstance(settings, Mapping) else dict.fromkeys(models, tuple(settings))
    seen = check_devices(item.device for several in chosen.values() for item in several)
    chosen = {name: once_each(several, seen) for name, several in chosen.items()}
    feeding = feeding.read()
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        contestants = []
        for number, (name, model) in enumerate(models.items()):
            path, graph = Path(folder, f"{number}.pb"), model.graph
            spill(graph, path)
            fed = {
                size: feeding.batches(graph, size, everything=everything)
                for size in dict.fromkeys(item.batch for item in chosen[name])
            }
            jobs = [Job(str(path), graph.inputs, graph.outputs, fed[s.batch], s)
                    for s in chosen[name]]  # fmt: skip
            check_answers(jobs, graph, name)
            contestants += [Contestant("", name, model.sha256, job) for job in jobs]
        yield _named(contestants)


def _named(contestants: Sequence[Contestant]) -> list[Contestant]:
    """Give each a name: its model, and its settings where they differ."""
    models = {contestant.model for contestant in contestants}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({contestant.job.settings for contestant in contestants}) > 1
    engines = {contestant.job.settings.engine for contestant in contestants}
    results = []
    for contestant in contestants:
        words = [short[contestant.model]] if len(models) > 1 or not several else []
        words += [_in_words(contestant.job.settings, engines)] if several else []
        results.append(replace(contestant, name=", ".join(words)))
    return results


def _in_words(settings: RunConfig, engines: Collection[str | None]) -> str:
    """Return settings in words; TensorFlow is named beside another engine alone."""
    is_said = len(engines) == 1 or settings.engine is not None or settings == RunConfig()
    return str(settings) if is_said else f"{TITLES[TENSORFLOW]}, {settings}"


def spill(graph: Graph, path: Path) -> str:
    """Write a graph to a file of this run, and return its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in graph.serialized():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
