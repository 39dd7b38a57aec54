"""Calls that arrive at random before one replica or several, each with a queue of its own."""

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
    ServiceCourse,
    ServiceTimes,
)
from deploykit.transforms.ir.tensors import Array

CALLS = 60_000
"""Calls that are simulated."""
_STARTING = 0.05  # of them, which find queues that are not filled yet
_NOTHING: tuple[list[list[float]], list[list[float]]] = [[]] * STATES, [[]] * STATES


def latencies(times: ServiceTimes, rate: float, seed: int, replicas: int = 1) -> Array:
    """Return simulated latencies in seconds, of calls that arrive at a rate (Poisson).

    With several replicas, `rate` is that of all together, and each call goes to one that has the
    fewest calls: that is what a balancer which sees every call can do. One replica is what is left
    to each where calls are dealt out at random: its arrivals are Poisson again.
    """
    due = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, CALLS))
    return answered(times, rate, due, seed, replicas)[int(_STARTING * CALLS) :]


def answered(times: ServiceTimes, rate: float, due: Array, seed: int, replicas: int = 1) -> Array:
    """Return simulated latencies in seconds of calls that are due at these seconds."""
    load = rate / replicas / times.capacity
    draws = times.at(load)
    machines = [Machine(times, load, draws, seed + 1 + number) for number in range(replicas)]
    crowd = Crowd([Replica(machine) for machine in machines], times.slots, times.front_end)
    return np.asarray(crowd.ends(due.tolist())) - due


class Machine:
    """Services as one after another was, of courses that follow each other at random."""

    def __init__(
        self, times: ServiceTimes, load: float, draws: Sequence[Sequence[float]], seed: int
    ) -> None:
        """Begin; `draws` has the services of each state, for where a course has none left."""
        self._draws, self._random = draws, random.Random(seed)
        below, above, self._above = times.near(load)
        self._decks = [
            [course for course in courses if course.seconds] for courses in (below, above)
        ]
        self._dealt: tuple[list[ServiceCourse], ...] = ([], [])
        self._due = self._random.random()  # a course of the upper load is, from 1 on
        self._end = float("-inf")

    def service(self, state: int, now: float) -> float:
        """Return the service of a call that comes now."""
        if now >= self._end:
            self._begin(now)
        at, services = self._at[state], self._services[state]
        place = max(self._next[state], bisect.bisect_left(at, now - self._start))
        if place >= len(at):
            return float(self._draws[state][int(DRAWS * self._random.random())])
        self._next[state] = place + 1
        return services[place]

    def _begin(self, now: float) -> None:
        """Deal the next course; all of a load have their turn before one comes again."""
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
    """Replicas that calls come to."""

    def __init__(self, replicas: "Sequence[Replica]", slots: int, front_end: float) -> None:
        """Begin; each replica computes so many calls at once."""
        self._replicas, self._slots, self._front_end = list(replicas), slots, front_end

    def ends(self, due: Sequence[float]) -> list[float]:
        """Return when each call ends."""
        done = [0.0] * len(due)
        rests: list[float] = RESTS.tolist()
        queues: list[int] = QUEUES.tolist()
        replicas, count = self._replicas, len(self._replicas)
        for number, now in enumerate(due):
            for item in replicas:
                item.go_on(now, done)
            start = number % count  # of equals, each has its turn
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
    """The calls of one replica: what is computed, and what waits in its order."""

    __slots__ = ("last", "machine", "running", "shift", "waiting")

    def __init__(self, machine: Machine) -> None:
        """Begin idle."""
        self.machine = machine
        self.running: list[tuple[float, int]] = []
        """When each ends, less `shift`; a heap."""
        self.waiting: deque[tuple[float, int]] = deque()
        self.shift = 0.0
        """By how much calls that came have put off the ends of all that is computed."""
        self.last = float("-inf")

    def calls(self) -> int:
        """Return how many calls it has."""
        return len(self.running) + len(self.waiting)

    def go_on(self, now: float, done: list[float]) -> None:
        """Compute until a moment; write down when calls end."""
        running = self.running
        while running and running[0][0] + self.shift <= now:
            end, number = heapq.heappop(running)
            self.last = done[number] = end + self.shift
            if self.waiting:
                service, number = self.waiting.popleft()
                heapq.heappush(running, (self.last + service - self.shift, number))
