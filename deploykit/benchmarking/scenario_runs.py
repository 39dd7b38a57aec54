"""Models in a load scenario, one after another: their metrics, by MLPerf's rules, and tables."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
from deploykit.benchmarking.run_config import OFFLINE, SERVER, SINGLE, BenchmarkOptions
from deploykit.benchmarking.scenario_load import Call, Played
from deploykit.benchmarking.statistics import ENOUGH_CALLS
from deploykit.benchmarking.system_load import Sampler, Watch
from deploykit.benchmarking.worker_sessions import CandidateRun, CandidateSession, SessionPool
from deploykit.importers.open_model import OpenedModel
from deploykit.rendering.tables import Cell, Table, table
from deploykit.rendering.templates import number
from deploykit.serving.client.load_generator import LATE_SECONDS, MAX_LATE
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime.child_process import limits

CONFIDENCE = 0.99


def discarded(calls: int, percentile: float) -> int:
    """Return how many of the highest latencies can be discarded; 0: too few calls."""
    above = 1 - percentile / 100
    result, seen = 0, 0.0
    for count in range(calls):
        seen += math.exp(
            math.lgamma(calls + 1) - math.lgamma(count + 1) - math.lgamma(calls - count + 1)
            + count * math.log(above) + (calls - count) * math.log1p(-above)
        )  # fmt: skip
        if seen > 1 - CONFIDENCE:
            break
        result = count
    return result


def fewest_calls(percentile: float) -> int:
    """Return the minimum number of calls for a bound of a percentile."""
    calls = 1
    while not discarded(calls, percentile):
        calls += 1
    return calls


def at_most(latencies: Sequence[float], percentile: float) -> float | None:
    """Return the upper bound of a percentile with 99 % confidence; None: too few calls."""
    count = discarded(len(latencies), percentile)
    return sorted(latencies)[-1 - count] if count else None


MIN_SECONDS = 10.0
PERCENTILE = {SINGLE: 90.0, SERVER: 99.0}
_LAST = 0.75  # share of the time; later, a thread must have been free at least once


def latencies_of(calls: Sequence[Call]) -> list[float]:
    """Return the latency of each call in milliseconds, from its scheduled time."""
    return [(stop - due) / 1e6 for due, _, _, stop in calls]


def result_of_scenario(
    timing: BenchmarkOptions,
    played: Played,
    samples: int,
    threads: int,
    *,
    whole: bool,
    settled: bool,
) -> ScenarioResult:
    """Return the result of a load.

    `samples` is the number of samples per call. `whole` is False if the user ended the load.
    `settled` states whether latencies were steady before it.
    """
    name, latencies = str(timing.scenario), latencies_of(played.calls)
    seconds = timing.seconds if whole and name == SERVER else played.elapsed_ns / 1e9
    percentile = PERCENTILE.get(name)
    bound = None if percentile is None or played.left else at_most(latencies, percentile)
    why = [] if whole else ["it was interrupted"]
    why += [] if settled else ["no steady state before the load"]
    if seconds < MIN_SECONDS:
        why.append(f"it took {seconds:.3g} s, the minimum is {MIN_SECONDS:g} s")
    least = ENOUGH_CALLS if percentile is None else fewest_calls(percentile)
    if played.done < least:
        why.append(f"at least {least} calls are needed, there were {played.done}"
                   + _longer(timing, least))  # fmt: skip
    if name == SERVER:
        why += _of_the_rate(timing, played, threads) + _of_the_limit(timing, played, bound)
    value: float | None = None
    if percentile is None:
        value = samples * played.done / (played.elapsed_ns / 1e9)
    elif not played.left:
        value = float(np.percentile(latencies, percentile))
    return ScenarioResult(
        name,
        "throughput" if percentile is None else f"p{percentile:g} latency",
        value,
        "samples/s" if percentile is None else "ms",
        bound,
        not why,
        tuple(why),
        seconds,
        played.done,
        played.left,
        timing.rate,
        played.done / (played.elapsed_ns / 1e9),
        timing.latency_limit,
    )


def _longer(timing: BenchmarkOptions, least: int) -> str:
    """Return a hint on the necessary duration, if the rate is known."""
    if not timing.rate:
        return ""
    enough = least + 3 * math.sqrt(least)  # as arrivals are random
    longer = max(MIN_SECONDS, math.ceil(enough / timing.rate))
    return f"; at this rate, use --seconds {longer:g}"


def _of_the_rate(timing: BenchmarkOptions, played: Played, threads: int) -> list[str]:
    """Return why the rate was not sustained: the backlog grows, or the load was generated late.

    Two conditions together show that the backlog does not grow. Some call in the last quarter of
    the time found a free thread. And the threads have capacity for the rate, within the error of
    the mean call time. Of simulated loads exactly at capacity, one in a hundred passes.
    """
    rate, calls, why = timing.rate or 0.0, played.calls, []
    times = [(stop - start) / 1e9 for _, _, start, stop in calls]
    late = sum(start - max(due, free) > 1e9 * LATE_SECONDS for due, free, start, _ in calls)
    if late > MAX_LATE * len(calls):
        why.append(f"{late} calls started more than {1e3 * LATE_SECONDS:g} ms late, which is not "
                   "due to the model")  # fmt: skip
    if played.left:
        why.append(f"the rate was not sustained: {played.left} calls were waiting at the end")
        return why
    last = [call for call in calls if call[0] >= _LAST * timing.seconds * 1e9]
    if not any(free < due for due, free, _, _ in last):
        why.append("the rate was not sustained: calls always waited in the last quarter")
    elif len(times) > 1:
        once = statistics.NormalDist().inv_cdf(CONFIDENCE)
        error = once * statistics.stdev(times) / math.sqrt(len(times))
        mean = statistics.fmean(times)
        busy, most = (rate * item / threads for item in (mean, mean + error))
        if most >= 1:
            why.append("the rate may not be sustainable: threads are in use "
                       f"{100 * busy:.0f} % of the time")  # fmt: skip
    return why


def _of_the_limit(timing: BenchmarkOptions, played: Played, bound: float | None) -> list[str]:
    """Return why latencies may exceed the limit."""
    limit = timing.latency_limit
    if limit is None or played.left:
        return []
    p99 = float(np.percentile(latencies_of(played.calls), PERCENTILE[SERVER]))
    if p99 > limit:
        return [f"p99 is {p99:.3g} ms, above the limit of {limit:g}"]
    if bound is None or bound > limit:
        most = "is not known well enough" if bound is None else f"may be {bound:.3g} ms"
        return [f"p99 {most}, and the limit is {limit:g} ms"]
    return []


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
