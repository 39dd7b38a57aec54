"""Simulation of random arrivals at one or several replicas, each with its own queue."""

import bisect
import heapq
import random
from collections import deque
from collections.abc import Sequence

import numpy as np

from deploykit.planning.service_times import (
    DRAWS,
    QUEUES,
    RESTS,
    STATES,
    ServiceTimes,
    ServiceTimesOfLoad,
)
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
