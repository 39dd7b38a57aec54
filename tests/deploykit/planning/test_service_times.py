"""What is found in traces is what made them."""

import numpy as np
import pytest

from deploykit.planning.service_times import (
    QUEUES,
    RESTS,
    STATES,
    Order,
    Services,
    ServiceTimes,
    ServiceTimesOfLoad,
    Trace,
    front_end_of,
    state_of,
)
from deploykit.planning.sizing import answered
from tests.deploykit.planning.servers import gamma, poisson, times_of, traced

MS = 1e-3


def p99(seconds) -> float:
    return float(np.percentile(seconds, 99))


@pytest.mark.parametrize("slots", [1, 2])
def test_services_are_what_made_the_trace(slots):
    due, services = poisson(80 * slots, 3000), gamma(8 * MS, 0.2, 3000)
    found = Services.of(traced(due, services, slots), slots, overtaking=True)
    np.testing.assert_allclose(found.seconds, services[3:], rtol=1e-6)


def test_without_overtaking_the_work_is_the_same():
    due, services = poisson(160, 3000), gamma(8 * MS, 0.2, 3000)
    trace = traced(due, services, 2)
    in_order = Services.of(trace, 2).seconds
    assert in_order.sum() == pytest.approx(services.sum(), rel=0.01)
    assert (in_order >= 0).all()


@pytest.mark.parametrize("front_end", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("spread", [0.05, 0.3, 0.6])
def test_the_front_end_is_found(front_end, spread):
    """Also where longer services see more arrivals, which alone is no front end."""
    due, services = poisson(60, 20_000), gamma(8 * MS, spread, 20_000)
    trace = traced(due, services, 1, front_end * MS)
    found = front_end_of([Services.of(trace, 1)])
    assert found / MS == pytest.approx(front_end, abs=0.08)


def test_services_over_arrivals_alone_would_tell_a_front_end_that_is_not_there():
    """So that the correction is seen to be needed."""
    trace = traced(poisson(60, 20_000), gamma(8 * MS, 0.6, 20_000), 1)
    services = Services.of(trace, 1)
    slope = np.polyfit(services.arrivals, services.seconds, 1)[0]
    assert slope / MS > 1
    assert front_end_of([services]) / MS < 0.08


def test_states():
    found = state_of(np.array([0, 0, 0, 1, 3, 5, 50]), np.array([0, 3 * MS, 9, 0, 0, 0, 0]))
    rests, queues = len(RESTS), len(QUEUES)
    assert found.tolist() == [0, 3, rests - 1, rests, *[rests + queues - 1] * 3]


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("front_end", [0.0, 0.4])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_other_loads_are_foreseen(slots, front_end, spread):
    """A server is measured at light loads, and p99 at 80 % comes out, for the same arrivals."""
    capacity = slots / (8 * MS + slots * front_end * MS)

    def load(share: float, seed: int, calls: int = 6000) -> Trace:
        due = poisson(share * capacity, calls, seed)
        services = gamma(8 * MS, spread, calls, seed + 50)
        return traced(due, services, slots, front_end * MS, share * capacity)

    order = Order(slots, overtaking=spread > 0.3)
    light = [load(0.2, 1), load(0.4, 2), load(0.6, 3)]
    found = front_end_of([Services.of(each, slots, order.overtaking) for each in light])
    times = ServiceTimes.of(light, order, capacity, found)
    heavy = load(0.8, 4, 30_000)
    due = heavy.calls[:, 0]
    foreseen = answered(times, heavy.rate, due, 9)
    assert p99(foreseen) == pytest.approx(p99(heavy.latencies), rel=0.2)
    halved = times_of(gamma(4 * MS, spread, 6000), slots)
    assert p99(answered(halved, heavy.rate, due, 9)) < 0.6 * p99(heavy.latencies)


def test_between_two_loads_the_nearer_counts_more():
    def states(seconds: float):
        return [np.full(100, seconds)] * STATES

    times = ServiceTimes(
        1, 100.0, 0.0, [ServiceTimesOfLoad(0.2, states(1.0)), ServiceTimesOfLoad(0.6, states(2.0))]
    )
    means = [np.mean(times.at(load)[0]) for load in (0.1, 0.2, 0.3, 0.4, 0.6, 0.9)]
    assert means == pytest.approx([1, 1, 1.25, 1.5, 2, 2], abs=0.01)


def test_a_state_that_was_not_seen_takes_the_nearest():
    empty, known = np.empty(0), np.full(50, 3.0)
    states = [empty] * STATES
    states[2] = known
    states[len(RESTS)] = 2 * known
    times = ServiceTimes(1, 1.0, 0.0, [ServiceTimesOfLoad(0.5, states)])
    draws = times.at(0.5)
    assert {each[0] for each in draws[: len(RESTS)]} == {3.0}
    assert {each[0] for each in draws[len(RESTS) :]} == {6.0}
