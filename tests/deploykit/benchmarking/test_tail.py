"""What is said of a percentile holds in ninety-nine of a hundred runs, and no sooner than MLPerf's
rule says anything."""

import numpy as np
import pytest

from deploykit.benchmarking.scenario_runs import at_most, discarded, fewest_calls


@pytest.mark.parametrize(("percentile", "calls"), [(90, 64), (99, 662)])
def test_the_fewest_calls_are_those_of_the_rule(percentile, calls):
    """In one of a hundred runs at most, so many calls show one or none above the percentile."""
    share = percentile / 100
    one_or_none = [share**n + n * share ** (n - 1) * (1 - share) for n in (calls - 1, calls)]
    assert one_or_none[0] > 0.01 >= one_or_none[1]
    assert fewest_calls(percentile) == calls
    assert at_most(range(calls - 1), percentile) is None
    assert at_most(range(calls), percentile) == calls - 2


@pytest.mark.parametrize("calls", [64, 100, 1000])
def test_the_percentile_is_below_in_ninety_nine_of_a_hundred_runs(calls):
    rng = np.random.default_rng(0)
    true = np.log(10)  # of an exponential distribution, the 90th percentile
    wrong = sum(at_most(rng.exponential(size=calls), 90) < true for _ in range(2000))
    assert wrong <= 32  # 20 are expected at most; 32 would be a chance of one in a hundred


def test_of_more_calls_more_are_discarded():
    found = [discarded(calls, 99) for calls in (0, 1, 661, 662, 5000, 100_000)]
    assert found[:4] == [0, 0, 0, 1]
    assert found[3] < found[4] < 0.01 * 5000
    assert 0.009 * 100_000 < found[5] < 0.01 * 100_000
