"""How long a server works on each call, found from when calls were due and when they ended.

The server is taken for `slots` places that take calls in the order in which they come. A call
begins when a place is free; from there to its end is its time of service. Three things make that
depend on what else happens, and each is found in the same measurement:

* A server that rested is slower at first, as its core slept and its caches are cold. So calls that
  find it idle are kept apart, by how long it was.
* What a server does with a call before the model and after it (gRPC, reading the request) is done
  while another call is computed, and holds that one up where they share a core: each call that
  comes lengthens those in service by the same time, the front end's. It is what the service of a
  call grows by for each arrival during it.
* A queue makes a server a little slower or quicker. So calls that find another one are kept apart
  from those that find several.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from deploykit.transforms.ir.tensors import Array

RESTS = 1e-3 * np.array([0, 0.5, 1, 2, 4, 8, 16, 32, 64])
"""Seconds for which a server was idle, at least, of each state of a call that finds it idle."""
QUEUES = np.array([1, 2])
"""Calls that a call finds, at least, of each state of a call that finds any."""
STATES = len(RESTS) + len(QUEUES)
FEWEST = 20
"""Calls from which on a state is known by itself."""
DRAWS = 4096
_SETTLING = 3  # calls at the start of a load, which find what is no state of it
_TRIES = 40
_STEP = 0.7
_LEAST = 1e-6  # seconds
T = TypeVar("T")


@dataclass(frozen=True)
class Trace:
    """The calls of one load."""

    rate: float
    """Calls that were due in a second."""
    calls: Array
    """When each was due and when it ended, in seconds, [calls, 2], by when they were due."""
    open: bool = True
    """Whether calls came at random, and not as soon as others were answered."""

    @property
    def latencies(self) -> Array:
        """Seconds from when each call was due until it ended."""
        array: Array = self.calls[:, 1] - self.calls[:, 0]
        return array

    @property
    def throughput(self) -> float:
        """Answers in a second."""
        due, done = self.calls[:, 0], self.calls[:, 1]
        return len(due) / float(done.max() - due.min())

    def p99(self) -> float:
        """Return the latency that 99 of 100 calls are within, in seconds."""
        return float(np.percentile(self.latencies, 99))


@dataclass(frozen=True)
class Order:
    """How a server takes its calls."""

    slots: int
    """So many at the same time."""
    overtaking: bool = False
    """Whether one may end before another that came first: where their services differ much."""


@dataclass(frozen=True)
class Services:
    """The services of a trace, before the front end's time is known."""

    rate: float
    at: Array
    """When each call was due, in seconds from the first one on."""
    seconds: Array
    arrivals: Array
    """How many other calls came during each."""
    states: Array

    @classmethod
    def of(cls, trace: Trace, slots: int, overtaking: bool = False) -> "Services":
        """Find them, for a server of so many places.

        Unless a call may overtake another one, they are taken to end in the order in which they
        came, whatever the threads say that report it; then what one gets more of a core than
        another, which it takes from that one, is not told for a spread.
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
        """Return the services without what other calls lengthened them by."""
        array: Array = np.maximum(self.seconds - front_end * self.arrivals, _LEAST)
        return array


def state_of(array: Array, rested: Array) -> Array:
    """Return the number of the state of calls that find so many others, or a server at rest."""
    idle = np.searchsorted(RESTS, rested, side="right") - 1
    busy = len(RESTS) + np.searchsorted(QUEUES, array, side="right") - 1
    return np.where(array == 0, idle, busy)


def front_end_of(services: Sequence[Services]) -> float:
    """Return by how many seconds a call that comes lengthens those in service.

    It is the slope of services over arrivals during them, within each state, less what comes of
    longer services seeing more arrivals: of services whose own variance is v, calls at a rate r
    that lengthen them by f each have the covariance r v / (1 - r f) with them.
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
class ServiceCourse:
    """The services of one load, by state, in the order in which they were.

    A machine that is shared is slower for a while, and quicker for another: services that are drawn
    one by one would know nothing of that.
    """

    load: float
    """As a share of the capacity; 1 where callers sent the next call as soon as one was
    answered."""
    services: Sequence[Array]
    """Of each state, in seconds."""
    at: Sequence[Array] | None = None
    """When each was, in seconds from the start; None: that is not known."""

    @classmethod
    def of(cls, load: float, services: Services, front_end: float) -> "ServiceCourse":
        """Sort services by their states."""
        own = services.without(front_end)
        chosen = [services.states == state for state in range(STATES)]
        return cls(load, [own[item] for item in chosen], [services.at[item] for item in chosen])

    @cached_property
    def seconds(self) -> float:
        """How long it took."""
        return max((float(item[-1]) for item in self.at or () if len(item)), default=0.0)

    @cached_property
    def lists(self) -> tuple[list[list[float]], list[list[float]]]:
        """When each service was, and the services, of each state."""
        return [item.tolist() for item in self.at or ()], [
            service.tolist() for service in self.services
        ]


@dataclass(frozen=True)
class ServiceTimes:
    """What is known of one replica's services."""

    slots: int
    """Calls that it computes at the same time."""
    capacity: float
    """Calls a second that it answers where it never waits for one."""
    front_end: float
    """By how many seconds a call that comes lengthens those in service."""
    courses: Sequence[ServiceCourse]

    @classmethod
    def of(
        cls, traces: Sequence[Trace], order: Order, capacity: float, front_end: float
    ) -> "ServiceTimes":
        """Find them in traces of one server."""
        courses = []
        for trace in traces:
            load = round(min(trace.rate / capacity, 1.0), 2) if trace.open else 1.0
            services = Services.of(trace, order.slots, order.overtaking)
            courses.append(ServiceCourse.of(load, services, front_end))
        return cls(order.slots, capacity, front_end, courses)

    def near(self, load: float) -> tuple[Sequence[ServiceCourse], Sequence[ServiceCourse], float]:
        """Return the courses of the two loads around one, and which share the second ones have."""
        (low, below), (high, above) = _around(self.by_load, load)
        return below, above, _share(low, high, load)

    def at(self, load: float) -> list[list[float]]:
        """Return for each state what its service may be at a load, so many draws of it.

        Between two loads that were measured, draws are of both, the more the nearer. A state that
        was not seen there takes what was seen of it elsewhere, or of the nearest one.
        """
        return [self._draws(state, load).tolist() for state in range(STATES)]

    @cached_property
    def by_load(self) -> Sequence[tuple[float, Sequence[ServiceCourse]]]:
        """The courses of each load, from the least."""
        loads = sorted({course.load for course in self.courses})
        return [
            (load, [course for course in self.courses if course.load == load]) for load in loads
        ]

    @cached_property
    def _rungs(self) -> Sequence[tuple[float, Sequence[Array]]]:
        """By load, from the least: the services of each state."""
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
        """For each state, those that may stand for it: of an idle server, or of a busy one."""
        idle, busy = list(range(len(RESTS))), list(range(len(RESTS), STATES))
        return [
            sorted(idle if state in idle else busy, key=lambda other: abs(other - state))
            for state in range(STATES)
        ]


def _around(known: Sequence[tuple[float, T]], load: float) -> tuple[tuple[float, T], ...]:
    """Return what lies below a load and above it, or one end twice."""
    above = next((n for n, (rung, _) in enumerate(known) if rung >= load), len(known) - 1)
    below = above if known[above][0] <= load else max(0, above - 1)
    return known[below], known[above]


def _share(low: float, high: float, load: float) -> float:
    """Return how much the upper one of two loads counts for one between them."""
    return min(1.0, max(0.0, (load - low) / (high - low))) if high > low else 0.0


def _spread(values: Array, count: int) -> Array:
    """Return so many values that are spread like these: their mean stays, unlike that of a draw."""
    places = (np.arange(count) + 0.5) * len(values) / max(count, 1)
    array: Array = np.sort(values)[places.astype(int)]
    return array
