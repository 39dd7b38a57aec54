"""The number of replicas for a load, and the p99 that a number of replicas would have."""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from deploykit.planning.measuring import MOST_LOAD, Measured
from deploykit.planning.plan_options import LOSSES, NOTHING, REPLICA, PlanOptions
from deploykit.planning.queueing import answered, latencies
from deploykit.planning.service_times import ServiceTimes
from deploykit.transforms.common.documents import Hidden, Written, written
from deploykit.transforms.ir.tensors import Array

LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, MOST_LOAD)
_TOGETHER = 8
"""Replicas behind one balancer that are simulated; more are no worse."""
_HALVINGS = 5
_ENOUGH_ROUNDS = 5
_SEED = 7


@dataclass(frozen=True)
class P99:
    """A 99th percentile in milliseconds: the median of the rounds of a measurement, and its range.

    The best and the worst round are left out of the range, where there are five.
    """

    ms: float
    low_ms: float
    high_ms: float


class Forecast:
    """What replicas like the one that was measured would do."""

    def __init__(self, measured: Measured) -> None:
        """Take what was measured."""
        self.measured = measured
        self._known: dict[float, P99] = {}

    def load(self, rate: float) -> float:
        """Return which share of its capacity a replica gives at a rate of its own."""
        return rate / self.measured.capacity

    def allows(self, rate: float) -> bool:
        """Say whether a replica may be given so many calls a second."""
        return self.load(rate) <= self.measured.most_load + 1e-9

    def p99(self, rate: float) -> P99 | None:
        """Return p99 of a replica that has so many calls a second, at random; None: too many."""
        if not self.allows(rate):
            return None
        if rate not in self._known:
            self._known[rate] = self._over(lambda times: latencies(times, rate, _SEED))
        return self._known[rate]

    def replayed(self, rate: float, due: Array) -> P99:
        """Return p99 of a replica whose calls are due at these seconds, at a rate.

        So what a load measures can be compared without the luck of its arrivals, which moves p99 by
        half where there are some hundred calls.
        """
        return self._over(lambda times: answered(times, rate, due, _SEED))

    def _over(self, simulated: Callable[[ServiceTimes], Array]) -> P99:
        results = sorted(
            1e3 * float(np.percentile(simulated(times), 99)) for times in self.measured.rounds
        )
        inner = results[1:-1] if len(results) >= _ENOUGH_ROUNDS else results
        return P99(statistics.median(results), inner[0], inner[-1])

    def together(self, rate: float, replicas: int) -> float | None:
        """Return p99 in ms where each call goes to a replica that has the fewest; None: too many.

        `rate` is that of one replica.
        """
        if not self.allows(rate):
            return None
        count = min(replicas, _TOGETHER)
        return self._over(lambda times: latencies(times, count * rate, _SEED, count)).ms

    @cached_property
    def curve(self) -> list[tuple[float, P99]]:
        """P99 of a replica by its calls a second."""
        rates = [load * self.measured.capacity for load in LOADS]
        return [(rate, result) for rate in rates if (result := self.p99(rate)) is not None]

    def bears(self, limit_ms: float) -> float:
        """Return the most calls a second at which a replica's p99 stays within a limit.

        All of its range has to. 0: it does at no rate.
        """
        holding = [rate for rate, item in self.curve if item.high_ms <= limit_ms]
        if not holding:
            return 0.0
        low = max(holding)
        high = min((rate for rate, _ in self.curve if rate > low), default=low)
        for _ in range(_HALVINGS if high > low else 0):
            middle = (low + high) / 2
            result = self.p99(middle)
            assert result is not None
            low, high = (middle, high) if result.high_ms <= limit_ms else (low, middle)
        return low


MONTH_HOURS = 730


def p99_document(p99: P99 | None) -> dict[str, float | None]:
    """Return a 99th percentile and its range under their keys."""
    names = {"p99_ms": "ms", "p99_low_ms": "low_ms", "p99_high_ms": "high_ms"}
    return {key: getattr(p99, name, None) for key, name in names.items()}


@dataclass(frozen=True)
class LossOutcome:
    """What replicas do that are left when something is lost."""

    lost: str
    """`nothing`, a `replica` or a `zone`."""
    replicas: int
    """That are left."""
    load: Annotated[float, Written(digits=4)]
    """The share of its capacity that each gives; more than 1: it cannot."""
    p99: Hidden[P99 | None]
    """Where calls are dealt out at random; None: the load is more than it is given."""
    together_ms: Annotated[float | None, Written("p99_least_busy_ms", digits=3)]
    """P99 where each call goes to a replica that has the fewest."""
    holds: bool
    """Whether p99 is within the limit, in all of its range."""

    @property
    @written(flat=True, digits=3)
    def _p99(self) -> dict[str, float | None]:
        return p99_document(self.p99)


@dataclass(frozen=True)
class ReplicaCost:
    """What replicas cost, in the currency of the price."""

    hour: float
    month: float
    """Of 730 hours."""
    million_calls: float
    """At the planned rate."""


@dataclass(frozen=True)
class Size:
    """How many replicas, and what follows from that."""

    replicas: int
    """None of those allowed holds where `bears` is 0 or `needed` says more; then it is the most."""
    bears: Annotated[float, Written("rate_of_one", digits=4)]
    """Calls a second that one replica answers with p99 within the limit; 0: at no rate."""
    needed: Mapping[str, int | None]
    """By what may be lost: how many replicas hold then; None: no number does."""
    outcomes: tuple[LossOutcome, ...]
    cost: ReplicaCost | None

    @property
    @written("highest_rate", digits=4)
    def headroom(self) -> float:
        """Calls a second that all replicas answer within the limit."""
        return self.replicas * self.bears


def sized(forecast: Forecast, how: PlanOptions) -> Size:
    """Return how many replicas a load takes, within the numbers that are allowed."""
    assert how.rate is not None
    assert how.latency_limit is not None
    bears = forecast.bears(how.latency_limit)
    needed: dict[str, int | None] = dict.fromkeys(LOSSES)
    if bears:
        least = math.ceil(how.rate / bears * (1 - 1e-9))
        needed = {lost: _surviving(least, lost, how.zones) for lost in LOSSES}
    expected = needed[how.survive]
    low, high = how.replicas
    replicas = high if expected is None else min(max(low, expected), high)
    outcomes = tuple(_outcome(forecast, how, replicas, lost) for lost in LOSSES)
    cost = None
    if how.price is not None:
        hour = replicas * how.price
        cost = ReplicaCost(hour, MONTH_HOURS * hour, 1e6 * hour / (3600 * how.rate))
    return Size(replicas, bears, needed, outcomes, cost)


def left(replicas: int, lost: str, zones: int) -> int:
    """Return how many replicas are left; the largest zone is the one that is lost."""
    if lost == NOTHING:
        return replicas
    return replicas - (1 if lost == REPLICA else math.ceil(replicas / zones))


def _surviving(least: int, lost: str, zones: int) -> int | None:
    """Return the fewest replicas of which so many are left; None: a loss leaves none."""
    if lost == NOTHING:
        return least
    if lost == REPLICA:
        return least + 1
    if zones == 1:
        return None
    result = least + math.ceil(least / (zones - 1))  # of which one zone is lost
    while left(result - 1, lost, zones) >= least:
        result -= 1
    return result


def _outcome(forecast: Forecast, how: PlanOptions, replicas: int, lost: str) -> LossOutcome:
    assert how.rate is not None
    assert how.latency_limit is not None
    count = left(replicas, lost, how.zones)
    if not count:
        return LossOutcome(lost, 0, math.inf, None, None, False)
    rate = how.rate / count
    p99, load = forecast.p99(rate), forecast.load(rate)
    together = forecast.together(rate, count)
    holds = p99 is not None and p99.high_ms <= how.latency_limit
    return LossOutcome(lost, count, load, p99, together, holds)
