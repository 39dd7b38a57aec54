"""Servers of which all is known, for tests: what calls to them bring, told by another way."""

import heapq

import numpy as np

from deploykit.planning.measuring import Measured
from deploykit.planning.service_times import (
    RESTS,
    STATES,
    Order,
    ServiceTimes,
    ServiceTimesOfLoad,
    Trace,
)


def poisson(rate: float, calls: int, seed: int = 0):
    """Return when calls are due."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, calls))


def traced(due, services, slots: int = 1, front_end: float = 0.0, rate: float = 0.0) -> Trace:
    """Serve calls in their order; a call that comes makes those in service longer.

    It goes from event to event, where the simulation of a plan shifts a heap.
    """
    done = np.empty(len(due))
    running: dict[int, float] = {}
    waiting: list[int] = []
    coming = 0
    while coming < len(due) or running:
        arrival = due[coming] if coming < len(due) else np.inf
        first = min(running, key=running.__getitem__) if running else None
        if first is not None and running[first] <= arrival:
            now = done[first] = running.pop(first)
            if waiting:
                begun = waiting.pop(0)
                running[begun] = now + services[begun]
            continue
        for each in running:
            running[each] += front_end
        if len(running) < slots:
            running[coming] = arrival + services[coming]
        else:
            waiting.append(coming)
        coming += 1
    return Trace(rate or len(due) / due[-1], np.stack([due, done], axis=1))


def sharing(due, work, places: int, cores: float, rate: float) -> Trace:
    """Serve calls in their order, of which several share cores: none has more than one."""
    done = np.empty(len(due))
    running: dict[int, float] = {}
    coming, begun, now = 0, 0, 0.0
    while coming < len(due) or running:
        speed = min(1.0, cores / max(len(running), 1))
        first = min(running, key=running.__getitem__) if running else None
        end = np.inf if first is None else now + running[first] / speed
        arrival = due[coming] if coming < len(due) else np.inf
        since, now = now, min(end, arrival)
        for each in running:
            running[each] -= (now - since) * speed
        if first is not None and end <= arrival:
            done[first] = now
            del running[first]
        else:
            coming += 1
        if begun < coming and len(running) < places:
            running[begun] = work[begun]
            begun += 1
    return Trace(rate, np.stack([due, done], axis=1))


def simple(due, services, slots: int):
    """Return when calls end, by the recursion of Kiefer and Wolfowitz."""
    free = [0.0] * slots
    done = []
    for at, service in zip(due, services, strict=True):
        done.append(max(at, heapq.heappop(free)) + service)
        heapq.heappush(free, done[-1])
    return np.array(done)


def times_of(services, slots: int = 1, first=None, front_end: float = 0.0) -> ServiceTimes:
    """Return service times that are the same at every load; `first` are those of idle servers."""
    services = np.resize(np.asarray(services, float), max(len(services), 100))
    idle = services if first is None else np.resize(np.asarray(first, float), 100)
    states = [idle if state < len(RESTS) else services for state in range(STATES)]
    capacity = slots / float(services.mean() + slots * front_end)
    return ServiceTimes(slots, capacity, front_end, [ServiceTimesOfLoad(1.0, states)])


def measured_of(*times: ServiceTimes, unloaded_ms: float = 10.0) -> Measured:
    """Return what a measurement would tell that found these times in its rounds."""
    first = times[0]
    return Measured((unloaded_ms, unloaded_ms), Order(first.slots), first.capacity, first.front_end,
                    list(times), "a server")  # fmt: skip


def gamma(mean: float, spread: float, count: int, seed: int = 1):
    """Return draws of a gamma distribution, whose deviation is so many times its mean."""
    shape = 1 / spread**2
    return np.random.default_rng(seed).gamma(shape, mean / shape, count)


def exponential(mean: float, count: int = 20_000):
    """Return an exponential distribution, as evenly spread quantiles."""
    return -mean * np.log1p(-(np.arange(count) + 0.5) / count)
