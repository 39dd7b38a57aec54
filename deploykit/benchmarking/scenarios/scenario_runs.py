"""Runs models in a load scenario one after another, each alone on the machine, and shows the
results.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.benchmarking.measurement import ScenarioResult, Turn
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.rounds import (
    WARM_UP_SECONDS,
    Advance,
    SettingsOf,
    contestants_of,
    performed,
)
from deploykit.benchmarking.run_config import OFFLINE, BenchmarkOptions
from deploykit.benchmarking.scenarios.load import Played
from deploykit.benchmarking.scenarios.validity import latencies_of, result_of_scenario
from deploykit.benchmarking.system_load import Sampler, Watch
from deploykit.benchmarking.worker_sessions import Course, Seat, Seating
from deploykit.importers.open_model import OpenedModel
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import number
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.child_process import limits

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

        result = performed(contestants, play, WARM_UP_SECONDS, steps, profile_runs, advance)
    return replace(result, models=models)


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
    result: Played = played
    return result


_ENDS = {"ms": " ms", "samples/s": "/s"}
_LINES = {
    "single": "single: one call after another, as in MLPerf's single stream",
    "offline": "offline: all samples at the highest throughput",
    "server": "server: requests arrive at random; latencies count from the scheduled time",
}


def scenario_tables(result: BenchmarkResult) -> list[str | Table]:
    """Return the figure of each, and what the scenario is; nothing for another benchmark."""
    results = [
        (measurement.name, measurement.scenario)
        for measurement in result.measurements
        if measurement.scenario
    ]
    if not results:
        return []
    first = results[0][1]
    columns: dict[str, Cell] = {
        "": lambda row: row[0],
        first.figure: lambda row: _metric(row[1], row[1].value),
        "at most": lambda row: _metric(row[1], row[1].at_most) if first.unit == "ms" else None,
        "calls": "{1.calls}",
        "calls/s": "{1.rate_reached:number}",
        "requested": lambda row: number(row[1].rate_asked) if row[1].rate_asked else None,
        "valid": "{1.valid:yes}",
    }
    lines = [_LINES[first.name]]
    if first.unit == "ms":
        lines.append("at most: upper bound of the percentile at 99 % confidence (MLPerf)")
    return [table(results, columns), *lines]


def scenario_row(scenario_result: ScenarioResult | None) -> dict[str, Any]:
    """Return the cells of a line of CSV; nothing for another benchmark."""
    if scenario_result is None:
        return {}
    cells = document(scenario_result) | {"why": "; ".join(scenario_result.why)}
    return {f"scenario_{name}": value for name, value in cells.items()}


def _metric(scenario_result: ScenarioResult, value: float | None) -> str | None:
    return None if value is None else f"{number(value)}{_ENDS[scenario_result.unit]}"
