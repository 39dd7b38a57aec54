"""Calls are made when they are due, and what waits is charged with its waiting.

The clock is made up, so that no test depends on what else the machine does.
"""

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from deploykit.benchmarking import scenario_load as stage
from deploykit.benchmarking.run_config import BenchmarkOptions, RunConfig
from deploykit.benchmarking.scenario_load import SEED, Played, Stage
from deploykit.benchmarking.scenario_runs import latencies_of
from deploykit.serving.client.load_generator import poisson
from deploykit.transforms.common.errors import GraphError

FAST = 1_000_000  # nanoseconds


class Clock:
    """Time passes where a call is computed or a thread waits, and nowhere else."""

    def __init__(self):
        self.now = 0

    def perf_counter_ns(self):
        return self.now

    process_time_ns = staticmethod(time.process_time_ns)


@pytest.fixture
def clock(monkeypatch):
    found = Clock()

    class Event(threading.Event):
        def wait(self, timeout=None):
            found.now += round(timeout * 1e9)
            return self.is_set()

    monkeypatch.setattr(stage, "time", found)
    monkeypatch.setattr(
        stage,
        "threading",
        SimpleNamespace(Event=Event, Thread=threading.Thread, Lock=threading.Lock),
    )
    return found


class MadeUpRunner:
    """A model whose calls take what they are told to."""

    def __init__(self, clock, takes, batches=1):
        self.job = SimpleNamespace(settings=RunConfig())
        self.batches = [()] * batches
        self.made = []
        self._clock, self._takes = clock, takes

    def compute(self, number):
        self.made.append(number)
        self._clock.now += self._takes(number)


def outcome(runner, timing) -> Played:
    load = Stage(runner, timing)
    while not (found := load.so_far()).over:
        time.sleep(0.01)
    return found


def server(clock, takes, rate=50.0, seconds=4.0) -> Played:
    timing = BenchmarkOptions(seconds, scenario="server", rate=rate)
    return outcome(MadeUpRunner(clock, takes), timing)


def test_calls_are_made_when_they_are_due(clock):
    found = server(clock, lambda number: FAST)
    expected = [int(each * 1e9) for each in poisson(50, 4, SEED)]
    assert [due for due, *_ in found.calls] == expected
    assert (found.done, found.left) == (len(expected), 0)
    for due, free, start, _ in found.calls:
        assert abs(start - max(due, free)) <= 1


def test_a_slow_call_is_charged_with_the_queue_that_it_makes(clock):
    """A second long, it holds up the fifty that are due meanwhile; each of them is fast itself."""
    found = server(clock, lambda number: 1_000_000_000 if number == 20 else FAST)
    latencies = latencies_of(found.calls)
    assert sum(each > 100 for each in latencies) >= 30
    assert np.percentile(latencies, 99) > 900
    computed = [(stop - start) / 1e6 for _, _, start, stop in found.calls]
    assert np.percentile(computed, 99) < 2


def test_what_waits_for_too_long_is_left(clock):
    """Each takes four times as long as there is, and they are computed for twice the time."""
    found = server(clock, lambda number: 80_000_000)
    assert 90 < found.done <= 8 / 0.08 + 1
    assert found.left == len(list(poisson(50, 4, SEED))) - found.done


def test_in_a_single_stream_one_call_follows_another(clock):
    runner = MadeUpRunner(clock, lambda number: 7 * FAST)
    found = outcome(runner, BenchmarkOptions(1.0, scenario="single"))
    assert found.done == 143  # the first that ends after a second
    assert {stop - due for due, _, _, stop in found.calls} == {7 * FAST}
    assert found.elapsed_ns == 143 * 7 * FAST


@pytest.mark.parametrize("seconds", [0.01, 0.1])
def test_offline_computes_all_samples_as_often_as_there_is_time(clock, seconds):
    runner = MadeUpRunner(clock, lambda number: 2 * FAST, batches=30)
    found = outcome(runner, BenchmarkOptions(seconds, scenario="offline"))
    assert found.done == (30 if seconds == 0.01 else 60)
    assert runner.made == list(range(found.done))


def test_several_threads_share_the_calls():
    """The first two wait for each other."""
    both = threading.Barrier(2, timeout=20)
    runner = MadeUpRunner(None, None)
    runner.job.settings = RunConfig(concurrency=2)
    runner.compute = lambda number: number < 2 and both.wait()
    found = outcome(runner, BenchmarkOptions(0.2, scenario="server", rate=100))
    assert found.done == len(list(poisson(100, 0.2, SEED))) >= 2


def test_what_fails_is_told_and_ends_it(clock):
    def fail(number):
        if number == 3:
            raise GraphError("planted")
        return FAST

    with pytest.raises(GraphError, match="planted"):
        server(clock, fail)


def test_a_load_that_is_stopped_keeps_what_it_found(clock):
    def takes(number):
        if number == 9:
            load.stop()
        return FAST

    runner = MadeUpRunner(clock, takes)
    begun = threading.Event()
    compute = runner.compute
    runner.compute = lambda number: begun.wait(20) and compute(number)
    load = Stage(runner, BenchmarkOptions(4.0, scenario="server", rate=50))
    begun.set()
    while not (found := load.so_far()).over:
        time.sleep(0.01)
    assert found.done == 10
