"""Statistics of latencies: percentiles, interval of the median, and end of the warm-up."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.run_config import CONFIDENCE
from deploykit.transforms.common.documents import Hidden, written
from deploykit.transforms.ir.tensors import Array

ENOUGH_CALLS = 20
LARGEST_DRIFT = 0.10  # relative, between the first and the last third of the rounds
LARGEST_SPREAD = 1.5  # p90 / p50

_ENDLESS = 20.0  # logarithm of a ratio that counts as infinite
_WINDOW = 5  # calls; its median ignores two spikes
_STEADY_CALLS = 10
_MIN_TOLERANCE = 0.05


@dataclass(frozen=True)
class Summary:
    """Statistics of the calls in the steady state, in milliseconds unless stated otherwise."""

    calls: int
    p50: float
    p50_interval: tuple[float, float] | None
    """95 % confidence interval of the median; None with a single round."""
    p90: float
    p99: float
    p99_9: float
    """With fewer than 1000 calls, this is about the maximum."""
    mean: float
    min: float
    max: float
    items_per_second: float
    load_ms: float
    first_run_ms: float
    warm_up_calls: int
    warm_up_ms: float
    bytes_peak: int | None
    """Peak memory of a process with one session, in bytes."""
    cpu_ms: float | None
    """CPU time of a call over all threads, or None if unknown."""
    core_seconds_per_1000: float | None
    """CPU time per thousand samples, in seconds of one core."""
    verdict: str
    """`stable`, or `unstable: ` and the reasons."""


@dataclass(frozen=True)
class Ratio:
    """Speed of one relative to another, with its interval; above 1, the one is faster."""

    value: float
    low: Hidden[float]
    high: float
    """Infinite, with `low` 0, if there are too few values."""
    confidence: Hidden[float] = CONFIDENCE
    """Confidence level of the interval."""

    @classmethod
    def around(cls, centre: float, reach: float, confidence: float = CONFIDENCE) -> "Ratio":
        """Return the ratio for a logarithm and the half-width of its interval."""
        if reach > _ENDLESS:
            reach = math.inf
        return cls(math.exp(centre), math.exp(centre - reach), math.exp(centre + reach), confidence)

    @property
    @written("low")
    def _known_low(self) -> float | None:
        return self.low if math.isfinite(self.high) else None

    @property
    def reach(self) -> float:
        """Largest possible distance from 1 in either direction: 0.05 is 5 %."""
        return max(self.high, 1 / self.low if self.low else math.inf) - 1

    def in_words(self) -> str:
        """Return the ratio with its interval, such as `1.49x (99.8 % CI 1.14-1.95)`."""
        level = f"{100 * self.confidence:.4g} % CI"
        if not math.isfinite(self.high):
            return f"{self.value:.3g}x ({level} unknown: too few rounds)"
        return f"{self.value:.2f}x ({level} {self.low:.3g}-{self.high:.3g})"


def summary(measurement: Measurement) -> Summary:
    """Return the statistics of a measurement."""
    calls = np.asarray(measurement.latencies_ms)
    p50, p90, p99, p99_9 = (float(p) for p in np.percentile(calls, [50, 90, 99, 99.9]))
    levels = np.log([np.median(item) for item in measurement.rounds_ms])
    interval, cpu_ms = _interval(p50, levels, measurement.turns), measurement.cpu_ms
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
        warm_up_ms=sum(measurement.warm_up_ms, 0.0),
        bytes_peak=measurement.facts.get("bytes_peak"),
        cpu_ms=cpu_ms,
        core_seconds_per_1000=None if cpu_ms is None else cpu_ms / measurement.samples,
        verdict=_verdict(measurement, levels, p90 / p50),
    )


def _verdict(measurement: Measurement, levels: Array, spread: float) -> str:
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
    """Return the index of the first call in the steady state, or None without one.

    Latency is steady when the last quarter of the calls has the level of the quarter before. The
    tolerance is the scatter of the calls, at least 5 %. The steady state starts with the first call
    from which on calls have that level; single spikes do not count.
    """
    calls = np.log(latencies)
    tail = calls[len(calls) // 2 :]
    if len(tail) < _STEADY_CALLS:
        return None
    quarters = np.array_split(tail, 2)
    earlier, later = (np.median(quarter) for quarter in quarters)
    off = np.abs(np.concatenate([quarters[0] - earlier, quarters[1] - later]))
    scatter = 1.4826 * np.median(off)  # a standard deviation, for a normal distribution
    tolerance = max(_MIN_TOLERANCE, 2 * scatter)
    if abs(later - earlier) > tolerance:
        return None
    level = np.median(tail)
    windows = np.median(np.lib.stride_tricks.sliding_window_view(calls, _WINDOW), axis=1)
    is_level = np.maximum(windows, calls[: len(windows)]) <= level + tolerance
    start = int(np.argmax(is_level))
    return start if is_level[start] and len(calls) - start >= _STEADY_CALLS else None


def _interval(p50: float, levels: Array, turns: Sequence[Turn]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median, from medians of sessions, or else of rounds.

    None: there is only one.
    """
    if turns:
        by_session: dict[int, list[float]] = {}
        for level, turn in zip(levels, turns, strict=True):
            by_session.setdefault(turn.session, []).append(float(level))
        levels = np.array([np.median(item) for item in by_session.values()])
    if len(levels) < 2:
        return None
    error = float(np.std(levels, ddof=1)) / math.sqrt(len(levels))
    reach = student(0.95, len(levels) - 1) * error
    return p50 * math.exp(-reach), p50 * math.exp(reach)


@functools.cache
def student(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t for this confidence."""
    angles = np.linspace(0, math.pi / 2, 100_001)[:-1]  # t = sqrt(degrees) * tan(angle)
    mass = np.cumsum(np.cos(angles) ** (degrees - 1))
    angle = np.interp(confidence, mass / mass[-1], angles)
    return math.sqrt(degrees) * math.tan(float(angle))
