"""What latencies tell, on a machine that is made up."""

import math

import numpy as np
import pytest

from deploykit.benchmarking.statistics import ratio, steady_from, summary
from tests.deploykit.benchmarking.made_up import KINDS, in_turn, measurement, times


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
        ({"rounds": [[1.0] * 3] * 3}, "unstable: only 9 calls"),
        ({"settled": False}, "unstable: no steady state after 2 calls in 0.0 s"),
        ({"rounds": [[10.0 + i] * 10 for i in range(9)]}, "unstable: drifted by +55 % between"),
        ({"rounds": [[10.0] * 8 + [20.0] * 2] * 9}, "unstable: p90 is 2.0 times p50"),
        ({"rounds": [[10.0] * 30] * 6 + [[30.0] * 30] + [[10.0] * 30] * 6}, "stable"),
    ],
)
def test_verdict(changes, verdict):
    found = summary(measurement(changes.pop("rounds", None), **changes)).verdict
    assert found == verdict or (verdict != "stable" and found.startswith(verdict))


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


def test_ratio_says_how_much_faster_b_is():
    found = ratio(times(2), times(1), paired=True)
    assert found.value == pytest.approx(2)
    assert found.significant
    assert found.low <= found.value <= found.high
    back = ratio(times(1), times(2), paired=True)
    assert back.value == pytest.approx(0.5)


@pytest.mark.parametrize("paired", [True, False])
def test_one_round_is_never_significant(paired):
    found = ratio([[20.0] * 50], [[10.0] * 50], paired=paired)
    assert (found.value, found.low, found.significant) == (pytest.approx(2), 0, False)
    assert math.isinf(found.high)


def test_an_interrupted_pair_is_judged_by_the_rounds_of_both():
    a, b = times(2), times(1)
    assert ratio(a, b[:-1], paired=True) == ratio(a[:-1], b[:-1], paired=True)


@pytest.mark.parametrize(("paired", "floor"), [(True, 1.03), (False, 1.10)])
def test_what_processes_of_one_model_differ_by_is_not_significant(paired, floor):
    """The interval of a difference that never varies is narrow, so the floor decides."""
    below, above = (ratio(times(floor + d), times(1), paired=paired) for d in (-0.01, 0.05))
    assert below.low > 1
    assert (below.significant, above.significant) == (False, True)


def test_the_signed_rank_interval_is_that_of_the_tables():
    """Ten differences at 95 %: the 9th smallest and largest of the 55 means (Wilcoxon, W = 8)."""
    logs = np.log([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0, 5.5, 3.5])
    means = sorted((x + y) / 2 for i, x in enumerate(logs) for y in logs[i:])
    found = ratio([[x] for x in np.exp(logs)], [[1.0]] * 10, 0.95, paired=True)
    assert np.log([found.low, found.high]) == pytest.approx([means[8], means[-9]])


def test_few_rounds_are_judged_by_students_t():
    """Three differences 0, 1, 2 at 95 %: 1 +- 4.3027 / sqrt(3)."""
    found = ratio([[1.0], [math.e], [math.e**2]], [[1.0]] * 3, 0.95, paired=True)
    assert math.log(found.high) == pytest.approx(1 + 4.3027 / math.sqrt(3), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [4, 12])
def test_the_same_model_twice_differs_by_chance_only(kind, count):
    """Even without the floor, 99 % intervals may miss 1 in 1 % of the pairs: here up to 3 %."""
    found = [ratio(*in_turn(seed, count, kind), paired=True) for seed in range(200)]
    assert sum(each.low > 1 or each.high < 1 for each in found) <= 6
    assert sum(each.significant for each in found) <= 3


def test_at_different_times_the_same_model_differs_by_chance_only():
    found = [ratio(*in_turn(seed, 12, "plain"), paired=False) for seed in range(50)]
    assert not any(each.significant for each in found)


@pytest.mark.parametrize(
    ("kind", "count"), [("plain", 20), ("drifting", 20), ("autocorrelated", 30), ("contended", 90)]
)
def test_a_slowdown_of_10_percent_is_found(kind, count):
    found = [ratio(*in_turn(seed, count, kind, 1.1), paired=True) for seed in range(40)]
    assert sum(each.significant and each.value < 1 for each in found) >= 36


def test_ratios_are_the_same_every_time():
    a, b = in_turn(0, 12, "contended")
    for paired in (True, False):
        assert ratio(a, b, paired=paired) == ratio(a, b, paired=paired)


def test_thousands_of_rounds_are_no_burden():
    found = ratio(*in_turn(0, 3000, "plain", 1.1), paired=True)
    assert found.value == pytest.approx(1 / 1.1, rel=0.01)
