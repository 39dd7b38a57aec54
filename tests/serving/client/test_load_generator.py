"""The generator makes the load that it was asked for, and counts from when calls were due."""

import time

import numpy as np
import pytest

from deploykit.serving.client.client import predict_request
from deploykit.serving.client.endpoint import Connection, Endpoint
from deploykit.serving.client.load_generator import Generator, LoadStep


def taken(official, step: LoadStep, model: str = "echo", values=(1, 2), timeout: float = 20):
    endpoint = Endpoint(f"127.0.0.1:{official.listen()}", Connection(timeout=timeout, retries=0))
    requests = [predict_request(model, {"x": v}).SerializeToString() for v in values]
    generator = Generator(endpoint, requests)
    generator.start(step)
    while not (found := generator.so_far()).over:
        assert not found.answered
        time.sleep(0.05)
    return found


@pytest.mark.sampled
def test_callers_wait_for_their_answers(official):
    official.seconds = 0.05
    found = taken(official, LoadStep(0.5, callers=3))
    assert found.statuses["OK"] == len(official.calls) == found.answered.total()
    assert 3 <= len(official.calls) <= 3 * 10
    assert min(found.answered) >= 50_000
    assert found.failed.total() == 0
    assert found.late == 0


def test_requests_are_sent_in_turn(official):
    taken(official, LoadStep(0.2, callers=1))
    sent = [each.inputs["x"].tensor_content for each in official.requests[:4]]
    assert [int(np.frombuffer(each, np.int32)[0]) for each in sent] == [1, 2, 1, 2]


@pytest.mark.sampled
def test_calls_arrive_at_a_rate_whether_others_are_answered_or_not(official):
    """Each takes 0.3 s, so callers that wait could send but a few."""
    official.seconds = 0.3
    found = taken(official, LoadStep(1.0, rate=40, seed=1))
    assert 20 <= len(official.calls) <= 60
    assert found.statuses == {"OK": len(official.calls)}
    assert found.seconds >= 1


@pytest.mark.sampled
def test_arrivals_are_those_of_the_seed(official):
    import random

    gaps, due, count = random.Random(7), 0.0, -1
    while due < 0.5:
        due += gaps.expovariate(100)
        count += 1
    found = taken(official, LoadStep(0.5, rate=100, seed=7))
    assert found.statuses.total() == count


@pytest.mark.sampled
def test_latency_counts_from_when_a_call_was_due(official, monkeypatch):
    """The sender has no time for a while: the calls that were due meanwhile have waited."""
    sleep, slept = time.sleep, []

    def stall(seconds: float) -> None:
        if len(slept) == 5:
            sleep(0.4)
        slept.append(seconds)
        sleep(seconds)

    monkeypatch.setattr("deploykit.serving.client.load_generator.time.sleep", stall)
    found = taken(official, LoadStep(0.6, rate=50, seed=3))
    assert found.late >= 2
    assert max(found.answered) > 200_000


@pytest.mark.sampled
@pytest.mark.parametrize(
    "step", [LoadStep(0.3, callers=2), LoadStep(0.3, rate=30)], ids=["closed", "open"]
)
def test_what_fails_is_counted_by_status_and_timed_apart(official, step):
    found = taken(official, step, "full")
    assert set(found.statuses) == {"RESOURCE_EXHAUSTED"}
    assert found.statuses.total() == len(official.calls) == found.failed.total()
    assert found.answered.total() == 0


@pytest.mark.sampled
def test_an_unavailable_server_is_not_asked_again(official):
    found = taken(official, LoadStep(0.3, callers=1), "busy")
    assert found.statuses["UNAVAILABLE"] == 2


@pytest.mark.sampled
def test_a_deadline_ends_a_call(official):
    found = taken(official, LoadStep(0.2, callers=1), "sleepy", timeout=0.1)
    assert set(found.statuses) == {"DEADLINE_EXCEEDED"}
