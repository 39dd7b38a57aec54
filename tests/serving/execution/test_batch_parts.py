"""When a call is computed in parts, and what that must not change."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from deploykit.serving.execution import slots
from deploykit.serving.execution.batch_parts import (
    CALLS,
    GAIN,
    MAX_SIZES,
    SECONDS,
    TRIES,
    BatchParts,
    cut,
    joined,
)
from deploykit.serving.execution.batching import Batches
from deploykit.serving.execution.data_plane import Plane, Requester, Target
from deploykit.serving.execution.engines.engine import ALL
from deploykit.serving.execution.slots import Slots
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Batching
from tests.serving.execution.test_data_plane import Echo, One, in_thread

NAME = "serving_default"


def feeds(rows):
    return {"x": np.arange(rows, dtype=np.float32).reshape(rows, 1)}


def parts_of(echo, known=4.0, rows=8):
    """Let calls of so many rows be known to take so long, in seconds, when they are whole."""
    echo.parts = BatchParts(echo.signatures, [NAME])
    for _ in range(TRIES):
        echo.parts.note(NAME, feeds(rows), known)
    return echo


def predict(plane, rows=8, caller=None):
    return plane.predict(Target("echo"), feeds(rows), [], caller or Requester())


def test_rows_are_cut_into_parts_of_about_one_size_and_joined_again():
    for rows in range(2, 40):
        for count in range(2, rows + 1):
            pieces = cut(feeds(rows), count)
            sizes = {len(piece["x"]) for piece in pieces}
            assert len(pieces) == count
            assert max(sizes) - min(sizes) <= 1
            assert min(sizes) >= 1
            assert joined(pieces, pieces)["x"].tolist() == feeds(rows)["x"].tolist()


@pytest.mark.parametrize(
    "odd", [np.zeros((3, 1)), np.zeros((2, 1)), np.zeros(()), np.zeros((4, 2))]
)
def test_outputs_with_other_rows_are_not_joined(odd):
    pieces = cut(feeds(8), 2)
    assert joined(pieces, [{"y": np.zeros((4, 1))}, {"y": odd}]) is None


def test_a_size_is_computed_whole_first_and_in_parts_if_that_is_quicker():
    for seconds, wanted in ((GAIN * 3.9, 8), (GAIN * 4.1, 1)):
        parts = BatchParts(Echo().signatures, [NAME])
        for _ in range(TRIES):
            assert parts.wanted(NAME, feeds(8)) == 1
            parts.note(NAME, feeds(8), 4.0)
        for _ in range(TRIES):
            assert parts.wanted(NAME, feeds(8)) == 8
            parts.note(NAME, feeds(8), seconds, 2)
        assert parts.wanted(NAME, feeds(8)) == wanted
        assert parts.wanted(NAME, feeds(7)) == 1
        for _ in range(CALLS):
            parts.note(NAME, feeds(8), 4.0, wanted)
        asked = parts.wanted(NAME, feeds(8))
        assert asked == (8 if wanted == 1 else 1), "what was true once is never asked again"


def test_what_gains_nothing_has_no_parts():
    parts = BatchParts(Echo().signatures, [NAME])
    for _ in range(TRIES):
        parts.note(NAME, feeds(8), 1.9 * SECONDS)
        parts.note(NAME, feeds(9), 3.5 * SECONDS)
        parts.note(NAME, feeds(1), 9.0)
    assert [parts.wanted(NAME, feeds(rows)) for rows in (8, 9, 1)] == [1, 3, 1]
    assert parts.wanted("other", feeds(9)) == 1
    assert parts.wanted(NAME, {**feeds(9), "more": feeds(9)["x"]}) == 1


def test_no_more_sizes_are_known_than_there_is_room_for():
    parts = BatchParts(Echo().signatures, [NAME])
    for rows in range(MAX_SIZES + 50):
        parts.note(NAME, feeds(rows), 1.0)
    assert len(parts._times) == MAX_SIZES


@pytest.mark.parametrize(
    ("count", "rows", "expected"), [(2, 8, 2), (3, 8, 3), (4, 2, 2), (1, 8, 1)]
)
@pytest.mark.parametrize("batching", [None, Batching()])
def test_a_lone_call_is_computed_in_all_slots_at_once(count, rows, expected, batching):
    echo, seen = parts_of(Echo(), rows=rows), []
    batches = batching and Batches(batching, count)
    plane = Plane(One(echo), 9, count, lambda *facts: seen.append(facts), batches)
    thread, found = in_thread(lambda: predict(plane, rows))
    for _ in range(expected):
        assert echo.begun.acquire(timeout=10), "its parts do not run at once"
    echo.go.set()
    thread.join(10)
    assert found[0].outputs["y"].tolist() == feeds(rows)["x"].tolist()
    assert sorted(echo.slots) == list(range(1, expected + 1))
    ((_, _, code, in_all, in_session),) = seen
    assert code == "OK"
    assert 0 < in_session <= in_all


def test_a_call_beside_another_stays_whole_and_so_do_those_just_after(monkeypatch):
    echo = parts_of(Echo())
    plane = Plane(One(echo), 9, 2)
    first, _ = in_thread(lambda: predict(plane, 1))
    assert echo.begun.acquire(timeout=10)
    second, found = in_thread(lambda: predict(plane))
    assert echo.begun.acquire(timeout=10)
    echo.go.set()
    first.join(10)
    second.join(10)
    assert len(echo.slots) == 2
    assert found[0].outputs["y"].shape == (8, 1)
    predict(plane)
    assert len(echo.slots) == 3
    monkeypatch.setattr(slots, "ALONE_SECONDS", 0.0)
    parts_of(echo)
    predict(plane)
    assert len(echo.slots) == 5, "slots that are idle again are not used"


def test_a_deadline_ends_all_parts_and_none_begins_after_it():
    echo = parts_of(Echo())
    plane = Plane(One(echo), 9, 2)
    echo.go.set()
    predict(plane, caller=Requester(time.monotonic() + 60))
    assert all(0 < seconds <= 60 for seconds in echo.given)
    assert len(echo.given) == 2
    for caller in (Requester(time.monotonic() - 1), Requester(cancelled=lambda: True)):
        with pytest.raises(ServingError):
            predict(plane, caller=caller)
    assert len(echo.given) == 2
    assert predict(plane).outputs, "a slot was lost"
    assert len(echo.given) == 4


class Refusing(Echo):
    """A servable that refuses what holds the row 7."""

    code = "INVALID_ARGUMENT"

    def run(self, signature, given, outputs, seconds=None, slot=0):
        self.given.append(given)
        if 7 in given["x"]:
            raise ServingError(self.code, f"row {given['x'].ravel().tolist().index(7)}")
        self.ended = threading.current_thread()
        return {"y": given["x"]}


@pytest.mark.parametrize(("code", "runs"), [("INVALID_ARGUMENT", 3), ("DEADLINE_EXCEEDED", 2)])
def test_what_a_call_is_refused_for_is_about_the_whole_batch(code, runs):
    echo = parts_of(Refusing())
    echo.code = code
    plane = Plane(One(echo), 9, 2)
    with pytest.raises(ServingError) as error:
        predict(plane)
    assert error.value.status == code
    assert str(error.value) == ("row 7" if runs == 3 else "row 3")
    assert len(echo.given) == runs


def test_outputs_whose_rows_do_not_fit_are_computed_whole():
    echo = parts_of(Echo())
    echo.run = lambda signature, given, outputs, seconds=None, slot=0: {"y": given["x"][:3]}
    assert predict(Plane(One(echo), 9, 2)).outputs["y"].shape == (3, 1)


@pytest.mark.sampled
def test_a_call_of_which_a_part_fails_leaves_no_arrays_behind():
    echo = parts_of(Refusing())
    plane = Plane(One(echo), 9, 2)
    gc.collect()
    gc.disable()
    try:
        given = feeds(8)
        kept = weakref.ref(given["x"])
        with pytest.raises(ServingError):
            plane.predict(Target("echo"), given, [], Requester())
        echo.given.clear()
        del given
        end = time.monotonic() + 10
        while kept() is not None and time.monotonic() < end:
            time.sleep(0.01)  # the threads that computed let go a moment later
        assert kept() is None
    finally:
        gc.enable()


def test_all_works_have_ended_when_one_of_them_fails():
    threads, ended = Slots(3), []

    def work(number):
        if number == 0:
            raise ServingError("INTERNAL", "first")
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(ServingError, match="first"):
        threads.run_at_once(9, lambda count: [lambda n=n: work(n) for n in range(count)])
    assert sorted(ended) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        threads.run_at_once(9, lambda count: [1 / 0])
    assert threads.run_at_once(9, lambda count: [lambda: count] * count) == [3, 3, 3]


def spread_of(echo, known=4.0):
    """Let calls be known to take so long in one slot, whose engine can spread them over all."""
    echo.parts = BatchParts(echo.signatures, (), [NAME])
    for _ in range(TRIES):
        echo.parts.note(NAME, feeds(1), known)
    return echo


def test_a_lone_call_has_all_slots_where_its_engine_can_use_them():
    echo = spread_of(Echo())
    echo.go.set()
    plane = Plane(One(echo), 9, 2)
    for _ in range(TRIES + 1):
        assert predict(plane, 1).outputs["y"].tolist() == [[0.0]]
    assert echo.slots == [ALL] * (TRIES + 1)
    assert all(name.startswith("compute") for name in echo.threads)
    assert predict(plane, 2).outputs
    assert echo.slots[-1] > 0, "a size that is not known yet"


def test_a_call_is_not_spread_where_that_brings_nothing_or_others_compute():
    echo = spread_of(Echo(), known=0.0)
    echo.go.set()
    plane = Plane(One(echo), 9, 2)
    for _ in range(TRIES + 1):
        predict(plane, 1)
    assert [slot == ALL for slot in echo.slots] == [True] * TRIES + [False]
    echo = spread_of(Echo())
    plane = Plane(One(echo), 9, 2)
    first, _ = in_thread(lambda: predict(plane, 1))
    assert echo.begun.acquire(timeout=10)
    second, _ = in_thread(lambda: predict(plane, 1))
    assert echo.begun.acquire(timeout=10), "it waits for the one that is spread"
    echo.go.set()
    first.join()
    second.join()
    predict(plane, 1)
    assert [slot == ALL for slot in echo.slots] == [True, False, False]
