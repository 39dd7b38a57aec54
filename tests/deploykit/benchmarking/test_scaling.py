"""More threads that bring nothing are named where that is sure, and nowhere else."""

from dataclasses import replace

import pytest

from deploykit.benchmarking.results import thread_lines
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.tables import tables
from tests.deploykit.benchmarking.made_up import in_turns, result
from tests.support import Containing, shows

BOTH = (1, 1), (2, 1)
ONE = RunConfig(batch=1)


def two(gain, threads=BOTH, seed=0, kind="plain", settings=ONE, **more):
    """Return measurements with threads, of which the second runs so many times as often."""
    found = in_turns(seed, kind, 1 / gain, work=2 / gain, **more)
    return [
        replace(each, name=f"{threads}", settings=replace(settings, threads=pair))
        for each, pair in zip(found, threads, strict=True)
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("gain", "says"), [(0.7, True), (0.95, True), (1.0, True), (1.2, False), (1.9, False)]
)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_sure(gain, says, seed):
    assert bool([*thread_lines(result(*two(gain, seed=seed)))]) == says


def test_the_sentence():
    [line] = thread_lines(result(*two(1.0)))
    expected = {"name": Containing("((1, 1), (2, 1))"), "threads": 2, "fewer": 1}
    concurrent = Containing("x2 --concurrency 2")
    assert shows(line, "threads-no-speedup", more=concurrent, **expected)
    assert line in tables(result(*two(1.0)))
    [line] = thread_lines(result(*two(0.7)))
    assert shows(line, "threads-slower", ratio=Containing("0."), **expected)
    [line] = thread_lines(result(*two(1.0, settings=RunConfig(concurrency=2))))
    assert line.endswith(")")


def test_what_is_undecided_is_not_claimed():
    """Few sessions that scatter: the interval reaches beyond what would count as a gain."""
    found = two(1.0, sessions=2, turns=3, kind="contended")
    assert [*thread_lines(result(*found))] == []


def test_only_threads_may_differ():
    one, more = two(1.0)
    for other in (
        replace(more, settings=replace(more.settings, executor="caller")),
        replace(more, model="other.pb"),
        replace(more, samples=8),
        replace(more, settings=replace(more.settings, device="gpu")),
    ):
        assert [*thread_lines(result(one, other))] == []
    assert [*thread_lines(result(more, one))]  # in whatever order
    assert [*thread_lines(result(*two(1.0, ((1, 2), (2, 1)))))] == []  # fewer ops at once
    assert [*thread_lines(result(*two(1.0, ((1, 2), (2, 2)))))]


def test_the_threads_of_tensorflow_itself():
    one, more = two(1.0, ((1, 1), None))
    assert [*thread_lines(result(one, more))] == []  # how many it has is not known
    known = [replace(each, facts={**each.facts, "cpus": [0, 1, 5]}) for each in (one, more)]
    [line] = thread_lines(result(*known))
    assert shows(line, "threads-no-speedup", threads=3, fewer=1)
