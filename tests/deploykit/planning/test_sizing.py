"""So many replicas, and no more than are needed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.planning.measuring import MAX_LOAD
from deploykit.planning.plan_options import LOSSES, NOTHING, REPLICA, ZONE, PlanOptions
from deploykit.planning.sizing import LOADS, Forecast, _surviving, left, sized
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import Error
from tests.deploykit.planning.servers import exponential, measured_of, times_of

THEORY = Forecast(measured_of(times_of(exponential(0.01))))


@pytest.fixture
def forecast() -> Forecast:
    """One place, 100 calls a second, exponential: p99 is ln(100) / (100 - rate)."""
    return THEORY


@pytest.mark.parametrize(("rate", "limit"), [(40.0, 80.0), (900.0, 300.0), (20_000.0, 120.0)])
def test_what_theory_says(forecast, rate, limit):
    bears = min(100 - math.log(100) / (limit / 1e3), 100 * MAX_LOAD)
    found = sized(forecast, PlanOptions(rate=rate, latency_limit=limit))
    assert found.bears == pytest.approx(bears, rel=0.08)
    assert found.replicas == pytest.approx(math.ceil(rate / bears), rel=0.1, abs=1)


@pytest.mark.parametrize("rate", [333.0, 5000.0])
def test_one_less_does_not_hold(forecast, rate):
    found = sized(forecast, PlanOptions(rate=rate, latency_limit=150))
    assert found.outcomes[0].holds
    less = sized(
        forecast, PlanOptions(rate=rate, latency_limit=150, replicas=(1, found.replicas - 1))
    )
    assert less.replicas == found.replicas - 1
    assert not less.outcomes[0].holds


def test_no_number_holds_where_a_lone_call_takes_longer(forecast):
    found = sized(forecast, PlanOptions(rate=100, latency_limit=30))
    assert (found.bears, found.replicas) == (0, 1000)
    assert set(found.needed.values()) == {None}


@pytest.mark.parametrize("tolerate", LOSSES)
def test_what_has_to_survive_does(forecast, tolerate):
    found = sized(forecast, PlanOptions(rate=2000, latency_limit=150, tolerate=tolerate))
    by_loss = {each.lost: each for each in found.outcomes}
    assert by_loss[tolerate].holds
    assert found.replicas == found.needed[tolerate]
    assert found.needed[NOTHING] < found.needed[REPLICA] < found.needed[ZONE]


def test_losses(forecast):
    found = sized(forecast, PlanOptions(rate=60, latency_limit=300, replicas=(1, 1)))
    nothing, replica, zone = found.outcomes
    assert nothing.replicas == 1
    assert (replica.replicas, zone.replicas, replica.p99) == (0, 0, None)
    assert document(replica)["load"] is None
    overloaded = sized(
        forecast, PlanOptions(rate=250, latency_limit=300, replicas=(3, 3))
    ).outcomes[1]
    assert (overloaded.replicas, overloaded.p99, overloaded.holds) == (2, None, False)
    assert overloaded.load == pytest.approx(1.25, rel=0.01)


@pytest.mark.slow
def test_the_range_has_to_hold_and_not_its_middle():
    """A round in which the server was slower counts."""
    times = times_of(exponential(0.01))
    slow = times_of(exponential(0.012))
    calm = Forecast(measured_of(times, times))
    varied = Forecast(measured_of(times, times, slow))
    how = PlanOptions(rate=1000, latency_limit=150)
    assert sized(varied, how).replicas > sized(calm, how).replicas
    assert varied.p99(50.0).high_ms > varied.p99(50.0).ms


def test_a_single_odd_round_of_five_does_not():
    times, odd = times_of(exponential(0.01)), times_of(exponential(0.05))
    found = Forecast(measured_of(times, times, times, times, odd))
    assert found.p99(50.0).high_ms < 1.05 * found.p99(50.0).ms


def test_the_curve_rises(forecast):
    assert len(forecast.curve) == len(LOADS)
    values = [each.ms for _, each in forecast.curve]
    assert values == sorted(values)
    assert forecast.p99(0.95 * forecast.measured.capacity) is None
    assert forecast.together(0.95 * forecast.measured.capacity, 3) is None


def test_the_cost(forecast):
    found = sized(forecast, PlanOptions(rate=1000, latency_limit=150, price=0.5))
    assert found.cost is not None
    assert found.cost.hour == found.replicas * 0.5
    assert found.cost.month == 730 * found.cost.hour
    assert found.cost.million_calls == pytest.approx(found.cost.hour / 3.6)


@given(st.integers(1, 2000), st.integers(1, 12))
def test_the_fewest_that_survive(least, zones):
    for lost in LOSSES:
        found = _surviving(least, lost, zones)
        if found is None:
            assert (lost, zones) == (ZONE, 1)
            continue
        assert left(found, lost, zones) >= least
        assert left(found - 1, lost, zones) < least


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rate": None}, "needs a rate"),
        ({"latency_limit": None}, "needs a latency-limit"),
        ({"rate": 0}, "above 0"),
        ({"latency_limit": float("nan")}, "above 0"),
        ({"replicas": (5, 4)}, "5..4"),
        ({"replicas": (0, 4)}, "0..4"),
        ({"tolerate": "region"}, "nothing, replica, zone"),
        ({"zones": 0}, "--zones"),
    ],
)
def test_what_cannot_be_planned(wrong, says):
    with pytest.raises(Error, match=says):
        PlanOptions(**{"rate": 1.0, "latency_limit": 1.0, **wrong}).check()
