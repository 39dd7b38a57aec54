"""So many replicas for a load: how many there have to be, and what they do when some are lost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from deploykit.planning.forecast import P99, Forecast
from deploykit.planning.plan_options import LOSSES, NOTHING, REPLICA, PlanOptions
from deploykit.transforms.core.display.documents import Hidden, Written, written

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
    wanted = needed[how.survive]
    low, high = how.replicas
    replicas = high if wanted is None else min(max(low, wanted), high)
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
    found = least + math.ceil(least / (zones - 1))  # of which one zone is lost
    while left(found - 1, lost, zones) >= least:
        found -= 1
    return found


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
