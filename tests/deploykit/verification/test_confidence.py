"""The bound lies below what is true of all samples, about as often as it says."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.verification import confidence
from deploykit.verification.confidence import lower_bound_db


def noisy(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return answers and noisy ones; some samples are much noisier than others."""
    random = np.random.default_rng(seed)
    right = random.normal(size=(samples, 10)) * random.lognormal(0, 0.5, (samples, 1))
    return right, right + random.normal(size=right.shape) * random.lognormal(-3, 0.7, (samples, 1))


def ratio(right, found):
    return 10 * math.log10(np.square(right).sum() / np.square(found - right).sum())


TRUE = ratio(*noisy(0, 100_000))


def coverage(samples: int) -> float:
    return np.mean([lower_bound_db(*noisy(1 + i, samples), samples) <= TRUE for i in range(200)])


@pytest.mark.sampled
@pytest.mark.parametrize("samples", [8, 16, 64])
def test_the_bound_holds_on_other_samples(samples):
    assert coverage(samples) >= 0.9
    below = np.mean([ratio(*noisy(1 + i, samples)) <= TRUE for i in range(200)])
    assert below < 0.75, "the estimate itself is too high about every other time"


def test_a_bound_without_its_error_is_caught(monkeypatch):
    monkeypatch.setattr(confidence, "_student", lambda degrees: 0.0)
    assert coverage(16) < 0.75


@pytest.mark.sampled
@given(st.integers(0, 999), st.integers(2, 40))
def test_it_lies_below_the_estimate_and_scale_does_not_matter(seed, samples):
    right, found = noisy(seed, samples)
    bound = lower_bound_db(right, found, samples)
    assert bound <= ratio(right, found) + 1e-9
    assert lower_bound_db(right * 4, found * 4, samples) == pytest.approx(bound)
    order = np.random.default_rng(seed).permutation(samples)
    assert lower_bound_db(right[order], found[order], samples) == pytest.approx(bound)


def test_what_has_no_bound_or_no_end():
    right, found = noisy(0, 4)
    assert lower_bound_db(right[:1], found[:1], 1) is None
    assert lower_bound_db(right, found, 8) is None, "its first axis is not that of the samples"
    assert lower_bound_db(np.array(1.0), np.array(1.0), 4) is None
    assert lower_bound_db(right, right, 4) == math.inf
    assert lower_bound_db(right * 0, found, 4) == -math.inf
    even = np.ones((4, 3))
    assert lower_bound_db(even, even * 1.1, 4) == pytest.approx(20), "all alike leave no doubt"
    only = found.copy()
    only[1:] = right[1:]
    assert lower_bound_db(right, only, 4) < ratio(right, only) - 10, "one sample has all noise"
    gaps = right.copy()
    gaps[2, 3] = np.nan
    found[2, 3] = np.nan
    assert math.isfinite(lower_bound_db(gaps, found, 4))


@pytest.mark.parametrize(
    ("degrees", "quantile"), [(4, 2.776), (7, 2.365), (15, 2.131), (63, 1.998)]
)
def test_students_t(degrees, quantile):
    """Of the table in Abramowitz and Stegun, 26.10."""
    assert confidence._student(degrees) == pytest.approx(quantile, rel=0.03)
