"""Latency checks: who decides, what ends the rounds, and how many calls a p99 needs."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.benchmarking.measurement import Turn
from deploykit.gating.limits import GateLimits
from deploykit.gating.speed import (
    CPU,
    TAIL_CALLS,
    WALL,
    WALL_BOUND,
    Undecided,
    cpu_decides,
    merged,
    speed_checks,
)
from deploykit.gating.verdict import FAIL, INCONCLUSIVE, NO_LIMIT, PASS
from tests.deploykit.benchmarking.made_up import in_turns, measurement
from tests.support import shows

LIMITS = GateLimits()


def checks(pair, limits=LIMITS):
    return {each.name: each for each in speed_checks(*pair, limits, limits.confidence)}


@pytest.mark.parametrize(("slowdown", "verdict"), [(1.0, PASS), (1.2, FAIL), (0.8, PASS)])
def test_wall_time_decides_where_it_can(slowdown, verdict):
    found = checks(in_turns(0, "plain", slowdown))["latency p50"]
    assert (found.verdict, found.decided_by) == (verdict, WALL)
    assert found.interval[0] < slowdown - 1 < found.interval[1]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
def test_equal_models_never_fail_and_slow_ones_never_pass(seed):
    assert checks(in_turns(seed, "contended"))["latency p50"].verdict != FAIL
    assert checks(in_turns(seed, "contended", 1.15))["latency p50"].verdict != PASS


NARROW, WIDE, WORSE = (-0.01, 0.01), (-0.1, 0.2), (0.06, 0.1)


@pytest.mark.parametrize(("change", "wall", "cpu", "limit", "decides"), [
    (0.03, WIDE, NARROW, 0.05, True), (0.07, WIDE, WORSE, 0.05, True),
    (0.03, WIDE, WIDE, 0.05, False),  # neither is conclusive
    (0.0, NARROW, WORSE, 0.05, False), (0.08, WORSE, NARROW, 0.05, False),  # wall time is
    (0.07, WIDE, NARROW, 0.05, False), (0.03, WIDE, WORSE, 0.05, False),  # they contradict
    (0.0, (-0.1, WALL_BOUND + 0.01), NARROW, 0.05, False),  # it may take far more wall time
    (0.0, (-0.1, WALL_BOUND + 0.01), NARROW, 0.1, True),
    (0.0, WIDE, NARROW, None, False),
])  # fmt: skip
def test_cpu_time_decides_if_wall_time_cannot_and_does_not_contradict(
    change, wall, cpu, limit, decides
):
    assert cpu_decides(change, wall, cpu, limit) == decides


def test_a_check_says_that_cpu_time_decided():
    pair = []
    for item, end in zip(in_turns(0, "plain"), (0.2, -0.2), strict=True):
        factors = np.exp(np.linspace(-end, end, 8))
        rounds = [tuple(call * factors[turn.session] for call in calls)
                  for calls, turn in zip(item.rounds_ms, item.turns, strict=True)]  # fmt: skip
        seconds = tuple(sum(calls) / 1e3 for calls in rounds)
        pair.append(replace(item, rounds_ms=tuple(rounds), rounds_seconds=seconds))
    wide = GateLimits(max_latency_increase=0.15)
    found = checks(pair, wide)["latency p50"]
    assert (found.decided_by, found.unit, found.verdict) == (CPU, "ms CPU", PASS)
    assert shows(found.note, "wall-noisy")
    assert checks(pair, GateLimits(max_latency_increase=None))["latency p50"].decided_by == WALL


def tailed(calls, slowdown=1.0, sessions=8):
    """Return rounds of many calls: nine of ten take 1 ms, one takes long."""
    rng = np.random.default_rng(3)
    pair = []
    for factor in (1.0, slowdown):
        rounds, turns = [], []
        for session in range(sessions):
            times = np.where(rng.random(calls) < 0.1, 5 * factor, 1.0) * rng.uniform(1, 1.01, calls)
            rounds.append(tuple(map(float, times)))
            turns.append(Turn(session, session % 2, session, float(sum(times)), 0, 0))
        seconds = tuple(sum(each) / 1e3 for each in rounds)
        pair.append(measurement(rounds, rounds_seconds=seconds, turns=tuple(turns)))
    return pair


def test_a_p99_of_too_few_calls_is_inconclusive():
    limits = GateLimits(max_p99_increase=0.1)
    few = checks(tailed(TAIL_CALLS // 8), limits)["latency p99"]
    assert (few.verdict, few.detectable) == (INCONCLUSIVE, None)
    assert shows(few.note, "p99-calls-few")
    assert checks(tailed(TAIL_CALLS // 8))["latency p99"].verdict == NO_LIMIT
    assert checks(tailed(TAIL_CALLS), limits)["latency p99"].verdict == PASS
    slow = checks(tailed(TAIL_CALLS, 1.5), limits)
    assert slow["latency p99"].verdict == FAIL
    assert slow["latency p50"].verdict == PASS


@pytest.mark.parametrize(("key", "count"), [("session", 8), ("process", 2)])
def test_rounds_are_merged_without_losing_a_call(key, count):
    item = tailed(10)[0]
    found = merged(item, key)
    assert len(found.rounds_ms) == len(found.turns) == count
    assert sorted(found.latencies_ms) == sorted(item.latencies_ms)
    assert sum(found.rounds_seconds) == pytest.approx(sum(item.rounds_seconds))


def test_rounds_end_when_every_check_with_a_limit_is_conclusive():
    alike, unsure = in_turns(0, "plain"), in_turns(0, "plain", 1.05)
    rule = Undecided(LIMITS)
    assert list(rule(alike)) == []
    assert rule.confidence == LIMITS.look_confidence > LIMITS.confidence
    rule = Undecided(LIMITS)
    assert list(rule(unsure)) == [0, 1]
    assert rule.confidence == LIMITS.confidence
    assert list(Undecided(GateLimits(max_latency_increase=None))(unsure)) == []
    assert list(Undecided(GateLimits(max_p99_increase=0.1))(alike)) == [0, 1]
