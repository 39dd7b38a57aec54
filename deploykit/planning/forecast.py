"""The 99th percentile that a number of replicas would have, simulated."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from deploykit.planning.measuring import MOST_LOAD, Measured
from deploykit.planning.queueing import answered, latencies
from deploykit.planning.service_times import ServiceTimes
from deploykit.transforms.core.tensors import Array

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
        found = sorted(
            1e3 * float(np.percentile(simulated(times), 99)) for times in self.measured.rounds
        )
        inner = found[1:-1] if len(found) >= _ENOUGH_ROUNDS else found
        return P99(statistics.median(found), inner[0], inner[-1])

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
        return [(rate, found) for rate in rates if (found := self.p99(rate)) is not None]

    def bears(self, limit_ms: float) -> float:
        """Return the most calls a second at which a replica's p99 stays within a limit.

        All of its range has to. 0: it does at no rate.
        """
        holding = [rate for rate, each in self.curve if each.high_ms <= limit_ms]
        if not holding:
            return 0.0
        low = max(holding)
        high = min((rate for rate, _ in self.curve if rate > low), default=low)
        for _ in range(_HALVINGS if high > low else 0):
            middle = (low + high) / 2
            found = self.p99(middle)
            assert found is not None
            low, high = (middle, high) if found.high_ms <= limit_ms else (low, middle)
        return low
