"""What the data plane refuses whatever the model: limits, deadlines, callers that are gone."""

import contextlib
import gc
import threading
import time
import weakref

import numpy as np
import pytest

from deploykit.serving.execution.batch_parts import BatchParts
from deploykit.serving.execution.batching import Batches
from deploykit.serving.execution.data_plane import QUICK_SECONDS, Plane, Requester, Target
from deploykit.serving.execution.engines.engine import HERE
from deploykit.serving.execution.slots import SlotTimes
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Batching
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.protos import SignatureDef
from tests.support import raises
from tests.waiting import until

X = {"x": np.ones((1, 1), np.float32)}


class Echo:
    """A servable that answers its input, once it may."""

    name, version = "echo", 1

    def __init__(self):
        tensor = Tensor("x:0", "float32", (-1, 1))
        self.signatures = {
            "serving_default": Signature("", {"x": tensor}, {"y": tensor}, SignatureDef())
        }
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.given: list[float | None] = []
        self.threads: list[str] = []
        self.quick = False
        self.slots: list[int] = []
        self.parts = BatchParts(self.signatures, ())
        self.times = SlotTimes()

    def is_quick(self, signature, feeds):
        return self.quick

    def run(self, signature, feeds, outputs, seconds=None, slot=HERE):
        self.slots.append(slot)
        self.given.append(seconds)
        self.threads.append(threading.current_thread().name)
        self.begun.release()
        assert self.go.wait(10)
        return {"y": feeds["x"]}


class One:
    """The only model."""

    def __init__(self, servable):
        self.servable = servable

    @contextlib.contextmanager
    def using(self, name, version, label):
        yield self.servable


def in_thread(call):
    found = []

    def run():
        try:
            found.append(call())
        except ServingError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def code(plane, call):
    with pytest.raises(ServingError) as error:
        plane.predict(Target("echo"), X, [], call)
    return error.value.status


def test_no_more_calls_are_let_in_than_allowed_and_each_frees_its_place():
    echo, seen = Echo(), []
    plane = Plane(One(echo), in_flight=2, slots=2, observe=lambda *facts: seen.append(facts))
    threads = [
        in_thread(lambda: plane.predict(Target("echo"), X, [], Requester())) for _ in range(2)
    ]
    for _ in threads:
        assert echo.begun.acquire(timeout=10)
    assert code(plane, Requester()) == "RESOURCE_EXHAUSTED"
    echo.go.set()
    for thread, found in threads:
        thread.join(10)
        assert found[0].outputs["y"].tolist() == [[1]]
    assert plane.predict(Target("echo"), X, [], Requester()).version == 1
    assert [facts[:3] for facts in seen] == [
        ("echo", "Predict", "RESOURCE_EXHAUSTED"),
        *[("echo", "Predict", "OK")] * 3,
    ]


def test_a_call_waits_for_a_slot_no_longer_than_its_deadline():
    echo = Echo()
    plane = Plane(One(echo), in_flight=8, slots=1)
    thread, _ = in_thread(lambda: plane.predict(Target("echo"), X, [], Requester()))
    assert echo.begun.acquire(timeout=10)
    assert code(plane, Requester(time.monotonic() + 0.05)) == "DEADLINE_EXCEEDED"
    echo.go.set()
    thread.join(10)
    assert echo.given == [None], "a call whose time was over was run"
    plane.predict(Target("echo"), X, [], Requester(time.monotonic() + 60))
    assert 0 < echo.given[1] <= 60


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Requester(time.monotonic() - 1), "DEADLINE_EXCEEDED"),
        (Requester(cancelled=lambda: True), "CANCELLED"),
        (Requester(0.0, cancelled=lambda: True), "DEADLINE_EXCEEDED"),
    ],
)
def test_nothing_is_run_for_who_does_not_wait_any_more(call, expected):
    echo = Echo()
    echo.go.set()
    plane = Plane(One(echo), in_flight=1, slots=1)
    for _ in range(3):
        assert code(plane, call) == expected
    assert not echo.given
    assert plane.predict(Target("echo"), X, [], Requester()).outputs, "a place was lost"


def test_a_bug_frees_the_place_too():
    echo, seen = Echo(), []
    echo.run = None  # cannot be called
    plane = Plane(One(echo), in_flight=1, slots=1, observe=lambda *facts: seen.append(facts[2]))
    for _ in range(2):
        with pytest.raises(TypeError):
            plane.predict(Target("echo"), X, [], Requester())
    assert seen == ["INTERNAL", "INTERNAL"]


@pytest.mark.sampled
@pytest.mark.parametrize("batching", [None, Batching()])
@pytest.mark.parametrize("quick", [True, False])
def test_a_call_that_fails_leaves_no_arrays_behind(monkeypatch, quick, batching):
    echo = Echo()
    echo.quick = quick

    def fails(*_):
        raise ServingError("INVALID_ARGUMENT", "no")

    echo.run = fails
    plane = Plane(One(echo), 1, 1, batches=batching and Batches(batching, 1))
    array = np.ones((1, 1), np.float32)
    kept = weakref.ref(array)
    gc.collect()
    gc.disable()  # what it alone can free is kept for long
    try:
        with contextlib.suppress(ServingError):
            plane.predict(Target("echo"), {"x": array}, [], Requester())
        del array
        for _ in range(3):  # threads of the plane let go of the last call when they get another
            with contextlib.suppress(ServingError):
                plane.predict(Target("echo"), X, [], Requester())
        assert kept() is None
    finally:
        gc.enable()


def test_a_quick_call_is_run_at_once_and_others_by_the_few_threads_that_compute():
    echo = Echo()
    echo.go.set()
    plane = Plane(One(echo), in_flight=9, slots=2)
    for quick in (True, False):
        echo.quick = quick
        for _ in range(3):
            plane.predict(Target("echo"), X, [], Requester())
    here = threading.current_thread().name
    assert echo.threads[:3] == [here] * 3
    assert {name.partition("_")[0] for name in echo.threads[3:]} == {"compute"}
    assert echo.slots[:3] == [HERE] * 3
    assert set(echo.slots[3:]) <= {1, 2}


@pytest.mark.parametrize("batching", [None, Batching()])
def test_a_call_that_would_wait_too_long_is_refused_unless_it_needs_no_slot(batching):
    echo = Echo()
    for _ in range(3):
        echo.times.note("serving_default", X, 1.0)
    batches = batching and Batches(batching, 4)
    plane = Plane(One(echo), 9, slots=1, batches=batches, longest_wait=0.5)
    threads = []
    for count in (1, 2):
        plane.refuse_if_full()
        threads.append(in_thread(lambda: plane.predict(Target("echo"), X, [], Requester())))
        until(lambda count=count: plane._slots._taken == count)
    assert code(plane, Requester()) == "RESOURCE_EXHAUSTED"
    with raises(ServingError, "queue-wait-too-long", limit_ms=500.0):
        plane.refuse_if_full()
    echo.quick = True
    echo.go.set()
    assert plane.predict(Target("echo"), X, [], Requester()).outputs
    for thread, found in threads:
        thread.join(10)
        assert found[0].outputs
    plane._slots._taken, plane._slots._queued = 2, 1.0  # full again
    plane.refuse_if_full()  # the next one may be as quick
    plane._last_quick -= QUICK_SECONDS
    with raises(ServingError, "queue-wait-too-long", limit_ms=500.0):
        plane.refuse_if_full()


def test_a_batch_is_not_refused_once_its_calls_are_accepted():
    echo = Echo()
    echo.go.set()

    class Waiting:
        def run(self, *given):
            *_, compute = given
            plane._slots._taken, plane._slots._queued = 2, 1.0  # full meanwhile
            return compute(X, None)

    plane = Plane(One(echo), 9, slots=1, batches=Waiting(), longest_wait=0.5)
    assert plane.predict(Target("echo"), X, [], Requester()).outputs
    assert code(plane, Requester()) == "RESOURCE_EXHAUSTED"


def test_a_call_that_computes_twice_is_refused_before_the_first_time_or_never():
    echo = Echo()
    echo.go.set()
    plane = Plane(One(echo), 9, slots=1, longest_wait=0.5)
    with plane._called(Target("echo"), "MultiInference", Requester()) as lease:
        plane._run(lease, "serving_default", X, ["y"])
        plane._slots._taken, plane._slots._queued = 2, 1.0
        assert plane._run(lease, "serving_default", X, ["y"])
    assert code(plane, Requester()) == "RESOURCE_EXHAUSTED"


def test_calls_that_compute_at_once_have_slots_of_their_own():
    echo = Echo()
    plane = Plane(One(echo), in_flight=9, slots=3)
    threads = [
        in_thread(lambda: plane.predict(Target("echo"), X, [], Requester())) for _ in range(3)
    ]
    for _ in threads:
        assert echo.begun.acquire(timeout=10)
    assert sorted(echo.slots) == [1, 2, 3]
    echo.go.set()
    for thread, _ in threads:
        thread.join(10)


def test_without_slots_each_call_computes_in_its_own_thread():
    echo = Echo()
    echo.go.set()
    Plane(One(echo), in_flight=1, slots=0).predict(Target("echo"), X, [], Requester())
    assert (echo.threads, echo.slots) == ([threading.current_thread().name], [HERE])
