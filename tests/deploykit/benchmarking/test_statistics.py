"""What latencies tell, on a machine that is made up."""

import numpy as np
import pytest

from deploykit.benchmarking.statistics import steady_from, summary
from tests.deploykit.benchmarking.made_up import in_turn, measurement
from tests.support import because, showing


def noise(count: int, level: float = 10.0, seed: int = 0) -> np.ndarray:
    return level * np.exp(np.random.default_rng(seed).normal(0, 0.03, count))


def test_summary():
    found = summary(measurement([[1.0, 2.0, 3.0, 4.0, 5.0]] * 6))
    assert (found.calls, found.p50, found.mean, found.min, found.max) == (30, 3.0, 3.0, 1.0, 5.0)
    assert found.p90 <= found.p99 <= found.p99_9 <= found.max
    assert found.p50_interval == pytest.approx((3.0, 3.0))
    assert found.items_per_second == pytest.approx(4 * 30 / (6 * 0.015))
    assert (found.load_ms, found.first_run_ms) == (100.0, 50.0)
    assert (found.warm_up_calls, found.warm_up_ms) == (2, 35.0)
    assert found.bytes_peak == 1 << 20


def test_one_round_tells_no_interval():
    assert summary(measurement([[1.0] * 30])).p50_interval is None


def test_the_interval_of_the_median_minds_rounds_and_not_calls():
    """As many calls, but those of a round are alike: the interval must not shrink with them."""
    few, many = (
        summary(measurement([[10 * np.exp(0.1 * z)] * calls for z in (-1, 1, -0.5, 0.5, 2, -2)]))
        for calls in (10, 1000)
    )
    assert few.p50_interval == pytest.approx(many.p50_interval)
    low, high = many.p50_interval
    assert low < 9.5 < 10.5 < high


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "stable"),
        ({"rounds": [[1.0] * 3] * 3}, showing("calls-too-few", count=9)),
        ({"settled": False}, because("no-steady-state", count=2, seconds="0.0")),
        ({"rounds": [[10.0 + i] * 10 for i in range(9)]}, showing("latency-drifted", drift="+55")),
        ({"rounds": [[10.0] * 8 + [20.0] * 2] * 9}, because("latency-spread", times="2.0")),
        ({"rounds": [[10.0] * 30] * 6 + [[30.0] * 30] + [[10.0] * 30] * 6}, "stable"),
    ],
)
def test_verdict(changes, verdict):
    assert summary(measurement(changes.pop("rounds", None), **changes)).verdict == verdict


@pytest.mark.parametrize("warm_up", [0, 1, 5, 30])
def test_the_steady_state_begins_after_the_warm_up(warm_up):
    for seed in range(50):
        slow = 10 * (1.5 + 8 * 0.8 ** np.arange(warm_up))
        start = steady_from([*slow, *noise(60, seed=seed)])
        assert start is not None
        assert warm_up <= start <= warm_up + 3


def test_single_spikes_move_nothing():
    calls = noise(80)
    calls[[20, 33, 34, 50, 79]] *= 10
    assert steady_from(calls) == 0


@pytest.mark.parametrize(
    "calls",
    [
        [],
        [10.0],
        noise(18),
        100 * 0.97 ** np.arange(60),  # gets faster still
        10 * 1.02 ** np.arange(60),  # throttles
        [*noise(60, 30), *noise(20)],  # has just become faster
    ],
)
def test_not_steady_yet(calls):
    assert steady_from(calls) is None


def test_a_steady_state_is_found_on_a_noisy_machine():
    for seed in range(20):
        calls = np.concatenate(in_turn(seed, 10, "plain")[0])
        assert (start := steady_from(calls)) is not None
        assert start < 10
