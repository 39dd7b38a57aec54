"""Service times of a server, derived from scheduled times and ends of requests.

The model is a server with `slots` workers and one queue in order of arrival. A request starts when
a worker is free; its service time is from there to its end. Three effects change service times, and
each is derived from the same measurement:

* An idle server is slower at first, as its core slept and its caches are cold. So requests to an
idle server are separate states, by the idle time.
* Work before and after the model (gRPC, reading the request) runs while another request is
computed. If both share a core, each arrival delays the running requests by the same time, the
front-end time. It is the growth of service times per arrival during the service.
* A queue makes a server a little slower or faster. So requests that find one other request are a
different state from those that find several.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from deploykit.transforms.ir.tensors import Array

RESTS = 1e-3 * np.array([0, 0.5, 1, 2, 4, 8, 16, 32, 64])
"""Minimum idle seconds of each state of a request to an idle server."""
QUEUES = np.array([1, 2])
"""Minimum number of other requests for each state of a request to a loaded server."""
STATES = len(RESTS) + len(QUEUES)
FEWEST = 20
"""Minimum number of requests for separate service times of a state."""
DRAWS = 4096
_SETTLING = 3  # first requests of a load, in the state of the load before
_TRIES = 40
_STEP = 0.7
_LEAST = 1e-6  # seconds
T = TypeVar("T")


@dataclass(frozen=True)
class Trace:
    """The requests of one load."""

    rate: float
    """Scheduled requests per second."""
    calls: Array
    """Scheduled time and end of each request in seconds, [requests, 2], sorted by scheduled
    time."""
    open: bool = True
    """Whether arrivals were random, rather than each following a response."""

    @property
    def latencies(self) -> Array:
        """Latency of each request in seconds, from its scheduled time."""
        return np.asarray(self.calls[:, 1] - self.calls[:, 0])

    @property
    def throughput(self) -> float:
        """Responses per second."""
        due, done = self.calls[:, 0], self.calls[:, 1]
        return len(due) / float(done.max() - due.min())

    def p99(self) -> float:
        """Return the 99th percentile of latency in seconds."""
        return float(np.percentile(self.latencies, 99))


@dataclass(frozen=True)
class Order:
    """How a server schedules requests."""

    slots: int
    """Number of requests that run concurrently."""
    overtaking: bool = False
    """Whether a request may end before an earlier one, because service times differ widely."""


@dataclass(frozen=True)
class Services:
    """The service times of a trace, including front-end delays."""

    rate: float
    at: Array
    """Scheduled time of each request in seconds from the first one."""
    seconds: Array
    arrivals: Array
    """Number of arrivals during each service."""
    states: Array

    @classmethod
    def of(cls, trace: Trace, slots: int, overtaking: bool = False) -> "Services":
        """Derive the service times of a trace, for a server with this number of slots.

        Unless requests may overtake each other, ends are sorted into the order of arrival. So a
        request that got more CPU time at the cost of another does not increase the spread.
        """
        due, ended = trace.calls[:, 0], np.sort(trace.calls[:, 1])
        done = trace.calls[:, 1] if overtaking else ended
        start = due.copy()
        start[slots:] = np.maximum(due[slots:], ended[:-slots])
        result = np.arange(len(due)) - np.searchsorted(ended, due, side="right")
        rested = due - np.concatenate([due[:1], ended[:-1]])
        arrivals = np.searchsorted(due, done) - np.searchsorted(due, start, side="right")
        states = state_of(np.maximum(result, 0), np.maximum(rested, 0.0))
        cut = slice(_SETTLING if len(due) > 2 * _SETTLING else 0, None)
        return cls(
            trace.rate,
            (due - due[0])[cut],
            (done - start)[cut],
            np.maximum(arrivals, 0)[cut],
            states[cut],
        )

    def without(self, front_end: float) -> Array:
        """Return the service times without front-end delays of other requests."""
        return np.asarray(np.maximum(self.seconds - front_end * self.arrivals, _LEAST))


def state_of(array: Array, rested: Array) -> Array:
    """Return the states of requests from the number of other requests, or the idle seconds."""
    idle = np.searchsorted(RESTS, rested, side="right") - 1
    busy = len(RESTS) + np.searchsorted(QUEUES, array, side="right") - 1
    return np.where(array == 0, idle, busy)


def front_end_of(services: Sequence[Services]) -> float:
    """Return the front-end time: seconds by which an arrival delays running requests.

    It is the slope of service times over arrivals within each state, corrected for longer services
    seeing more arrivals. With service variance v, arrival rate r and delay f, that covariance is r
    v / (1 - r f).
    """
    groups = [
        (service.seconds[chosen], service.arrivals[chosen], service.rate)
        for service in services
        for state in np.unique(service.states)
        if (chosen := service.states == state).sum() >= FEWEST
    ]
    result = 0.0
    for _ in range(_TRIES):
        above = below = 0.0
        for seconds, arrivals, rate in groups:
            own, count = seconds - result * arrivals, arrivals - arrivals.mean()
            expected = rate * own.var() / max(1 - rate * result, _LEAST)
            above += float((own * count).sum()) - expected * len(own)
            below += float((count * count).sum())
        result += _STEP * above / below if below else 0.0
    return max(result, 0.0)


@dataclass(frozen=True)
class ServiceTimesOfLoad:
    """Service times of one load by state, in their original order.

    Shared machines are slower for a while, then faster. Independent draws would lose that.
    """

    load: float
    """Share of the capacity; 1 for clients that send a request after each response."""
    services: Sequence[Array]
    """Service times of each state in seconds."""
    at: Sequence[Array] | None = None
    """Scheduled time of each request in seconds from the first one; None: unknown."""

    @classmethod
    def of(cls, load: float, services: Services, front_end: float) -> "ServiceTimesOfLoad":
        """Group services by their states."""
        own = services.without(front_end)
        chosen = [services.states == state for state in range(STATES)]
        return cls(load, [own[item] for item in chosen], [services.at[item] for item in chosen])

    @cached_property
    def seconds(self) -> float:
        """Duration of the sequence in seconds."""
        return max((float(item[-1]) for item in self.at or () if len(item)), default=0.0)

    @cached_property
    def lists(self) -> tuple[list[list[float]], list[list[float]]]:
        """Times and service times of each state, as lists."""
        return [item.tolist() for item in self.at or ()], [
            service.tolist() for service in self.services
        ]


@dataclass(frozen=True)
class ServiceTimes:
    """Model of one replica's service times."""

    slots: int
    """Number of requests that run concurrently."""
    capacity: float
    """Throughput in requests per second when the server is never idle."""
    front_end: float
    """Seconds by which an arriving request delays the running ones."""
    courses: Sequence[ServiceTimesOfLoad]

    @classmethod
    def of(
        cls, traces: Sequence[Trace], order: Order, capacity: float, front_end: float
    ) -> "ServiceTimes":
        """Derive service times from traces of one server."""
        courses = []
        for trace in traces:
            load = round(min(trace.rate / capacity, 1.0), 2) if trace.open else 1.0
            services = Services.of(trace, order.slots, order.overtaking)
            courses.append(ServiceTimesOfLoad.of(load, services, front_end))
        return cls(order.slots, capacity, front_end, courses)

    def near(
        self, load: float
    ) -> tuple[Sequence[ServiceTimesOfLoad], Sequence[ServiceTimesOfLoad], float]:
        """Return the sequences of the loads below and above one, and the share of the latter."""
        (low, below), (high, above) = _around(self.by_load, load)
        return below, above, _share(low, high, load)

    def at(self, load: float) -> list[list[float]]:
        """Return DRAWS service times in seconds of each state at a load.

        Between two measured loads, draws come from both, more of them from the nearer one. A state
        without data there uses its data at other loads, or the nearest state.
        """
        return [self._draws(state, load).tolist() for state in range(STATES)]

    @cached_property
    def by_load(self) -> Sequence[tuple[float, Sequence[ServiceTimesOfLoad]]]:
        """Sequences by load, lightest first."""
        loads = sorted({course.load for course in self.courses})
        return [
            (load, [course for course in self.courses if course.load == load]) for load in loads
        ]

    @cached_property
    def _rungs(self) -> Sequence[tuple[float, Sequence[Array]]]:
        """Service times of each state by load, lightest first."""
        return [
            (load, [np.concatenate([course.services[state] for course in courses])
                    for state in range(STATES)])
            for load, courses in self.by_load
        ]  # fmt: skip

    def _draws(self, state: int, load: float) -> Array:
        for other in self._nearest[state]:
            known = [
                (rung, item[other]) for rung, item in self._rungs if len(item[other]) >= FEWEST
            ]
            if known:
                (low, first), (high, second) = _around(known, load)
                count = round(_share(low, high, load) * DRAWS)
                return np.concatenate([_spread(first, DRAWS - count), _spread(second, count)])
        every = np.concatenate([state for _, states in self._rungs for state in states])
        return _spread(every, DRAWS)

    @cached_property
    def _nearest(self) -> list[list[int]]:
        """For each state, the states that may replace it, nearest first, idle or loaded like it."""
        idle, busy = list(range(len(RESTS))), list(range(len(RESTS), STATES))
        return [
            sorted(idle if state in idle else busy, key=lambda other: abs(other - state))
            for state in range(STATES)
        ]


def _around(known: Sequence[tuple[float, T]], load: float) -> tuple[tuple[float, T], ...]:
    """Return the entries below and above a load, or one end twice."""
    above = next((n for n, (rung, _) in enumerate(known) if rung >= load), len(known) - 1)
    below = above if known[above][0] <= load else max(0, above - 1)
    return known[below], known[above]


def _share(low: float, high: float, load: float) -> float:
    """Return the weight of the upper of two loads for one between them."""
    return min(1.0, max(0.0, (load - low) / (high - low))) if high > low else 0.0


def _spread(values: Array, count: int) -> Array:
    """Return `count` values with the distribution and the mean of these, without random draws."""
    places = (np.arange(count) + 0.5) * len(values) / max(count, 1)
    return np.asarray(np.sort(values)[places.astype(int)])
