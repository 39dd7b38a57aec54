"""The metric of a scenario, and whether it is valid by MLPerf's rules."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from deploykit.benchmarking.measurement import ScenarioResult
from deploykit.benchmarking.run_config import SERVER, SINGLE, BenchmarkOptions
from deploykit.benchmarking.scenarios.load import Call, Played
from deploykit.benchmarking.statistics import ENOUGH_CALLS
from deploykit.serving.client.load_generator import LATE_SECONDS, MAX_LATE

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
        busy, most = (rate * item / threads for item in (_mean(times), _mean(times) + error))
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
