"""What a server is asked for, and when that tells nothing."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from deploykit.client.server_load import Generators, Load
from deploykit.planning import measuring
from deploykit.planning.measuring import (
    ROUNDS,
    RUNGS,
    SustainedLoads,
    _check_one_queue,
    at_random,
    held,
    measured_of,
    order_of,
    slots_of,
)
from deploykit.planning.service_times import Order, Trace
from deploykit.planning.sizing import Forecast
from deploykit.serving.client.client import predict_request
from deploykit.serving.client.endpoint import Connection, Endpoint
from deploykit.serving.client.load_generator import LoadStep
from deploykit.transforms.common.errors import VerificationError
from tests.deploykit.planning.servers import gamma, poisson, sharing, traced
from tests.serving.official import Official
from tests.support import Containing, raises


def load(rate: float = 0.0, failed: int = 0, late: int = 0, limited: bool = False) -> Load:
    statuses = {"OK": 1000 - failed, "RESOURCE_EXHAUSTED": failed}
    callers = 0 if rate else 4
    return Load(callers, rate, 5.0, statuses, 200.0, {}, {}, 0.5, late, limited)


def rounds(bad: Load, count: int) -> list[list[Load]]:
    """Return three loads of each round; in so many, the second one is bad."""
    first, second, third = (load(rate=rate) for rate in (100.0, 200.0, 300.0))
    return [[first, bad if number < count else second, third] for number in range(ROUNDS)]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (load(rate=200.0, failed=500), "500 of 1000 requests failed at 200 requests/s"),
        (load(rate=200.0, late=300), "generator was the limit at 200 requests/s"),
        (load(limited=True), "generator was the limit at 4 clients"),
    ],
)
def test_what_goes_wrong_in_most_rounds_is_said(bad, says):
    """Without the loads that are needed there is no plan, else what lies below is taken."""
    assert held(rounds(bad, ROUNDS // 2), 2) == SustainedLoads(3, "")
    found = held(rounds(bad, ROUNDS // 2 + 1), 1)
    assert found.count == 1
    assert says in found.why
    with raises(VerificationError, "plan-impossible"):
        held(rounds(bad, ROUNDS // 2 + 1), 2)


def test_some_late_calls_of_a_shared_machine_are_taken():
    assert held(rounds(load(rate=200.0, late=90), ROUNDS), 2) == SustainedLoads(3, "")


@pytest.mark.parametrize("refused", range(len(RUNGS)))
def test_a_replica_is_given_what_it_held(refused):
    """Where a server refuses calls from a load on, that is no load for a replica."""
    measured = [a_round(refused, seed) for seed in range(ROUNDS)]
    if not refused:
        with raises(VerificationError, "plan-impossible", reason=Containing("at 20 requests/s")):
            measured_of(measured, "a server")
        return
    found = measured_of(measured, "a server")
    assert found.most_load == RUNGS[refused - 1]
    assert f"requests failed at {100 * RUNGS[refused]:g} requests/s" in found.limit
    assert [len(times.courses) for times in found.rounds] == [1 + refused] * ROUNDS
    forecast = Forecast(found)
    assert forecast.p99(found.most_load * found.capacity) is not None
    assert forecast.p99(1.01 * found.most_load * found.capacity) is None
    assert max(rate for rate, _ in forecast.curve) <= found.most_load * found.capacity + 1e-6


def a_round(refused: int, seed: int) -> list[tuple[Load, Trace]]:
    """Return a round at a server of one place and 100 calls/s, that refuses from a load on."""
    due = np.arange(0, 2, 0.01)
    callers = Trace(100.0, np.stack([due, due + 0.01], axis=1), open=False)
    found = [(replace(load(), throughput=100.0), callers)] * 2
    for number, share in enumerate(RUNGS):
        rate = 100.0 * share
        trace = traced(poisson(rate, 200, seed), np.full(200, 0.01), rate=rate)
        found.append((load(rate, failed=100 if number >= refused else 0), trace))
    return found


@pytest.mark.parametrize(
    ("unloaded_ms", "capacity", "slots"),
    [(10, 100, 1), (10, 130, 1), (10, 190, 2), (10, 215, 2), (3, 1200, 3), (10, 5, 1)],
)
def test_calls_at_once(unloaded_ms, capacity, slots):
    assert slots_of(unloaded_ms / 1e3, capacity) == slots


def test_calls_overtake_where_lone_ones_differ():
    even, varied = np.linspace(1, 1.3, 100), np.geomspace(1, 10, 100)
    assert not order_of(2, [even]).overtaking
    assert order_of(2, [varied]).overtaking
    assert not order_of(2, [even, 2 * even, 3 * even, varied]).overtaking
    assert not order_of(1, [varied]).overtaking


@pytest.mark.parametrize(("cores", "slots"), [(1.0, 1), (1.3, 1), (2.0, 2)])
@pytest.mark.parametrize("spread", [0.3, 0.6])
def test_two_places_that_share_a_core_are_foreseen_as_one(cores, slots, spread):
    """As one of which calls overtake each other, p99 would come out up to 1.7 times too high."""
    rate = 100 * cores

    def shared(share: float, seed: int, calls: int = 2000) -> Trace:
        due = poisson(share * rate, calls, seed)
        return sharing(due, gamma(0.01, spread, calls, 1000 + seed), 2, cores, share * rate)

    due = np.arange(0, 5, 0.05)
    lone = Trace(20.0, np.stack([due, due + gamma(0.01, spread, len(due))], axis=1), open=False)
    callers = Trace(rate, sharing(due, gamma(0.01, spread, len(due)), 2, cores, rate).calls, False)
    found = measured_of(
        [
            [(load(), lone), (replace(load(), throughput=rate), callers),
             *((load(share * rate), shared(share, 10 * seed + number))
               for number, share in enumerate(RUNGS))]
            for seed in range(ROUNDS)
        ],
        "a server",
    )  # fmt: skip
    assert found.order.slots == slots
    tried = shared(0.7, 99, 6000)
    foreseen = Forecast(found).replayed(tried.rate, tried.calls[:, 0]).ms
    assert foreseen == pytest.approx(1e3 * tried.p99(), rel=0.25)


LONE = Trace(50.0, np.stack([np.arange(0, 2, 0.02), np.arange(0, 2, 0.02) + 0.01], axis=1))


def dealt(load: float, queues: int, places: int, spread: float) -> list[Trace]:
    """Return rounds of one load on so many queues of places, to which calls go at random."""
    found = []
    for number in range(ROUNDS):
        due = poisson(load * queues * places / 0.01, 2000, number)
        services = 0.01 * np.random.default_rng(number).uniform(1 - spread, 1 + spread, len(due))
        to = np.random.default_rng(number).integers(0, queues, len(due))
        parts = [traced(due[to == n], services[to == n], places).calls for n in range(queues)]
        calls = np.concatenate(parts)
        found.append(Trace(1 / 0.01, calls[np.argsort(calls[:, 0], kind="stable")]))
    return found


@pytest.mark.parametrize("load", [0.6, 0.8])
@pytest.mark.parametrize("spread", [0.0, 0.5])
@pytest.mark.parametrize("places", [2, 3])
def test_one_queue_of_several_places_is_taken(load, spread, places):
    _check_one_queue(Order(places), [LONE] * ROUNDS, dealt(load, 1, places, spread))


@pytest.mark.parametrize("queues", [2, 3])
@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_several_queues_are_refused(queues, spread):
    with raises(VerificationError, "plan-several-queues"):
        _check_one_queue(Order(queues), [LONE] * ROUNDS, dealt(0.8, queues, 1, spread))


def test_slow_models_have_longer_loads():
    assert at_random(5, 100.0, 0).seconds == 5
    assert at_random(5, 0.5, 0).seconds == measuring._SOME_CALLS / 0.5


@pytest.mark.slow
def test_a_trace_is_when_calls_were_due_and_ended():
    with closing(Official()) as official:
        endpoint = Endpoint(f"127.0.0.1:{official.listen()}", Connection(retries=0))
        sent = predict_request("echo", {"x": np.ones((1, 2), np.float32)}).SerializeToString()
        with Generators(endpoint, [sent], 2) as generators:
            for step in (LoadStep(0.5, rate=80.0, seed=3), LoadStep(0.5, callers=3)):
                found, calls = generators.trace(step, lambda line, count: None)
                assert len(calls) == found.statuses["OK"] > 10
                assert (np.diff(calls[:, 0]) >= 0).all()
                latencies = 1e3 * (calls[:, 1] - calls[:, 0])
                assert latencies.min() > 0
                assert np.mean(latencies) == pytest.approx(found.latency_ms["mean"], rel=0.05)
            assert not generators._taken(LoadStep(0.2, callers=2), lambda *_: None)[0].calls
