"""The rate counts from when all workers compute; what a lost one did is not counted twice."""

import pytest

from deploykit.batch_inference.infer_run import Pace
from deploykit.batch_inference.infer_task import PartDone, PartProgress
from deploykit.rendering.progress import Work
from tests.support import Containing, because


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class Silent:
    def moved(self, work):
        pass


@pytest.fixture
def clock():
    return Clock()


def pace(clock, rows=1000, workers=2):
    return Pace(Work("infer", ("compute",), Silent()), rows, 10, workers, clock=clock)


def told(rows, cpu_seconds=0.5, done=False, loading=False):
    part = PartDone(0, "f", rows, 1, "", "") if done else None
    return PartProgress(rows, cpu_seconds, part, loading)


def test_nothing_is_known_before_all_workers_compute(clock):
    found = pace(clock)
    assert found.rate is found.cpus is None
    found.take(told(10, 7.0, loading=True))
    clock.now += 5
    found.take(told(50))
    found.take(told(10, 7.0, loading=True))
    assert (found.done, found.rate, found.cpus) == (70, None, None)
    counts = {"rows": "1,000", "workers": "2 workers"}
    assert found.said == because("rows-done", done=70, rate="", cpus="", **counts)


def test_rate_and_cpus_are_of_all_workers(clock):
    found = pace(clock)
    for _ in range(2):
        clock.now += 3
        found.take(told(10, 7.0, loading=True))
    for _ in range(4):
        clock.now += 0.25
        found.take(told(20, 0.25))
        found.take(told(30, 0.125, done=True))
    assert found.rate == pytest.approx(200)
    assert found.cpus == pytest.approx(1.5)
    assert found.said == Containing("220", "1,000", "200/s", " 2 ", "1.50")
    assert found.seconds == pytest.approx(7)


def test_one_that_replaces_a_lost_worker_does_not_start_the_clock_anew(clock):
    found = pace(clock, workers=1)
    found.take(told(10, loading=True))
    clock.now += 1
    found.take(told(40))
    found.lost(50)
    assert (found.done, found.rate) == (0, None)
    clock.now += 1
    found.take(told(10, 6.0, loading=True))
    clock.now += 2
    found.take(told(40))
    assert found.done == 50
    assert found.rate == pytest.approx(40 / 4)


def test_the_time_that_is_left_is_said(clock):
    expected = []
    found = pace(clock, rows=100, workers=1)
    found.work.expect = lambda times: expected.append(times["compute"])
    found.take(told(10, loading=True))
    clock.now += 2
    found.take(told(20))
    assert expected == [pytest.approx(2 + 70 / 10)]


def test_what_follows_the_last_rows_is_not_part_of_the_rate(clock):
    """The result is merged after the last rows, for seconds."""
    found = pace(clock, workers=1)
    found.take(told(10, loading=True))
    clock.now += 0.1
    found.take(told(300, 0.1))
    clock.now += 2
    assert found.rate is None  # 300 rows in a tenth of a second say little
    clock.now -= 1
    found.take(told(300, 1.1))
    clock.now += 5
    assert found.rate == pytest.approx(600 / 1.1)
    assert found.cpus == pytest.approx(1.2 / 1.1)
