"""Number of replicas for a load, and the predicted p99 of a number of replicas."""

import bisect
import heapq
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from deploykit.planning.measuring import MAX_LOAD, Measured
from deploykit.planning.plan_options import LOSSES, NOTHING, REPLICA, PlanOptions
from deploykit.planning.service_times import (
    DRAWS,
    QUEUES,
    RESTS,
    STATES,
    ServiceTimes,
    ServiceTimesOfLoad,
)
from deploykit.transforms.common.documents import Hidden, Written, written
from deploykit.transforms.ir.tensors import Array

CALLS = 60_000
"""Number of simulated requests."""
_STARTING = 0.05  # share of requests before queues are in a steady state
_NOTHING: tuple[list[list[float]], list[list[float]]] = [[]] * STATES, [[]] * STATES


def latencies(times: ServiceTimes, rate: float, seed: int, replicas: int = 1) -> Array:
    """Return simulated latencies in seconds, float64 [requests], of Poisson arrivals at a rate.

    With several replicas, `rate` is their total, and each request goes to the replica with the
    fewest requests, as an ideal load balancer does. One replica also models random balancing, as
    its arrivals are again Poisson.
    """
    due = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, CALLS))
    return answered(times, rate, due, seed, replicas)[int(_STARTING * CALLS) :]


def answered(times: ServiceTimes, rate: float, due: Array, seed: int, replicas: int = 1) -> Array:
    """Return simulated latencies in seconds of requests scheduled at these seconds."""
    load = rate / replicas / times.capacity
    draws = times.at(load)
    machines = [Machine(times, load, draws, seed + 1 + number) for number in range(replicas)]
    crowd = Crowd([Replica(machine) for machine in machines], times.slots, times.front_end)
    return np.asarray(crowd.ends(due.tolist())) - due


class Machine:
    """Service times in measured sequences, which follow each other in random order."""

    def __init__(
        self, times: ServiceTimes, load: float, draws: Sequence[Sequence[float]], seed: int
    ) -> None:
        """Start; `draws` contains service times of each state, for states that a sequence lacks."""
        self._draws, self._random = draws, random.Random(seed)
        below, above, self._above = times.near(load)
        self._decks = [
            [course for course in courses if course.seconds] for courses in (below, above)
        ]
        self._dealt: tuple[list[ServiceTimesOfLoad], ...] = ([], [])
        self._due = self._random.random()  # from 1 on, a sequence of the upper load is next
        self._end = float("-inf")

    def service(self, state: int, now: float) -> float:
        """Return the service time of a request that arrives now, in seconds."""
        if now >= self._end:
            self._begin(now)
        at, services = self._at[state], self._services[state]
        place = max(self._next[state], bisect.bisect_left(at, now - self._start))
        if place >= len(at):
            return float(self._draws[state][int(DRAWS * self._random.random())])
        self._next[state] = place + 1
        return services[place]

    def _begin(self, now: float) -> None:
        """Start the next sequence; all sequences of a load are used before one repeats."""
        self._due += self._above
        upper = bool(self._due >= 1)
        self._due -= upper
        deck, dealt = self._decks[upper], self._dealt[upper]
        self._start, self._next = now, [0] * STATES
        if not deck:
            self._end = float("inf")
            self._at, self._services = _NOTHING
            return
        if not dealt:
            dealt += self._random.sample(deck, len(deck))
        course = dealt.pop()
        self._end = now + course.seconds
        self._at, self._services = course.lists


class Crowd:
    """Replicas behind a load balancer."""

    def __init__(self, replicas: "Sequence[Replica]", slots: int, front_end: float) -> None:
        """Start; each replica runs `slots` requests concurrently."""
        self._replicas, self._slots, self._front_end = list(replicas), slots, front_end

    def ends(self, due: Sequence[float]) -> list[float]:
        """Return the end of each request in seconds."""
        done = [0.0] * len(due)
        rests: list[float] = RESTS.tolist()
        queues: list[int] = QUEUES.tolist()
        replicas, count = self._replicas, len(self._replicas)
        for number, now in enumerate(due):
            for item in replicas:
                item.go_on(now, done)
            start = number % count  # ties rotate over the replicas
            replica = replicas[0]
            if count > 1:
                replica = min(replicas[start:] + replicas[:start], key=Replica.calls)
            result = replica.calls()
            if result:
                replica.shift += self._front_end
                state = len(rests) + bisect.bisect_right(queues, result) - 1
            else:
                state = max(0, bisect.bisect_right(rests, now - replica.last) - 1)
            service = replica.machine.service(state, now)
            if len(replica.running) < self._slots:
                heapq.heappush(replica.running, (now + service - replica.shift, number))
            else:
                replica.waiting.append((service, number))
        for item in replicas:
            item.go_on(float("inf"), done)
        return done


class Replica:
    """The requests of one replica: running ones, and a queue."""

    __slots__ = ("last", "machine", "running", "shift", "waiting")

    def __init__(self, machine: Machine) -> None:
        """Start idle."""
        self.machine = machine
        self.running: list[tuple[float, int]] = []
        """Heap of the end of each running request, minus `shift`."""
        self.waiting: deque[tuple[float, int]] = deque()
        self.shift = 0.0
        """Seconds by which arrivals have delayed all running requests."""
        self.last = float("-inf")

    def calls(self) -> int:
        """Return the number of running and waiting requests."""
        return len(self.running) + len(self.waiting)

    def go_on(self, now: float, done: list[float]) -> None:
        """Simulate until a time; store the end of finished requests in `done`."""
        running = self.running
        while running and running[0][0] + self.shift <= now:
            end, number = heapq.heappop(running)
            self.last = done[number] = end + self.shift
            if self.waiting:
                service, number = self.waiting.popleft()
                heapq.heappush(running, (self.last + service - self.shift, number))


LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, MAX_LOAD)
_TOGETHER = 8
"""Maximum number of simulated replicas behind one balancer; more replicas are no slower."""
_HALVINGS = 5
_ENOUGH_ROUNDS = 5
_SEED = 7


@dataclass(frozen=True)
class P99:
    """A 99th percentile in milliseconds: median and range over the rounds of a measurement.

    With five or more rounds, the range excludes the best and the worst one.
    """

    ms: float
    low_ms: float
    high_ms: float


class Forecast:
    """Prediction of latencies for replicas like the measured one."""

    def __init__(self, measured: Measured) -> None:
        """Store the measurement."""
        self.measured = measured
        self._known: dict[float, P99] = {}

    def load(self, rate: float) -> float:
        """Return a replica's load at a rate, as a share of its capacity."""
        return rate / self.measured.capacity

    def allows(self, rate: float) -> bool:
        """Return whether a replica may get this number of requests per second."""
        return self.load(rate) <= self.measured.most_load + 1e-9

    def p99(self, rate: float) -> P99 | None:
        """Return p99 of a replica with Poisson arrivals at a rate; None: the rate is too high."""
        if not self.allows(rate):
            return None
        if rate not in self._known:
            self._known[rate] = self._over(lambda times: latencies(times, rate, _SEED))
        return self._known[rate]

    def replayed(self, rate: float, due: Array) -> P99:
        """Return p99 of a replica for requests scheduled at these seconds.

        With the arrivals of a measured load, chance does not affect the comparison. For some
        hundred requests, it changes p99 by half.
        """
        return self._over(lambda times: answered(times, rate, due, _SEED))

    def _over(self, simulated: Callable[[ServiceTimes], Array]) -> P99:
        results = sorted(
            1e3 * float(np.percentile(simulated(times), 99)) for times in self.measured.rounds
        )
        inner = results[1:-1] if len(results) >= _ENOUGH_ROUNDS else results
        return P99(statistics.median(results), inner[0], inner[-1])

    def together(self, rate: float, replicas: int) -> float | None:
        """Return p99 in ms with a least-loaded balancer; None: the rate is too high.

        `rate` is that of one replica.
        """
        if not self.allows(rate):
            return None
        count = min(replicas, _TOGETHER)
        return self._over(lambda times: latencies(times, count * rate, _SEED, count)).ms

    @cached_property
    def curve(self) -> list[tuple[float, P99]]:
        """Predicted p99 of a replica by requests per second."""
        rates = [load * self.measured.capacity for load in LOADS]
        return [(rate, result) for rate in rates if (result := self.p99(rate)) is not None]

    def bears(self, limit_ms: float) -> float:
        """Return the highest rate at which a replica's p99 stays within a limit, requests per
        second.

        The whole range of p99 must be within the limit. 0: no rate is sustained.
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
    """Return a 99th percentile and its range under their JSON keys."""
    names = {"p99_ms": "ms", "p99_low_ms": "low_ms", "p99_high_ms": "high_ms"}
    return {key: getattr(p99, name, None) for key, name in names.items()}


@dataclass(frozen=True)
class LossOutcome:
    """Performance of the remaining replicas after a failure."""

    lost: str
    """What fails: `nothing`, a `replica` or a `zone`."""
    replicas: int
    """Number of remaining replicas."""
    load: Annotated[float, Written(digits=4)]
    """Load of each as a share of its capacity; above 1, it is overloaded."""
    p99: Hidden[P99 | None]
    """P99 with random balancing; None: the load exceeds the highest planned one."""
    together_ms: Annotated[float | None, Written("p99_least_busy_ms", digits=3)]
    """P99 with a least-loaded balancer, in milliseconds."""
    holds: bool
    """Whether the whole range of p99 is within the limit."""

    @property
    @written(flat=True, digits=3)
    def _p99(self) -> dict[str, float | None]:
        return p99_document(self.p99)


@dataclass(frozen=True)
class ReplicaCost:
    """Cost of the replicas, in the currency of the price."""

    hour: float
    month: float
    """Cost of 730 hours."""
    million_calls: float
    """Cost of a million requests at the planned rate."""


@dataclass(frozen=True)
class Size:
    """The planned number of replicas, and its consequences."""

    replicas: int
    """Planned number. If `bears` is 0 or `needed` is larger, no allowed number suffices, and this
    is the maximum."""
    bears: Annotated[float, Written("rate_of_one", digits=4)]
    """Highest rate of one replica with p99 within the limit, requests per second; 0: none."""
    needed: Mapping[str, int | None]
    """Required number of replicas by tolerated failure; None: no number suffices."""
    outcomes: tuple[LossOutcome, ...]
    cost: ReplicaCost | None

    @property
    @written("highest_rate", digits=4)
    def headroom(self) -> float:
        """Highest rate of all replicas with p99 within the limit, requests per second."""
        return self.replicas * self.bears


def sized(forecast: Forecast, how: PlanOptions) -> Size:
    """Return the plan for a load, within the allowed numbers of replicas."""
    assert how.rate is not None
    assert how.latency_limit is not None
    bears = forecast.bears(how.latency_limit)
    needed: dict[str, int | None] = dict.fromkeys(LOSSES)
    if bears:
        least = math.ceil(how.rate / bears * (1 - 1e-9))
        needed = {lost: _surviving(least, lost, how.zones) for lost in LOSSES}
    expected = needed[how.tolerate]
    low, high = how.replicas
    replicas = high if expected is None else min(max(low, expected), high)
    outcomes = tuple(_outcome(forecast, how, replicas, lost) for lost in LOSSES)
    cost = None
    if how.price is not None:
        hour = replicas * how.price
        cost = ReplicaCost(hour, MONTH_HOURS * hour, 1e6 * hour / (3600 * how.rate))
    return Size(replicas, bears, needed, outcomes, cost)


def left(replicas: int, lost: str, zones: int) -> int:
    """Return the number of remaining replicas; the largest zone is the one that fails."""
    if lost == NOTHING:
        return replicas
    return replicas - (1 if lost == REPLICA else math.ceil(replicas / zones))


def _surviving(least: int, lost: str, zones: int) -> int | None:
    """Return the smallest number of which `least` remain after a failure; None: no number does."""
    if lost == NOTHING:
        return least
    if lost == REPLICA:
        return least + 1
    if zones == 1:
        return None
    result = least + math.ceil(least / (zones - 1))  # including the zone that fails
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
