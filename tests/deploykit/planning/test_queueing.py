"""Simulated queues are those of theory, where there is one."""

import math

import numpy as np
import pytest

from deploykit.planning.service_times import STATES, ServiceTimes, ServiceTimesOfLoad
from deploykit.planning.sizing import Crowd, Replica, answered, latencies
from tests.deploykit.planning.servers import exponential, poisson, simple, times_of, traced


class Given:
    """Services of calls in the order in which these come."""

    def __init__(self, services) -> None:
        self._services = iter(services.tolist())

    def service(self, state: int, now: float) -> float:
        return next(self._services)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_exponential_services_at_one_place(load):
    """M/M/1: latencies are exponential, with the mean 1 / (capacity - rate)."""
    found = latencies(times_of(exponential(1.0)), load, 1)
    assert np.percentile(found, 99) == pytest.approx(math.log(100) / (1 - load), rel=0.15)
    assert np.mean(found) == pytest.approx(1 / (1 - load), rel=0.08)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_constant_services_at_one_place(load):
    """M/D/1, by Pollaczek and Khinchine."""
    found = latencies(times_of([1.0]), load, 2)
    assert np.mean(found) == pytest.approx(1 + load / (2 * (1 - load)), rel=0.05)


@pytest.mark.parametrize(("slots", "load"), [(2, 0.7), (4, 0.8), (8, 0.85)])
def test_exponential_services_at_several_places(slots, load):
    """M/M/c, by Erlang's C."""
    offered = slots * load
    sums = sum(offered**k / math.factorial(k) for k in range(slots))
    last = offered**slots / math.factorial(slots) / (1 - load)
    waits = last / (sums + last) / (slots * (1 - load))
    found = latencies(times_of(exponential(1.0), slots), slots * load, 3)
    assert np.mean(found) == pytest.approx(1 + waits, rel=0.06)


def test_a_server_that_rested_is_slower():
    """The share of calls that find it idle, where those take twice as long (Welch, 1964)."""
    load, first = 0.6, 2.0
    found = latencies(times_of([1.0], first=[first]), load, 4)
    idle = np.mean(np.abs(found - first) < 1e-9)
    assert idle == pytest.approx((1 - load) / (1 - load + first * load), rel=0.03)
    assert np.mean(np.abs(latencies(times_of([1.0]), load, 4) - 1) < 1e-9) == pytest.approx(
        1 - load, rel=0.03
    )


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("front_end", [0.0, 0.2])
def test_calls_end_when_another_way_says_so(slots, front_end):
    """The heap that is shifted, beside a loop from event to event, call by call."""
    random = np.random.default_rng(slots)
    due, services = poisson(0.5 * slots, 2000), random.gamma(4, 0.25, 2000)
    ends = Crowd([Replica(Given(services))], slots, front_end).ends(due.tolist())
    expected = traced(due, services, slots, front_end).calls[:, 1]
    np.testing.assert_allclose(ends, expected, rtol=1e-9)
    if not front_end:
        np.testing.assert_allclose(ends, simple(due, services, slots), rtol=1e-9)


def test_the_least_busy_is_better_than_chance_and_no_better_than_one_queue():
    times, load, count = times_of(exponential(1.0)), 0.8, 4
    alone = np.percentile(latencies(times, load, 5), 99)
    together = np.percentile(latencies(times, count * load, 5, count), 99)
    one_queue = np.percentile(latencies(times_of(exponential(1.0), count), count * load, 5), 99)
    assert one_queue * 0.95 < together < alone / 2


def test_given_arrivals_are_kept():
    due = np.array([0.0, 10.0, 10.1, 30.0])
    assert answered(times_of([1.0]), 0.1, due, 0) == pytest.approx([1, 1, 1.9, 1])


def test_slow_times_come_together_as_they_were():
    """Half of all seconds calls take twice as long: p99 is worse than if they were mixed."""
    due = poisson(60, 6000)
    seconds = np.where(due % 2 < 1, 0.016, 0.008)
    seen = np.percentile(traced(due, seconds).latencies, 99)
    at = [due] * STATES
    in_time = ServiceTimes(1, 80.0, 0.0, [ServiceTimesOfLoad(0.75, [seconds] * STATES, at)])
    mixed = ServiceTimes(1, 80.0, 0.0, [ServiceTimesOfLoad(0.75, [seconds] * STATES)])
    assert np.percentile(answered(in_time, 60, due, 0), 99) == pytest.approx(seen, rel=0.05)
    assert np.percentile(answered(mixed, 60, due, 0), 99) < 0.6 * seen


def test_between_two_loads_courses_of_both_come():
    def course(load: float, seconds: float) -> ServiceTimesOfLoad:
        at = np.arange(0.0, 10.0, 0.1)
        return ServiceTimesOfLoad(load, [np.full(100, seconds)] * STATES, [at] * STATES)

    times = ServiceTimes(1, 10.0, 0.0, [course(0.2, 0.01), course(0.6, 0.02)])
    due = np.arange(0, 2000.0, 1.0)
    for load, share in ((0.1, 0.0), (0.2, 0.0), (0.3, 0.25), (0.5, 0.75), (0.6, 1.0), (0.9, 1.0)):
        found = answered(times, 10 * load, due, 1)
        assert np.mean(found > 0.015) == pytest.approx(share, abs=0.05)
