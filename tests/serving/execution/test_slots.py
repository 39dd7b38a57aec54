"""Which works may wait for a slot: the rule, at simulated times, and the estimates behind it."""

import math
import random
import statistics
import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.serving.execution.slots import Slots, SlotTimes
from deploykit.serving.protocol.errors import ServingError
from tests.support import raises
from tests.waiting import until

SERVICE = 1 / 64  # seconds; sums of it are exact
NO_LIMIT = math.inf


class Simulated:
    """Slots that run works in order, at times of our choice, without threads."""

    def __init__(self, count, longest_wait):
        self.slots, self.count = Slots(count, longest_wait), count
        self.waiting = deque()  # (arrival, service) of each
        self.ends = []  # of what runs
        self.waits: list[float] = []

    def arrive(self, now, service=SERVICE, expected=None):
        """Return whether a work is accepted."""
        self.advance(now)
        expected = service if expected is None else expected
        try:
            self.slots._enter(expected, accepted=False)
        except ServingError:
            return False
        self.waiting.append((now, service, expected))
        self._begin(now)
        return True

    def advance(self, now):
        while self.ends and self.ends[0] <= now:
            end = self.ends.pop(0)
            self.slots._free(1)
            self._begin(end)

    def _begin(self, now):
        while self.waiting and len(self.ends) < self.count:
            arrival, service, expected = self.waiting.popleft()
            self.slots._free(0, expected)
            self.waits.append(now - arrival)
            self.ends = sorted([*self.ends, now + service])

    def load(self, start, share, seconds, seed):
        """Send so many times what the slots sustain; return when, and which were accepted."""
        now, found = start, []
        arrivals = random.Random(seed)
        while (now := now + arrivals.expovariate(share * self.count / SERVICE)) < start + seconds:
            found.append(self.arrive(now))
        self.advance(math.inf)
        return found


@pytest.mark.sampled
@pytest.mark.parametrize("services", [0, 0.5, 1, 3, 20])
@pytest.mark.parametrize("share", [2, 4, 10])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_an_overload_costs_no_throughput_and_nobody_waits_much_longer_than_the_limit(
    count, share, services
):
    limit, seconds = services * SERVICE, 200 * SERVICE
    server = Simulated(count, limit)
    accepted = sum(server.load(0.0, share, seconds, seed=count))
    lost = 0.15 if share == 2 else 0.04
    assert accepted >= (1 - lost) * seconds * count / SERVICE
    # At the limit one more is accepted, and what runs must end first.
    assert max(server.waits) <= limit + SERVICE / count + SERVICE + 1e-9
    assert False in Simulated(count, limit).load(0.0, share, seconds, seed=count)


@pytest.mark.sampled
@pytest.mark.parametrize("services", [1, 3, 20])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_burst_within_the_limit_is_accepted_right_after_an_overload(count, services):
    server = Simulated(count, services * SERVICE)
    server.load(0.0, 10, 5, seed=1)
    assert (server.slots._taken, server.slots._queued) == (0, pytest.approx(0, abs=1e-9))
    size = count + count * services + 1  # these run, these wait within the limit, and one more
    assert [server.arrive(100.0) for _ in range(size + 2)] == [True] * size + [False] * 2


def test_however_slow_a_model_is_one_request_may_wait():
    server = Simulated(2, longest_wait=1e-9)
    assert [server.arrive(0.0, service=2.0) for _ in range(5)] == [True] * 3 + [False] * 2
    assert server.arrive(2.0)


@pytest.mark.parametrize(("limit", "expected"), [(0.001, 0.0), (NO_LIMIT, 1.0)])
def test_without_an_estimate_or_a_limit_all_are_accepted(limit, expected):
    server = Simulated(2, limit)
    assert all(server.arrive(0.0, expected=expected) for _ in range(1000))


def test_what_counts_is_how_long_the_waiting_ones_take_not_how_many_there_are():
    """Of two models that share slots, each is refused by the work before it."""
    server = Simulated(1, longest_wait=0.05)
    assert all(server.arrive(0.0, service=0.001) for _ in range(50))  # 0.049 s wait
    assert server.arrive(0.0, service=1.0)
    assert not server.arrive(0.0, service=0.001)
    assert server.arrive(0.1)


@pytest.mark.sampled
@given(
    st.integers(1, 3),
    st.sampled_from([0.0, 0.5, 2.0, NO_LIMIT]),
    st.lists(st.sampled_from([0.0, 0.3, 1.0, None]), max_size=14),
)
def test_threads_accept_what_the_rule_accepts(count, limit, events):
    """A number is a work that is expected to take so long; None ends the oldest that runs."""
    slots, running, waiting, threads = Slots(count, limit), deque(), deque(), []
    for expected in events:
        if expected is None:
            if running:
                running.popleft().set()
                if waiting:
                    _, end, begun = waiting.popleft()
                    assert begun.wait(10)
                    running.append(end)
                until(lambda: slots._taken == len(running) + len(waiting))
            continue
        queued = sum(each for each, *_ in waiting)
        full = bool(waiting) and queued > limit * count
        assert slots.is_full == full
        if full:
            with pytest.raises(ServingError) as error:
                slots.run(lambda: None, None, expected)
            assert error.value.status == "RESOURCE_EXHAUSTED"
            continue
        end, begun = threading.Event(), threading.Event()

        def work(end=end, begun=begun):
            begun.set()
            assert end.wait(10)

        thread = threading.Thread(target=slots.run, args=(work, None, expected))
        thread.start()
        threads.append(thread)
        until(lambda: slots._taken == len(running) + len(waiting) + 1)
        if len(running) < count:
            assert begun.wait(10)
            running.append(end)
        else:
            until(lambda: slots._pool._work_queue.qsize() == len(waiting) + 1)
            waiting.append((expected, end, begun))
    for end in (*running, *(each for _, each, _ in waiting)):
        end.set()
    for thread in threads:
        thread.join(10)
    assert (slots._taken, slots._queued) == (0, pytest.approx(0, abs=1e-9))


def test_a_work_whose_deadline_passes_while_it_waits_is_expected_no_more():
    slots, end = Slots(1, 0.5), threading.Event()
    thread = threading.Thread(target=slots.run, args=(lambda: end.wait(10), None, 1.0))
    thread.start()
    until(lambda: slots._taken == 1 and slots._queued == 0)
    with raises(ServingError, "deadline-before-run"):
        slots.run(lambda: None, 0.001, 1.0)
    assert (slots._taken, slots._queued, slots.is_full) == (1, 0, False)
    end.set()
    thread.join(10)


def test_a_task_for_which_no_thread_starts_gives_back_its_slot_once(monkeypatch):
    slots, end, began, ran = Slots(2), threading.Event(), threading.Event(), []

    def block():
        began.set()
        assert end.wait(10)

    def cannot_start(_):
        raise RuntimeError("can't start new thread")

    thread = threading.Thread(target=slots.run, args=(block, None))
    thread.start()
    assert began.wait(10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", cannot_start)
        with pytest.raises(RuntimeError, match="start new thread"):
            slots.run(lambda: ran.append(1), None, 1.0)
    assert (slots._taken, slots._queued) == (1, 0)
    end.set()
    thread.join(10)
    slots.run(lambda: None, None)  # behind the task that was given up
    assert (slots._taken, slots._queued, ran) == (0, 0, [])


@pytest.mark.sampled
@given(
    st.lists(st.floats(0.001, 1000), min_size=9, max_size=20),
    st.lists(st.floats(0.001, 1000), max_size=4),
)
def test_an_estimate_is_the_median_of_the_last_calls_whatever_a_few_of_them_took(usual, outliers):
    times, feeds = SlotTimes(), {"x": np.zeros(4)}
    for number, seconds in enumerate([*usual, *outliers], 1):
        times.note("s", feeds, seconds)
        assert (times.expected("s", feeds) > 0) == (number >= 3)
    last = [*usual, *outliers][-9:]
    assert times.expected("s", feeds) == statistics.median(last)
    assert min(usual) <= times.expected("s", feeds) <= max(usual)


def test_signatures_and_sizes_have_estimates_of_their_own():
    times = SlotTimes()
    for rows in (1, 8, 64):
        for signature in ("a", "b"):
            for _ in range(3):
                times.note(signature, {"x": np.zeros((rows, 3))}, rows * (1 + (signature == "b")))
    for rows in (1, 8, 64):
        assert times.expected("a", {"x": np.zeros((rows, 3))}) == rows
        assert times.expected("b", {"x": np.zeros((rows, 3))}) == 2 * rows
    assert times.expected("a", {"x": np.zeros((1000, 3))}) == 0
    assert times.expected("a", {"x": np.zeros((0, 3))}) == 0
