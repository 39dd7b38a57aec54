"""Loads are shared out, summed up and searched as they should."""

import pytest

from deploykit.client.server_load import Load, _shares, search
from deploykit.rendering import serving
from deploykit.serving.client.load_generator import LoadStep
from deploykit.transforms.common.documents import document
from tests.support import Containing


def load(step: LoadStep, p99: float, limited: bool = False, failed: int = 0) -> Load:
    rate = step.rate or 100.0
    statuses = {"OK": 100, "RESOURCE_EXHAUSTED": failed} if failed else {"OK": 100}
    latency = {"p50": 1.0, "p90": 2.0, "p99": p99, "p99.9": p99, "max": p99, "mean": 1.0}
    return Load(step.callers, step.rate, step.seconds, statuses, rate, latency, {}, 0.5, 0, limited)


class Server:
    """Eight callers reach 100 calls a second; `latency` says what a rate brings."""

    def __init__(self, latency, **more):
        self.latency, self.more, self.steps = latency, more, []

    def measure(self, step, advance):
        self.steps.append(step)
        return load(step, self.latency(step.rate), **self.more)


@pytest.mark.parametrize("knee", [10.0, 80.0, 120.0])
def test_the_search_finds_the_knee(knee):
    server = Server(lambda rate: 5.0 if rate <= knee else 500.0)
    loads, highest = search(server, 1.0, 20.0, lambda name, count: None)
    assert knee * 0.9 <= highest <= knee
    assert len(loads) == len(server.steps) <= 8
    assert server.steps[0].callers == 8
    assert len({step.seed for step in server.steps[1:]}) == len(server.steps) - 1


def test_a_rate_that_is_not_answered_does_not_hold():
    assert search(Server(lambda rate: 1.0, failed=1), 1.0, 20.0, lambda n, c: None)[1] == 0
    assert search(Server(lambda rate: 1.0), 1.0, 20.0, lambda n, c: None)[1] > 100


def test_a_load_is_shared_out():
    assert [s.callers for s in _shares(LoadStep(1, callers=5), 2)] == [3, 2]
    assert [s.callers for s in _shares(LoadStep(1, callers=1), 3)] == [1]
    open_loop = _shares(LoadStep(1, rate=90, seed=2), 3)
    assert [s.rate for s in open_loop] == [30, 30, 30]
    later = _shares(LoadStep(1, rate=90, seed=3), 3)
    assert len({each.seed for each in [*open_loop, *later]}) == 6


def test_the_generators_limit_is_said():
    fine = load(LoadStep(1, callers=2), 5.0)
    limited = load(LoadStep(1, rate=900), 5.0, limited=True)

    def lines(*loads, limit=None, rate=None):
        documents = [document(each) for each in loads]
        found = {"loads": documents, "latency_limit_ms": limit, "highest_rate": rate}
        return list(serving.load_lines(found))

    assert len(lines(fine)) == 1
    table, note = lines(fine, limited)
    assert "900 requests/s" in note
    assert [row[0] for row in table.rows] == ["2 clients", "900 requests/s"]
    failed = load(LoadStep(1, callers=2), 5.0, failed=3)
    assert lines(failed)[1:] == [Containing("2 clients", "3 RESOURCE_EXHAUSTED")]
    (highest,) = lines(fine, limit=20, rate=123.4)[1:]
    assert highest == Containing("99 %", "20 ms", "123.4 requests/s")
