"""A plan that is not true of its server is seen, and luck with arrivals is not taken for that."""

import numpy as np
import pytest

from deploykit.planning.from_results import BAR, TINY_BAR, bar_for, judged
from deploykit.planning.service_times import Trace
from deploykit.planning.sizing import Forecast
from deploykit.transforms.common.documents import document
from tests.deploykit.planning.servers import measured_of, poisson, times_of, traced

RUNS = 3


def runs(slower: float = 1.0, load: float = 0.7, calls: int = 700) -> list[Trace]:
    """Return runs of a server whose calls take 10 ms, or so many times that."""
    rate = 100 * load
    random = np.random.default_rng(7)
    return [
        traced(poisson(rate, calls, seed), slower * random.gamma(100, 1e-4, calls), rate=rate)
        for seed in range(RUNS)
    ]


@pytest.fixture(scope="module")
def forecast() -> Forecast:
    services = np.random.default_rng(3).gamma(100, 1e-4, 5000)
    return Forecast(measured_of(*[times_of(services)] * 5))


def test_a_true_plan_passes(forecast):
    found = judged(runs(), 0, forecast)
    assert found.passed
    assert found.calls == RUNS * 700
    assert found.ratio == pytest.approx(1, abs=0.1)
    for seen, each in zip(found.seen_ms, found.predicted, strict=True):
        assert each.ms == pytest.approx(seen, rel=0.15)


def test_luck_moves_p99_by_more_than_the_bar(forecast):
    """What the same arrivals are for: without them, so few calls would refuse a true plan."""
    seen = judged(runs(), 0, forecast).seen_ms
    assert max(seen) > BAR * min(seen)


@pytest.mark.parametrize("slower", [1.25, 1.35, 0.6])
def test_a_plan_of_another_server_fails(forecast, slower):
    found = judged(runs(slower), 0, forecast)
    assert not found.passed
    assert (found.ratio < 1) == (slower > 1)


def test_one_run_in_which_the_machine_was_busy_refuses_nothing(forecast):
    assert judged([*runs()[:2], *runs(2.0)[2:]], 0, forecast).passed


def test_calls_that_fail_do(forecast):
    assert judged(runs(), 10, forecast).passed
    assert not judged(runs(), 50, forecast).passed


def test_quick_calls_have_a_wider_bar():
    assert (bar_for(0.9), bar_for(3.0)) == (TINY_BAR, BAR)


def test_the_document(forecast):
    found = document(judged(runs(), 3, forecast))
    assert (found["failed"], found["passed"], len(found["runs"])) == (3, True, RUNS)
    assert found["p99_ms"] == sorted(each["p99_ms"] for each in found["runs"])[1]


def test_what_was_seen_may_become_what_is_known(forecast):
    """Then the server that got slower is foreseen as it is."""
    slow = runs(1.35)
    assert not judged(slow, 0, forecast).passed
    assert judged(slow, 0, Forecast(forecast.measured.with_rounds(slow))).passed
