"""Calls that arrive at random arrive at the rate that was asked for, and as a Poisson process."""

import itertools
import math

import numpy as np
import pytest

from deploykit.serving.client.load_generator import poisson


@pytest.mark.parametrize("rate", [0.5, 20.0, 3000.0])
@pytest.mark.parametrize("seed", range(5))
def test_calls_arrive_at_the_rate(rate, seed):
    count = len(list(poisson(rate, 2000 / rate, seed)))
    assert abs(count - 2000) < 4 * math.sqrt(2000)


@pytest.mark.parametrize("seed", range(5))
def test_gaps_are_exponential(seed):
    """Kolmogorov's distance to an exponential distribution, at one in a thousand."""
    times = np.array(list(poisson(40, 100, seed)))
    gaps = np.sort(np.diff(times, prepend=0))
    expected = 1 - np.exp(-40 * gaps)
    steps = np.arange(len(gaps) + 1) / len(gaps)
    distance = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    assert distance < 1.95 / math.sqrt(len(gaps))


@pytest.mark.parametrize("seed", range(5))
def test_counts_scatter_as_those_of_a_poisson_process(seed):
    """Their variance is their mean; of calls at equal distances it would be next to nothing."""
    counts = np.bincount([int(each) for each in poisson(20, 500, seed)], minlength=500)
    assert 0.75 < counts.var() / counts.mean() < 1.25


def test_a_seed_gives_the_same_each_time_and_another_one_does_not():
    first, again, other = (list(poisson(50, 5, seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_no_call_is_due_outside_of_the_time_or_before_another():
    times = list(poisson(100, 3, 0))
    assert times[0] > 0
    assert times[-1] < 3
    assert all(a < b for a, b in itertools.pairwise(times))
