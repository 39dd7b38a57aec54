"""The metric of a scenario, and whether it is valid by MLPerf's rules."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from deploykit.benchmarking.measurement import ScenarioResult
from deploykit.benchmarking.run_config import SERVER, SINGLE, BenchmarkOptions
from deploykit.benchmarking.scenarios.load import Call, Played
from deploykit.benchmarking.statistics import ENOUGH_CALLS
from deploykit.serving.client.load_generator import LATE_SECONDS, MOST_LATE

CONFIDENCE = 0.99


def discarded(calls: int, percentile: float) -> int:
    """Return how many of the highest latencies can be discarded; 0: there are too few calls."""
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
    """Return from how many calls on something is known of a percentile."""
    calls = 1
    while not discarded(calls, percentile):
        calls += 1
    return calls


def at_most(latencies: Sequence[float], percentile: float) -> float | None:
    """Return what a percentile is at most, at 99 %; None: there are too few calls to tell."""
    count = discarded(len(latencies), percentile)
    return sorted(latencies)[-1 - count] if count else None


LEAST_SECONDS = 10.0
PERCENTILE = {SINGLE: 90.0, SERVER: 99.0}
_LAST = 0.75  # of the time, after which a backlog has to have been worked off once


def latencies_of(calls: Sequence[Call]) -> list[float]:
    """Return the milliseconds of each call, from when it was due."""
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
    """Return what a load tells.

    `samples` are in each call; `whole` is False where the user ended it; `settled` says whether
    latencies were steady before.
    """
    name, latencies = str(timing.scenario), latencies_of(played.calls)
    seconds = timing.seconds if whole and name == SERVER else played.taken / 1e9
    percentile = PERCENTILE.get(name)
    bound = None if percentile is None or played.left else at_most(latencies, percentile)
    why = [] if whole else ["it was interrupted"]
    why += [] if settled else ["there was no steady state before"]
    if seconds < LEAST_SECONDS:
        why.append(f"it took {seconds:.3g} s, and {LEAST_SECONDS:g} are the least")
    least = ENOUGH_CALLS if percentile is None else fewest_calls(percentile)
    if played.done < least:
        why.append(f"of {least} calls, which are the least, there were {played.done}"
                   + _longer(timing, least))  # fmt: skip
    if name == SERVER:
        why += _of_the_rate(timing, played, threads) + _of_the_limit(timing, played, bound)
    value: float | None = None
    if percentile is None:
        value = samples * played.done / (played.taken / 1e9)
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
        played.done / (played.taken / 1e9),
        timing.latency_limit,
    )


def _longer(timing: BenchmarkOptions, least: int) -> str:
    """Say how long is long enough, where it is known."""
    if not timing.rate:
        return ""
    enough = least + 3 * math.sqrt(least)  # as arrivals are random
    longer = max(LEAST_SECONDS, math.ceil(enough / timing.rate))
    return f"; at this rate it takes --seconds {longer:g}"


def _of_the_rate(timing: BenchmarkOptions, played: Played, threads: int) -> list[str]:
    """Say why the rate was not kept: calls wait longer and longer, or the load was made late.

    That the backlog does not grow is shown by two things together. Some call of the last quarter
    of the time found a thread free, so what had waited was worked off. And at the rate, calls take
    less time than the threads have, for sure: the mean of a call is known to within its error. Of
    loads of made-up calls that take just as long as there is, one in a hundred passes.
    """
    rate, calls, why = timing.rate or 0.0, played.calls, []
    times = [(stop - start) / 1e9 for _, _, start, stop in calls]
    late = sum(start - max(due, free) > 1e9 * LATE_SECONDS for due, free, start, _ in calls)
    if late > MOST_LATE * len(calls):
        why.append(f"{late} calls were made more than {1e3 * LATE_SECONDS:g} ms late, by no fault "
                   "of the model")  # fmt: skip
    if played.left:
        why.append(f"the rate was not kept: {played.left} calls were still waiting in the end")
        return why
    last = [call for call in calls if call[0] >= _LAST * timing.seconds * 1e9]
    if not any(free < due for due, free, _, _ in last):
        why.append("the rate was not kept: in the last quarter of the time calls always waited")
    elif len(times) > 1:
        once = statistics.NormalDist().inv_cdf(CONFIDENCE)
        error = once * statistics.stdev(times) / math.sqrt(len(times))
        busy, most = (rate * item / threads for item in (_mean(times), _mean(times) + error))
        if most >= 1:
            why.append("it is not sure that the rate can be kept: the threads compute for "
                       f"{100 * busy:.0f} % of the time")  # fmt: skip
    return why


def _of_the_limit(timing: BenchmarkOptions, played: Played, bound: float | None) -> list[str]:
    """Say why it is not sure that latencies are within the limit."""
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
