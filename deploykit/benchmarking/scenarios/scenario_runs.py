"""Runs models in a load scenario, one after another, and formats the results."""

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
    candidates_of,
    performed,
)
from deploykit.benchmarking.run_config import OFFLINE, BenchmarkOptions
from deploykit.benchmarking.scenarios.load import Played
from deploykit.benchmarking.scenarios.validity import latencies_of, result_of_scenario
from deploykit.benchmarking.system_load import Sampler, Watch
from deploykit.benchmarking.worker_sessions import CandidateRun, CandidateSession, SessionPool
from deploykit.importers.open_model import OpenedModel
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import number
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.child_process import limits

_LOOK_SECONDS = 1.0  # polling interval; each poll uses CPU time that the load needs


def measure_scenario(
    models: Mapping[str, OpenedModel],
    settings: SettingsOf,
    feeding: BenchmarkInputs,
    timing: BenchmarkOptions,
    *,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure models by name, with each of the settings, in one scenario.

    Ctrl-C ends the measurement early: the result contains the calls until then. Errors are those of
    `measure_models`.
    """
    everything = timing.scenario == OFFLINE
    with candidates_of(models, settings, feeding, everything=everything) as candidates:
        steps = len(candidates) * (2 + bool(profile_runs))

        def play(session_pool: SessionPool, sampler: Sampler, watch: Watch) -> None:
            for course in session_pool.courses:
                watch.refer()
                name = course.candidate.name
                advance(f"{timing.scenario} {name}", steps)
                with sampler.watching(name, course.seats[0].process.worker.pid):
                    _act(course, timing, lambda line: advance(line, 0))
                watch.refer()

        result = performed(candidates, play, WARM_UP_SECONDS, steps, profile_runs, advance)
    return replace(result, models=models)


def _act(course: CandidateRun, timing: BenchmarkOptions, tell: Callable[[str], None]) -> None:
    """Run a candidate's load, and store the result."""
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
        course.rounds_seconds.append(played.elapsed_ns / 1e9)
        number = seat.process.number
        course.turns.append(Turn(0, number, 0, played.cpu / 1e6, played.waited, played.pushed))
        course.scenario = result_of_scenario(
            timing,
            played,
            course.samples,
            course.candidate.job.settings.concurrency,
            whole=whole,
            settled=course.settled,
        )
    if not whole:
        raise KeyboardInterrupt


def _waited_for(seat: CandidateSession, tell: Callable[[str], None]) -> Played:
    """Wait for a load to end, and return its result. LimitError: calls no longer finish."""
    done, since = -1, time.monotonic()
    while not (played := seat.ask("so_far")).over:
        if played.done != done:
            done, since = played.done, time.monotonic()
            tell(f"{done} calls")
        elif time.monotonic() - since > limits.seconds:
            raise LimitError(
                "no-call-ended", source=seat.course.candidate.name, seconds=limits.seconds
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
    """Return the scenario's metric for each model; empty for other benchmarks."""
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
    """Return the scenario columns of a CSV row; empty for other benchmarks."""
    if scenario_result is None:
        return {}
    cells = document(scenario_result) | {"why": "; ".join(scenario_result.why)}
    return {f"scenario_{name}": value for name, value in cells.items()}


def _metric(scenario_result: ScenarioResult, value: float | None) -> str | None:
    return None if value is None else f"{number(value)}{_ENDS[scenario_result.unit]}"
