"""Confidence intervals of metrics on samples, and agreement by group of samples."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from deploykit.transforms.common.documents import Written
from deploykit.transforms.common.errors import GraphError, counts_differ, unknown_name
from deploykit.transforms.ir.tensors import Array

NORMAL_95 = 1.959964  # the 97.5 % quantile of the normal distribution
PRIOR_DB, PRIOR_GROUPS = 3.0, 4
"""SQNR of single pictures varies by 2.5 to 3.2 dB between pictures in EfficientNet-Lite0 and the
network for Fashion-MNIST. This prior counts as much as four further groups, because four groups
that happen to be alike would feign a narrow interval."""
LEAST = 1e-12  # fraction of a sum below which a difference is rounding noise


def wilson(right: float, total: float, z: float = NORMAL_95) -> tuple[float, float]:
    """Return the Wilson confidence interval of a proportion; `z` is a normal quantile.

    Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference,
    1927.
    """
    z2, share = z**2, right / total
    center = (share + z2 / (2 * total)) / (1 + z2 / total)
    spread = math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    half = z / (1 + z2 / total) * spread
    # Of no hits and of hits only, rounding would leave an end next to 0 or 1.
    low = max(0.0, center - half) if right else 0.0
    return low, min(1.0, center + half) if right < total else 1.0


def wilson_of_groups(right: Array, groups: Array) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a proportion of related samples.

    The number of samples is divided by the design effect: the variance of the proportion between
    groups of related samples, relative to that of independent samples. At least, each group counts.
    Source: L. Kish, Survey Sampling, 1965.

    Args:
        right: bool [samples].
        groups: the group of each sample, int64 [samples].
    """
    total, share = len(right), float(right.mean())
    _, codes = np.unique(groups, return_inverse=True)
    count = int(codes.max()) + 1
    sums = np.bincount(codes, right - share)
    variance = count / max(count - 1, 1) * float(np.square(sums).sum()) / total**2
    effective = share * (1 - share) / variance if variance else float(count)
    effective = min(max(effective, float(count)), float(total))
    return wilson(share * effective, effective)


def paired_wilson(before: Array, after: Array, z: float = NORMAL_95) -> tuple[float, float]:
    """Return the confidence interval of the change of a proportion between two trials.

    Both trials use the same samples, so samples that are hard for both add no variance. The
    Wilson intervals of both proportions are combined with the correlation of the outcomes.
    Source: R. G. Newcombe, Improved Confidence Intervals for the Difference between Binomial
    Proportions Based on Paired Data, 1998, method 10.

    Args:
        before: whether each sample was correct, bool [samples]; one or more.
        after: the same for the second trial.
        z: normal quantile of the confidence level.
    """
    total, first, second = len(before), int(before.sum()), int(after.sum())
    both = int((before & after).sum())
    neither = total - first - second + both
    product: float = both * neither - (first - both) * (second - both)
    if product > 0:
        product = max(product - total / 2, 0)  # Newcombe's correction for continuity
    spread = math.sqrt(first * (total - first)) * math.sqrt(second * (total - second))
    alike = product / spread if spread else 0.0
    (low1, high1), (low2, high2) = wilson(first, total, z), wilson(second, total, z)
    one, two = first / total, second / total

    def distance(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * alike * a * b + b * b, 0.0))

    change = two - one
    return (
        max(-1.0, change - distance(two - low2, high1 - one)),
        min(1.0, change + distance(high2 - two, one - low1)),
    )


def interval_of_mean(values: Array, z: float = NORMAL_95) -> tuple[float, float] | None:
    """Return the confidence interval of a mean, by Student's t; None below two values."""
    count = len(values)
    if count < 2:
        return None
    wide = values.astype(np.float64)
    half = _student(count - 1, z) * float(wide.std(ddof=1)) / math.sqrt(count)
    return float(wide.mean()) - half, float(wide.mean()) + half


def lower_bound_db(
    expected: Array, judged: Array, samples: int, related: Array | None = None
) -> float | None:
    """Return the lower bound of the 95 % confidence interval of the SQNR in dB.

    None: there are fewer than two samples, or the first axis is not that of the samples. With
    related samples, groups count instead, and None means fewer than 4 groups.

    Args:
        expected: reference values, with samples on the first axis.
        judged: compared values of the same shape, with NaN and Inf at the same positions.
        samples: the number of samples.
        related: the group of related samples of each one, int64 [samples]; None: independent.
    """
    if samples < 2 or not expected.ndim or len(expected) != samples:
        return None
    powers = sample_powers(expected, judged)
    if related is None:
        return bound_of_powers(*powers)
    _, codes = np.unique(related, return_inverse=True)
    if codes.max() + 1 < FEWEST:
        return None
    signal, noise = (np.bincount(codes, power) for power in powers)
    return bound_of_powers(signal, noise, PRIOR_GROUPS)


def sample_powers(expected: Array, judged: Array) -> tuple[Array, Array]:
    """Return the power of the signal and the noise of each sample: two float64 [samples].

    Args:
        expected: reference values, floats with samples on the first axis.
        judged: compared values of the same shape. A sample with NaN or Inf at other positions
            has infinite noise.
    """
    signal, noise = np.zeros(len(expected)), np.zeros(len(expected))
    for place, (right, given) in enumerate(zip(expected, judged, strict=True)):
        right, given = (np.asarray(item, np.float64).reshape(-1) for item in (right, given))
        finite = np.isfinite(right)
        signal[place] = np.square(right[finite]).sum()
        noise[place] = np.square(given[finite] - right[finite]).sum()
        if not finite.all() and not np.array_equal(right[~finite], given[~finite], equal_nan=True):
            noise[place] = np.inf
    return signal, np.where(np.isnan(noise), np.inf, noise)


def power_ratio_db(signal: float, noise: float) -> float:
    """Return a power ratio in dB: inf without noise, -inf without a signal."""
    if not noise:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


def bound_of_powers(signal: Array, noise: Array, prior: int = 0) -> float:
    """Return the lower bound of the 95 % jackknife confidence interval of a power ratio in dB.

    The variance is moderated by a prior of PRIOR_DB. Source: G. K. Smyth, Linear Models and
    Empirical Bayes Methods for Assessing Differential Expression, 2004.

    Args:
        signal: signal power of each sample, float64 [samples]; two samples or more.
        noise: noise power of each sample, float64 [samples].
        prior: degrees of freedom of the prior; 0: none.
    """
    total_signal, total_noise = float(signal.sum()), float(noise.sum())
    estimate = power_ratio_db(total_signal, total_noise)
    if math.isinf(estimate):
        return estimate
    count = len(signal)
    # Without a sample that has all the power, the rest would be 0, which has no logarithm.
    signals = np.maximum(total_signal - signal, LEAST * total_signal)
    noises = np.maximum(total_noise - noise, LEAST * total_noise)
    without = 10 * np.log10(signals / noises)
    variance = (count - 1) / count * float(np.square(without - without.mean()).sum())
    degrees = count - 1 + prior
    variance = ((count - 1) * variance + prior * PRIOR_DB**2 / count) / degrees
    return estimate - _student(degrees) * math.sqrt(variance)


def _student(degrees: int, z: float = NORMAL_95) -> float:
    """Return the approximate quantile of Student's t; `z` is that of the normal distribution."""
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    return z + (z**3 + z) / (4 * degrees) + second


GROUP = "group"
"""Default name of the array with the group of each sample."""
FEWEST = 4
"""Minimum number of samples in a group, or of groups of related samples, for a lower bound."""
Decibels = Annotated[float | None, Written(digits=3)]


@dataclass(frozen=True)
class GroupCloseness:
    """Agreement of outputs with those of a reference on the samples of one group."""

    name: Annotated[str, Written("group")]
    samples: int
    sqnr_db: Decibels = None
    """SQNR of the noisiest output: inf if all are equal, -inf if NaN or Inf positions differ.
    None: nothing was compared."""
    sqnr_low_db: Decibels = None
    """Lower bound of its 95 % confidence interval; None below 4 samples."""
    agreement: float | None = None
    """Top-1 agreement, from 0 to 1; None if no output contains scores."""
    agreement_interval: tuple[float, float] | None = None
    """95 % confidence interval of the agreement."""


def are_groups(values: Array) -> bool:
    """Return whether an array contains strings or integers along one axis."""
    if values.ndim != 1 and not (values.ndim == 2 and values.shape[1] == 1):
        return False
    if values.dtype.kind == "O":
        return all(isinstance(item, str | bytes | int) for item in values.ravel().tolist())
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all() and (values == np.rint(values)).all())
    return values.dtype.kind in "SUiub"


def group_names(data: Mapping[str, Any], name: str, samples: int) -> Array:
    """Return the group of each sample from an array of the data: strings, object [samples].

    GraphError: the array is missing, has another length, or does not contain one string or
    integer per sample.
    """
    if name not in data:
        known = sorted(data)
        raise unknown_name("array to group by", name, known)
    values = np.asarray(data[name])
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if not are_groups(values):
        raise GraphError("group-form", name=name, dtype=values.dtype, shape=values.shape)
    if len(values) != samples:
        raise counts_differ(f"groups of '{name}'", len(values), samples)
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    texts = [
        item.decode(errors="replace") if isinstance(item, bytes) else str(item)
        for item in values.tolist()
    ]
    return np.array(texts, object)


def members(groups: Array) -> Iterator[tuple[str, Array]]:
    """Yield each group in sorted order, with the indices of its samples."""
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    ends = np.cumsum(np.bincount(codes))[:-1]
    item = np.split(np.argsort(codes, kind="stable"), ends)
    yield from zip(names.tolist(), item, strict=True)


def closeness_by_group(
    pairs: Iterable[tuple[Array, Array]], groups: Array
) -> tuple[GroupCloseness, ...]:
    """Return the agreement of outputs within each group, for the worst output.

    Args:
        pairs: expected and actual values of each output. Outputs without floats, or with another
            first axis than that of the samples, are ignored.
        groups: the group of each sample, strings [samples].
    """
    counted = [
        (expected, result)
        for expected, result in pairs
        if expected.dtype.kind == "f" and expected.ndim and len(expected) == len(groups)
    ]
    powers = [_powers(*pair) for pair in counted]
    same = [item for pair in counted if (item := agreeing(*pair)) is not None]
    return tuple(_within(name, at, powers, same) for name, at in members(groups))


def agreeing(expected: Array, array: Array) -> Array | None:
    """Return whether the top-1 classes agree, bool [samples]; None if there are no classes.

    Samples with NaN scores do not agree.
    """
    if expected.ndim != 2 or expected.shape[1] < 2 or expected.shape != array.shape:
        return None
    broken = np.isnan(expected).any(1) | np.isnan(array).any(1)
    return np.asarray((expected.argmax(1) == array.argmax(1)) & ~broken)


def worst_group(groups: Iterable[GroupCloseness]) -> GroupCloseness | None:
    """Return the group with the lowest bound; None if no group has one."""
    bounds = [(group.sqnr_low_db, group) for group in groups if group.sqnr_low_db is not None]
    return min(bounds, key=lambda item: item[0], default=(None, None))[1]


def worst_first(groups: Iterable[GroupCloseness]) -> list[GroupCloseness]:
    """Return groups in ascending order of their SQNR; groups without one come last."""
    return sorted(groups, key=lambda e: math.inf if e.sqnr_db is None else e.sqnr_db)


def _powers(expected: Array, array: Array) -> tuple[Array, Array]:
    if expected.shape != array.shape or expected.dtype != array.dtype:
        return np.ones(len(expected)), np.full(len(expected), np.inf)
    return sample_powers(expected, array)


def _within(
    name: str, at: Array, powers: Sequence[tuple[Array, Array]], same: Sequence[Array]
) -> GroupCloseness:
    count = len(at)
    if not powers:
        return GroupCloseness(name, count)
    ratios = [power_ratio_db(float(s[at].sum()), float(n[at].sum())) for s, n in powers]
    bounds = [bound_of_powers(s[at], n[at]) for s, n in powers] if count >= FEWEST else []
    agreed = min((int(item[at].sum()) for item in same), default=None)
    return GroupCloseness(
        name,
        count,
        min(ratios),
        min(bounds, default=None),
        None if agreed is None else agreed / count,
        None if agreed is None else wilson(agreed, count),
    )
