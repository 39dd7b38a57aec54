"""The range that is found errs no more than any other that was tried by rounding every value."""

import numpy as np
import pytest

from deploykit.quantization.calibration import BINS, least_error_range


def error(values, low, high):
    """Return the mean squared error of rounding to 8 bits, zero being a level."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / 255
    zero = np.round(-low / step)
    codes = np.clip(np.round(values / step + zero), 0, 255)
    return float(np.mean((step * (codes - zero) - values) ** 2))


def found(values):
    counts, _ = np.histogram(values, BINS, (values.min(), values.max()))
    return least_error_range(counts, float(values.min()), float(values.max()))


RANDOM = np.random.default_rng(0)
VALUES = {
    "normal": RANDOM.normal(size=20_000),
    "heavy tails": RANDOM.standard_t(3, size=20_000),
    "behind a Relu": np.maximum(RANDOM.laplace(size=20_000), 0),
    "one sided": -RANDOM.exponential(size=20_000),
    "far from zero": RANDOM.normal(8, 0.5, size=20_000),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", VALUES)
def test_no_other_range_is_much_better(name):
    values = VALUES[name]
    low, high = found(values)
    assert values.min() <= low < high <= values.max()
    # other ranges, in steps of 4 %
    lows = np.linspace(values.min(), min(values.max(), max(0, values.min())), 26)
    highs = np.linspace(values.max(), max(values.min(), min(0, values.max())), 26)
    best = min(error(values, a, b) for a in lows for b in highs if b - a > 0.02 * np.ptp(values))
    assert error(values, low, high) <= 1.1 * best


def test_tails_are_cut_off_and_even_values_are_not():
    values = RANDOM.laplace(size=500_000)
    low, high = found(values)
    assert error(values, low, high) < 0.8 * error(values, values.min(), values.max())
    even = RANDOM.uniform(-1, 1, 100_000)
    assert np.allclose(found(even), (-1, 1), atol=0.02)


def test_zero_stays_inside():
    values = np.concatenate([VALUES["far from zero"], [-0.5]])
    low, high = found(values)
    assert low <= 0 <= high


def test_zeros_do_not_narrow_the_range():
    """A Relu's zeros are exact whatever the step, so only the rest decides."""
    active = RANDOM.exponential(size=50_000)
    with_zeros = np.concatenate([active, np.zeros(500_000)])
    np.testing.assert_allclose(found(with_zeros), found(np.append(active, 0)), rtol=0.02)
