"""Checks of latency and throughput, from interleaved rounds of both models."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.rounds import everyone
from deploykit.benchmarking.speed_verdict import judge, seconds_an_item
from deploykit.gating.limits import GateLimits
from deploykit.gating.verdict import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    UNKNOWN,
    Check,
    Interval,
    increase,
    verdict_of,
)

WALL, CPU = "wall time", "CPU time"
WALL_BOUND = 0.25
"""CPU time can only pass a candidate if wall time excludes an increase above this, or above four
times the limit: a model that uses fewer cores takes the same CPU time and more wall time."""
TAIL_CALLS = 300
"""Calls that a p99 needs: three of them are above it."""
_TAIL_GROUPS = 4
Pair = tuple[Measurement, Measurement]


def speed_checks(
    baseline: Measurement, candidate: Measurement, limits: GateLimits, confidence: float
) -> tuple[Check, ...]:
    """Return the checks of p50, p99 and throughput, which has no limit: latency decides."""
    pair = baseline, candidate
    rates = [item.items_per_second for item in pair]
    speed = judge(*pair, figure=seconds_an_item, confidence=confidence).wall
    drop, interval = 1 - speed.value, (1 - speed.high, 1 - speed.low)
    return (
        _latency(pair, limits.max_latency_increase, confidence),
        _p99(pair, limits.max_p99_increase, confidence),
        Check.of("throughput", rates, "samples/s", drop, interval, None, WALL),
    )


class Undecided:
    """The rule that ends the rounds as soon as every check with a limit is conclusive."""

    def __init__(self, limits: GateLimits) -> None:
        """Store the limits."""
        self._limits = limits
        self.confidence = limits.confidence
        """Confidence of the final intervals: that of the look that ended the rounds, if one did."""

    def __call__(self, measured: Sequence[Measurement]) -> Collection[int]:
        """Return the indices of the models that need more time: both or neither."""
        first, second = measured
        checks = speed_checks(first, second, self._limits, self._limits.look_confidence)
        if any(check.verdict == INCONCLUSIVE for check in checks):
            return everyone(measured)
        self.confidence = self._limits.look_confidence
        return ()


def _latency(pair: Pair, limit: float | None, confidence: float) -> Check:
    """Return the check of the median latency: by wall time, or else by CPU time."""
    found = judge(*pair, confidence=confidence)
    wall, interval = increase(found.wall)
    medians = [float(np.median(item.latencies_ms)) for item in pair]
    by_wall = Check.of("latency p50", medians, "ms", wall, interval, limit, WALL)
    first, second = (replace(item.settings, batch=None) for item in pair)
    if found.cpu is None or first != second:
        return by_wall  # with other threads or engines, CPU time does not show the latency
    cpu, cpu_interval = increase(found.cpu)
    if not cpu_decides(wall, interval, cpu_interval, limit):
        return by_wall
    return Check.of("latency p50", [item.cpu_ms for item in pair], "ms CPU", cpu, cpu_interval,
                    limit, CPU, f"wall time is too noisy here: {by_wall.change_text}")  # fmt: skip


def cpu_decides(change: float, wall: Interval, cpu: Interval, limit: float | None) -> bool:
    """Return whether CPU time decides: wall time cannot, and does not contradict it.

    `change` is the estimated increase of the wall time, and `wall` its interval.
    """
    if limit is None or verdict_of(wall, limit) != INCONCLUSIVE:
        return False
    verdict = verdict_of(cpu, limit)
    if verdict == FAIL:
        return change > limit
    return verdict == PASS and change <= limit and wall[1] <= max(WALL_BOUND, 4 * limit)


def _p99(pair: Pair, limit: float | None, confidence: float) -> Check:
    """Return the check of the p99 latency; its interval is unknown if calls are too few.

    No round is skipped: what delays a round delays a request.
    """
    values = [float(np.percentile(item.latencies_ms, 99)) for item in pair]
    for key in ("session", "process"):
        first, second = (merged(item, key) for item in pair)
        calls = [[len(round_) for round_ in item.rounds_ms] for item in (first, second)]
        if all(len(side) >= _TAIL_GROUPS and min(side) >= TAIL_CALLS for side in calls):
            ratio = judge(first, second, figure=_p99_of_rounds, confidence=confidence).wall
            return Check.of("latency p99", values, "ms", *increase(ratio), limit, WALL)
    note, count = "", min(len(item.latencies_ms) for item in pair)
    if limit is not None:
        note = (
            f"too few calls for a p99: {count:,}, expected at least {_TAIL_GROUPS * TAIL_CALLS:,}"
        )
    change = values[1] / values[0] - 1
    return Check.of("latency p99", values, "ms", change, UNKNOWN, limit, WALL, note)


def merged(measurement: Measurement, key: str) -> Measurement:
    """Return a measurement with one long round for each session or each process."""
    groups: dict[int, list[int]] = {}
    for number, turn in enumerate(measurement.turns):
        groups.setdefault(getattr(turn, key), []).append(number)
    calls, seconds, turns = [], [], []
    for group, numbers in groups.items():
        rounds = [measurement.turns[n] for n in numbers]
        calls.append(tuple(chain.from_iterable(measurement.rounds_ms[n] for n in numbers)))
        seconds.append(math.fsum(measurement.rounds_seconds[n] for n in numbers))
        cpu = math.fsum(turn.cpu_ms for turn in rounds)
        turns.append(Turn(group, rounds[0].process, group, cpu, 0, 0))
    return replace(
        measurement, rounds_ms=tuple(calls), rounds_seconds=tuple(seconds), turns=tuple(turns)
    )


def _p99_of_rounds(measurement: Measurement) -> list[float]:
    return [float(np.percentile(item, 99)) for item in measurement.rounds_ms]
