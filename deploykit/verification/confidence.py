"""What is found on some samples, and how far it may be from what is so on others.

A signal-to-noise ratio of some samples, 10 log10(sum of signals / sum of noises), is an estimate:
on others it differs, the more the samples differ among each other. How much follows from leaving
out one sample at a time (the jackknife): of n values v_i without sample i, and their mean m, the
variance of the estimate is (n - 1) / n sum (v_i - m)^2, which is no smaller than the true one on
average. The bound is the lower end of the 95 % confidence interval, by Student's t distribution of
n - 1 degrees.
Sources: J. W. Tukey, Bias and Confidence in Not-quite Large Samples, 1958; B. Efron and C. Stein,
The Jackknife Estimate of Variance, 1981; for t, M. Abramowitz and I. A. Stegun, Handbook of
Mathematical Functions, 1964, 26.7.5.
"""

import math

import numpy as np

from deploykit.transforms.core.tensors import Array

NORMAL_95 = 1.959964  # the quantile of the normal distribution that leaves 2.5 % on either side
LEAST = 1e-12  # of a sum; less is what rounding leaves


def wilson(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a share.

    Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference,
    1927.
    """
    z2, share = NORMAL_95**2, right / total
    center = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    half = NORMAL_95 / (1 + z2 / total) * spread
    return max(0.0, center - half), min(1.0, center + half)


def paired_wilson(before: Array, after: Array) -> tuple[float, float]:
    """Return the 95 % confidence interval of how much a share rose from one trial to another.

    Both are of the same samples, so that what is hard for both does not blur the difference:
    Wilson's intervals of the two shares are put together by the correlation of the answers.
    Source: R. G. Newcombe, Improved Confidence Intervals for the Difference between Binomial
    Proportions Based on Paired Data, 1998, method 10.

    Args:
        before: whether each sample was right, bool [samples]; one or more.
        after: the same in the other trial.
    """
    total, first, second = len(before), int(before.sum()), int(after.sum())
    both = int((before & after).sum())
    neither = total - first - second + both
    product: float = both * neither - (first - both) * (second - both)
    if product > 0:
        product = max(product - total / 2, 0)  # Newcombe's correction for continuity
    spread = math.sqrt(first * (total - first)) * math.sqrt(second * (total - second))
    alike = product / spread if spread else 0.0
    (low1, high1), (low2, high2) = wilson(first, total), wilson(second, total)
    one, two = first / total, second / total

    def distance(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * alike * a * b + b * b, 0.0))

    change = two - one
    return (
        max(-1.0, change - distance(two - low2, high1 - one)),
        min(1.0, change + distance(high2 - two, one - low1)),
    )


def interval_of_mean(values: Array) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a mean, by Student's t; None of fewer than two."""
    count = len(values)
    if count < 2:
        return None
    wide = values.astype(np.float64)
    half = _student_95(count - 1) * float(wide.std(ddof=1)) / math.sqrt(count)
    return float(wide.mean()) - half, float(wide.mean()) + half


def lower_bound_db(expected: Array, found: Array, samples: int) -> float | None:
    """Return the lower end of the 95 % confidence interval of the signal-to-noise ratio, in dB.

    None where it does not follow: there is one sample, or the first axis is not that of the
    samples.

    Args:
        expected: what is right; the first axis are the samples.
        found: what is judged, of the same shape, with NaN and Inf in the same places.
        samples: how many there are.
    """
    if samples < 2 or not expected.ndim or len(expected) != samples:
        return None
    return bound_of_powers(*sample_powers(expected, found))


def sample_powers(expected: Array, found: Array) -> tuple[Array, Array]:
    """Return the power of the signal and of the noise of each sample: two float64 [samples].

    Args:
        expected: what is right, floats; the first axis are the samples.
        found: what is compared with it, of the same shape. Where it has NaN or Inf in other
            places, the noise of the sample is infinite.
    """
    signal, noise = np.zeros(len(expected)), np.zeros(len(expected))
    for place, (right, given) in enumerate(zip(expected, found, strict=True)):
        right, given = (np.asarray(each, np.float64).reshape(-1) for each in (right, given))
        finite = np.isfinite(right)
        signal[place] = np.square(right[finite]).sum()
        noise[place] = np.square(given[finite] - right[finite]).sum()
        if not finite.all() and not np.array_equal(right[~finite], given[~finite], equal_nan=True):
            noise[place] = np.inf
    return signal, np.where(np.isnan(noise), np.inf, noise)


def power_ratio_db(signal: float, noise: float) -> float:
    """Return a ratio of powers in dB: inf without noise, -inf without a signal."""
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


def bound_of_powers(signal: Array, noise: Array) -> float:
    """Return the lower end of the 95 % confidence interval of a ratio of powers, in dB.

    Args:
        signal: the power of each sample's signal, float64 [samples]; two samples or more.
        noise: the power of each sample's noise, alike.
    """
    total_signal, total_noise = float(signal.sum()), float(noise.sum())
    estimate = power_ratio_db(total_signal, total_noise)
    if math.isinf(estimate):
        return estimate
    count = len(signal)
    # Where one sample has it all, nothing is left without it, of which there is no logarithm.
    signals = np.maximum(total_signal - signal, LEAST * total_signal)
    noises = np.maximum(total_noise - noise, LEAST * total_noise)
    without = 10 * np.log10(signals / noises)
    variance = (count - 1) / count * float(np.square(without - without.mean()).sum())
    return estimate - _student_95(count - 1) * math.sqrt(variance)


def _student_95(degrees: int) -> float:
    """Return what a t of so many degrees of freedom exceeds in 2.5 % of all cases, about."""
    z = NORMAL_95
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    return z + (z**3 + z) / (4 * degrees) + second
