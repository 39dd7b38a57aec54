"""Measure models in a scenario, one after another: each has the machine to itself."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from deploykit.benchmarking.conditions import Watch
from deploykit.benchmarking.feeding import BenchmarkInputs
from deploykit.benchmarking.measurement import Turn
from deploykit.benchmarking.measuring import (
    WARM_UP_SECONDS,
    Advance,
    SettingsOf,
    contestants_of,
    performed,
)
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.sampling import Sampler
from deploykit.benchmarking.scenarios.stage import Played
from deploykit.benchmarking.scenarios.timing import OFFLINE, BenchmarkOptions
from deploykit.benchmarking.scenarios.validity import latencies_of, result_of_scenario
from deploykit.benchmarking.seating import Course, Seat, Seating
from deploykit.freezing.open_model import OpenedModel
from deploykit.transforms.core.errors import LimitError
from deploykit.transforms.core.running.child import limits

_LOOK_SECONDS = 1.0  # from one look at a load to the next, as a look takes a moment of a core


def measure_scenario(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
    timing: BenchmarkOptions,
    *,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure models by name, each with each of the settings, in one scenario.

    Ctrl-C ends it early: what was measured until then is the result. Errors are those of
    `measure_models`.
    """
    everything = timing.scenario == OFFLINE
    with contestants_of(models, settings, feeding, everything=everything) as contestants:
        steps = len(contestants) * (2 + bool(profile_runs))

        def play(seating: Seating, sampler: Sampler, watch: Watch) -> None:
            for course in seating.courses:
                watch.refer()
                name = course.contestant.name
                advance(f"{timing.scenario} {name}", steps)
                with sampler.watching(name, course.seats[0].process.worker.pid):
                    _act(course, timing, lambda line: advance(line, 0))
                watch.refer()

        found = performed(contestants, play, WARM_UP_SECONDS, steps, profile_runs, advance)
    return replace(found, models=models)


def _act(course: Course, timing: BenchmarkOptions, tell: Callable[[str], None]) -> None:
    """Let a contestant have its load, and note what was found."""
    seat, whole = course.seats[0], True
    seat.ask("begin", seat.number, timing)
    try:
        played = _waited_for(seat, tell)
    except KeyboardInterrupt:
        whole = False
        seat.ask("stop")
        played = _waited_for(seat, tell)
    if played.calls:
        course.rounds_ms.append(tuple(latencies_of(played.calls)))
        course.rounds_seconds.append(played.taken / 1e9)
        number = seat.process.number
        course.turns.append(Turn(0, number, 0, played.cpu / 1e6, played.waited, played.pushed))
        course.scenario = result_of_scenario(
            timing,
            played,
            course.samples,
            course.contestant.job.settings.concurrency,
            whole=whole,
            settled=course.settled,
        )
    if not whole:
        raise KeyboardInterrupt


def _waited_for(seat: Seat, tell: Callable[[str], None]) -> Played:
    """Return what a load found when it is over. LimitError: no call ends any more."""
    done, since = -1, time.monotonic()
    while not (played := seat.ask("so_far")).over:
        if played.done != done:
            done, since = played.done, time.monotonic()
            tell(f"{done} calls")
        elif time.monotonic() - since > limits.seconds:
            raise LimitError(
                "no-call-ended", source=seat.course.contestant.name, seconds=limits.seconds
            )
        time.sleep(_LOOK_SECONDS)
    found: Played = played
    return found
