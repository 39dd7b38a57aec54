"""What latencies tell: percentiles, intervals, where the warm-up ends, and whether two differ.

Intervals rest on the medians of rounds, not on calls: the calls of a round resemble each other, so
there are fewer independent ones than it seems, and a spike does not move a median.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from deploykit.benchmarking.measurement import Measurement
    from deploykit.transforms.core.tensors import Array

# Two processes of one model differ by where their memory lies, which no number of rounds averages
# away. Measured on 18 pairs of a 0.7 ms net, by the calls that nobody disturbed (5th percentile):
# 0.9 % in the median, 2.6 % at most.
FLOOR_IN_TURN = 0.03
# And a shared machine changes: the same calls of that net by 8 % from one minute to the next.
FLOOR_APART = 0.10

ENOUGH_CALLS = 20
LARGEST_DRIFT = 0.10  # of the level, between the first and the last third of the rounds
LARGEST_SPREAD = 1.5  # p90 / p50

_WINDOW = 5  # calls; its median passes over two spikes
_STEADY_CALLS = 10
_LEAST_TOLERANCE = 0.05
_RESAMPLES = 1000
_MOST_PAIRS = 100


@dataclass(frozen=True)
class Summary:
    """Of the calls in the steady state, in milliseconds where nothing else is said."""

    calls: int
    p50: float
    p50_interval: tuple[float, float] | None
    """Where the median lies, at 95 %; None where there is one round only."""
    p90: float
    p99: float
    p99_9: float
    """With fewer than 1000 calls this is little else than the slowest one."""
    mean: float
    min: float
    max: float
    items_per_second: float
    load_ms: float
    first_run_ms: float
    warm_up_calls: int
    warm_up_ms: float
    bytes_peak: int | None
    """The most memory that the process held."""
    verdict: str
    """`stable`, or `unstable: ` and why."""


@dataclass(frozen=True)
class Ratio:
    """How often b runs while a runs once: the median of a / the median of b.

    Above 1, b is faster.
    """

    value: float
    low: float
    high: float
    """Infinite, and `low` 0, where there are too few rounds to tell."""
    significant: bool
    """Whether the whole interval lies further from 1 than two processes of one model do."""


def summary(measurement: "Measurement") -> Summary:
    """Return the figures of a measurement."""
    calls = np.asarray(measurement.latencies_ms)
    p50, p90, p99, p99_9 = (float(p) for p in np.percentile(calls, [50, 90, 99, 99.9]))
    levels = _levels(measurement.rounds_ms)
    interval = None
    if len(levels) > 1:
        reach = _student(0.95, _blocks(len(levels)) - 1) * _standard_error(levels)
        interval = p50 * math.exp(-reach), p50 * math.exp(reach)
    return Summary(
        calls=len(calls),
        p50=p50,
        p50_interval=interval,
        p90=p90,
        p99=p99,
        p99_9=p99_9,
        mean=float(calls.mean()),
        min=float(calls.min()),
        max=float(calls.max()),
        items_per_second=measurement.items_per_second,
        load_ms=measurement.load_ms,
        first_run_ms=measurement.first_run_ms,
        warm_up_calls=len(measurement.warm_up_ms),
        warm_up_ms=sum(measurement.warm_up_ms),
        bytes_peak=measurement.facts.get("bytes_peak"),
        verdict=_verdict(measurement, levels, p90 / p50),
    )


def _verdict(measurement: "Measurement", levels: "Array", spread: float) -> str:
    reasons = []
    if (calls := len(measurement.latencies_ms)) < ENOUGH_CALLS:
        reasons.append(f"only {calls} calls")
    if not measurement.settled:
        warm_up = measurement.warm_up_ms
        reasons.append(f"no steady state after {len(warm_up)} calls in {sum(warm_up) / 1e3:.1f} s")
    third = math.ceil(len(levels) / 3)
    drift = math.expm1(float(np.median(levels[-third:]) - np.median(levels[:third])))
    if abs(drift) > LARGEST_DRIFT:
        reasons.append(f"drifted by {100 * drift:+.0f} % between rounds")
    if spread > LARGEST_SPREAD:
        reasons.append(f"p90 is {spread:.1f} times p50")
    return f"unstable: {', '.join(reasons)}" if reasons else "stable"


def steady_from(latencies: Sequence[float]) -> int | None:
    """Return the first call of the steady state, or None while there is none yet.

    It is steady when the last quarter of the calls has the level of the quarter before, within what
    the calls scatter or 5 %. The steady state then starts with the first call from which on things
    are at that level; single spikes do not count.
    """
    calls = np.log(latencies)
    tail = calls[len(calls) // 2 :]
    if len(tail) < _STEADY_CALLS:
        return None
    quarters = np.array_split(tail, 2)
    earlier, later = (np.median(each) for each in quarters)
    off = np.abs(np.concatenate([quarters[0] - earlier, quarters[1] - later]))
    scatter = 1.4826 * np.median(off)  # a standard deviation, if it were normal
    tolerance = max(_LEAST_TOLERANCE, 2 * scatter)
    if abs(later - earlier) > tolerance:
        return None
    level = np.median(tail)
    windows = np.median(np.lib.stride_tricks.sliding_window_view(calls, _WINDOW), axis=1)
    is_level = np.maximum(windows, calls[: len(windows)]) <= level + tolerance
    start = int(np.argmax(is_level))
    return start if is_level[start] and len(calls) - start >= _STEADY_CALLS else None


def ratio(
    rounds_a: Sequence[Sequence[float]],
    rounds_b: Sequence[Sequence[float]],
    confidence: float = 0.99,
    *,
    paired: bool,
) -> Ratio:
    """Return the median of a / the median of b, and its interval.

    `paired`: round i of both were taken in turn, so what befell the machine hit both. The value is
    then the centre of the rounds' own ratios, which is not quite that of the two medians. Otherwise
    the two were measured at different times, and the machine itself may have changed meanwhile.
    """
    a, b = _levels(rounds_a), _levels(rounds_b)
    if paired:
        both = min(len(a), len(b))  # a benchmark that was interrupted may lack a turn
        centre, reach_low, reach_high = _signed_rank(a[:both] - b[:both], confidence)
    else:
        centre = float(np.median(a) - np.median(b))
        reach_low = reach_high = math.inf
        if min(len(a), len(b)) > 1:
            error = math.hypot(_standard_error(a), _standard_error(b))
            degrees = min(_blocks(len(a)), _blocks(len(b))) - 1
            reach_low = reach_high = _student(confidence, degrees) * error
    low, high = centre - reach_low, centre + reach_high
    floor = math.log1p(FLOOR_IN_TURN if paired else FLOOR_APART)
    return Ratio(
        math.exp(centre),
        math.exp(low),
        math.exp(high),
        significant=low > floor or high < -floor,
    )


def _levels(rounds: Sequence[Sequence[float]]) -> "Array":
    """Return the logarithm of each round's median."""
    return np.log([np.median(each) for each in rounds])


def _signed_rank(differences: "Array", confidence: float) -> tuple[float, float, float]:
    """Return the centre of differences and how far its interval reaches below and above it.

    The centre is the Hodges-Lehmann estimate, the median of the means of all pairs; the interval is
    that of Wilcoxon's signed-rank test, or Student's where there are too few rounds for it. Source:
    M. Hollander, D. Wolfe, E. Chicken, Nonparametric Statistical Methods, 3rd ed., 3.1 to 3.3.
    """
    if len(differences) > _MOST_PAIRS:  # neighbours as one, which also makes them less alike
        parts = np.array_split(differences, _MOST_PAIRS)
        differences = np.array([np.median(part) for part in parts])
    count = len(differences)
    means = (differences[:, None] + differences)[np.triu_indices(count)] / 2
    means.sort()
    centre = float(np.median(means))
    chances = np.ones(1)  # of each sum of ranks, if either sign were as likely
    for rank in range(1, count + 1):
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    outside = int(np.searchsorted(np.cumsum(chances), (1 - confidence) / 2, side="right"))
    if outside:
        return centre, centre - float(means[outside - 1]), float(means[-outside]) - centre
    if count < 2:
        return centre, math.inf, math.inf
    error = float(np.std(differences, ddof=1)) / math.sqrt(count)
    reach = _student(confidence, count - 1) * error
    return centre, reach, reach


def _standard_error(levels: "Array") -> float:
    """Return the standard error of the median of rounds, by a block bootstrap with a fixed seed.

    Blocks of neighbouring rounds are drawn as one, so that a slow drift counts. Source: H. Kuensch,
    The jackknife and the bootstrap for general stationary observations, 1989.
    """
    count, blocks = len(levels), _blocks(len(levels))
    length = math.ceil(count / blocks)
    starts = np.random.default_rng(0).integers(count, size=(_RESAMPLES, blocks, 1))
    drawn = (starts + np.arange(length)).reshape(_RESAMPLES, -1)[:, :count] % count
    return float(np.std(np.median(levels[drawn], axis=1)))


def _blocks(count: int) -> int:
    """Return how many blocks so many rounds make; the length of one is their cube root."""
    return math.ceil(count / max(1, round(math.cbrt(count))))


def _student(confidence: float, degrees: int) -> float:
    """Return how far Student's t lies from 0 at most, with this confidence."""
    angles = np.linspace(0, math.pi / 2, 100_001)[:-1]  # t = sqrt(degrees) * tan(angle)
    mass = np.cumsum(np.cos(angles) ** (degrees - 1))
    angle = np.interp(confidence, mass / mass[-1], angles)
    return math.sqrt(degrees) * math.tan(float(angle))
