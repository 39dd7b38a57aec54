"""What requests on their way may hold: the bound, who makes room, and what small ones may."""

import random

import pytest

from deploykit.serving.execution.uploads import SMALL, Uploads
from deploykit.serving.protocol.errors import ServingError
from tests.support import raises

MIB = 1 << 20


class Bench:
    """Uploads of at most 100 MiB each, and a clock that is set."""

    def __init__(self):
        self.now = 0.0
        self.uploads = Uploads(100 * MIB, lambda: self.now)
        self.ended = []

    def begin(self, size):
        upload = self.uploads.begin(size, lambda: self.ended.append(upload))
        return upload

    def refused(self, act, *arguments):
        with raises(ServingError, "uploads-full") as error:
            act(*arguments)
        assert error.value.status == "RESOURCE_EXHAUSTED"


@pytest.fixture
def bench():
    return Bench()


def test_what_is_declared_counts_before_it_is_there(bench):
    for _ in range(3):
        bench.begin(100 * MIB)
    bench.refused(bench.begin, 100 * MIB)
    assert bench.ended == []


def test_small_ones_pass_where_large_ones_are_refused(bench):
    for _ in range(35):
        bench.begin(10 * MIB)
    bench.refused(bench.begin, 2 * MIB)
    for _ in range(50):
        bench.begin(SMALL)
    bench.refused(bench.begin, SMALL)


def test_a_slow_one_counts_what_it_holds(bench):
    slow = [bench.begin(100 * MIB) for _ in range(3)]
    for each in slow:
        bench.uploads.take(each, 1000)
    bench.now = 1.1
    for _ in range(3):
        bench.begin(100 * MIB)
    assert bench.ended == []


def test_who_holds_most_for_longest_makes_room(bench):
    small, large, quick = (bench.begin(100 * MIB) for _ in range(3))
    bench.uploads.take(small, 50 * MIB)
    bench.uploads.take(large, 90 * MIB)
    bench.now = 95
    bench.uploads.take(quick, 96 * MIB)
    bench.begin(100 * MIB)
    assert bench.ended == []
    bench.begin(100 * MIB)
    assert bench.ended == [large]
    bench.refused(bench.uploads.take, large, 1)
    bench.begin(50 * MIB)
    assert bench.ended == [large, small]
    bench.refused(bench.begin, 100 * MIB)  # only quick ones are left


def test_whoever_is_complete_never_makes_room(bench):
    for _ in range(3):
        each = bench.begin(100 * MIB)
        bench.uploads.take(each, 100 * MIB)
        each.complete()
    bench.now = 1000
    bench.refused(bench.begin, 100 * MIB)
    each.close()
    bench.begin(100 * MIB)


def test_one_that_does_not_say_its_size_counts_what_it_holds(bench):
    each = bench.begin(None)
    for _ in range(3):
        bench.begin(100 * MIB)
    bench.uploads.take(each, 40 * MIB)
    bench.refused(bench.uploads.take, each, 30 * MIB)
    assert bench.uploads.held == 40 * MIB


def test_a_slow_one_that_goes_on_asks_for_room(bench):
    slow = bench.begin(100 * MIB)
    bench.now = 2
    others = [bench.begin(100 * MIB) for _ in range(3)]
    bench.uploads.take(slow, 40 * MIB)
    bench.refused(bench.uploads.take, slow, 30 * MIB)  # though it is quick now
    others[0].close()
    bench.uploads.take(slow, 60 * MIB)
    assert bench.ended == []


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_the_bound_is_held(bench, seed):
    rng, alive = random.Random(seed), []
    for _ in range(2000):
        bench.now += rng.random() * 0.2
        try:
            if rng.random() < 0.2:
                alive.append(bench.begin(rng.choice([None, 1000, MIB, 30 * MIB, 100 * MIB])))
            elif alive:
                each = rng.choice(alive)
                bench.uploads.take(each, rng.randrange(1, 4 * MIB))
                if rng.random() < 0.02:
                    each.complete()
        except ServingError:
            pass
        if alive and rng.random() < 0.05:
            alive.pop(rng.randrange(len(alive))).close()
        held = sum(each.held for each in alive if not each.ended)
        assert held <= bench.uploads.size
    assert bench.ended
