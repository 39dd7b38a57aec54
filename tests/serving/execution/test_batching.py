import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.serving.execution.batching import Batches
from deploykit.serving.execution.request_inputs import rows_of
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Batching
from deploykit.serving.protocol.signatures import Signature, Tensor
from deploykit.transforms.ir.protos import SignatureDef
from tests.support import raises, shows
from tests.waiting import until

MODEL = object()


class Model:
    """Doubles what it is given; the first batch is held back until `go` is set."""

    def __init__(self, held: bool = True) -> None:
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        if not held:
            self.go.set()

    def __call__(self, feeds, left):
        self.sizes.append(len(feeds["x"]))
        self.begun.set()
        assert self.go.wait(10)
        if (feeds["x"] < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative")
        return {"y": feeds["x"] * 2}


def forever():
    return None


def array(*values):
    return np.array(values, np.float32)


class Calls:
    """Calls in threads of their own; what each returned or raised."""

    def __init__(self, batches, model):
        self.batches, self.model, self.found, self.threads = batches, model, {}, []

    def start(self, name, values, left=forever, waits=True):
        def call():
            try:
                answer = self.batches.run(
                    MODEL, "s", {"x": values}, ["y"], len(values), left, self.model
                )
                self.found[name] = answer["y"]
            except ServingError as error:
                self.found[name] = error

        before = waiting(self.batches)
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        self.threads.append(thread)
        until(lambda: not waits or waiting(self.batches) > before)

    def end(self):
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


def waiting(batches):
    return sum(len(queue.tasks) for queue in list(batches._queues.values()))


def held(batching=None, threads=1):
    """Return calls of which the first is being computed."""
    model = Model()
    calls = Calls(Batches(batching or Batching(), threads), model)
    calls.start("first", array(1), waits=False)
    assert model.begun.wait(10)
    return calls, model


def test_what_waits_is_taken_at_once():
    calls, model = held()
    for number in range(5):
        calls.start(number, array(number, number + 10))
    model.go.set()
    calls.end()
    assert model.sizes == [1, 10]
    for number in range(5):
        assert calls.found[number].tolist() == [2 * number, 2 * number + 20]


def test_each_call_tells_how_long_it_waited():
    told: list[tuple[str, float]] = []
    model = Model()
    observe = lambda seconds, name: told.append((name, seconds))  # noqa: E731
    calls = Calls(Batches(Batching(thread_pool_name="pool"), 1, observe), model)
    calls.start("first", array(1), waits=False)
    assert model.begun.wait(10)
    assert len(told) == 1, "it is told when a call begins to compute, not when it ends"
    for number in range(3):
        calls.start(number, array(number, number))
    assert len(told) == 1
    model.go.set()
    calls.end()
    assert [name for name, _ in told] == ["pool"] * 4
    first, *others = (seconds for _, seconds in told)
    assert first >= 0
    assert others == sorted(others, reverse=True), "who came first waited longest"


def test_one_alone_waits_for_nobody():
    model = Model(held=False)
    batches = Batches(Batching(), 1)
    for number in range(3):
        calls = Calls(batches, model)
        calls.start(0, array(number), waits=False)
        calls.end()
    assert model.sizes == [1, 1, 1]
    assert not batches._queues, "a queue that nobody uses is kept"


def test_no_batch_is_larger_than_allowed():
    calls, model = held(Batching(max_batch_size=4))
    for number in range(4):
        calls.start(number, array(number, number, number))
    model.go.set()
    calls.end()
    assert model.sizes == [1, 3, 3, 3, 3]


def test_sizes_are_filled_up_to_those_allowed():
    calls, model = held(Batching(max_batch_size=8, allowed_batch_sizes=(4, 8)))
    calls.start("a", array(1, 2))
    calls.start("b", array(3, 4, 5))
    model.go.set()
    calls.end()
    assert model.sizes == [4, 8]
    assert calls.found["a"].tolist() == [2, 4]
    assert calls.found["b"].tolist() == [6, 8, 10]


def test_one_that_is_wrong_harms_no_other():
    calls, model = held()
    calls.start("good", array(1))
    calls.start("bad", array(-1))
    calls.start("other", array(3))
    model.go.set()
    calls.end()
    assert calls.found["good"].tolist() == [2]
    assert calls.found["other"].tolist() == [6]
    assert calls.found["bad"].status == "INVALID_ARGUMENT"
    assert model.sizes == [1, 3, 1, 1, 1]


def test_too_many_are_refused_with_the_words_of_the_original():
    calls, model = held(Batching(max_batch_size=2, max_enqueued_batches=2))
    for number in range(4):
        calls.start(number, array(number))
    calls.start("more", array(9), waits=False)
    until(lambda: "more" in calls.found)
    assert calls.found["more"].status == "UNAVAILABLE"
    assert shows(calls.found["more"], "batch-queue-full", capacity=0, waiting=2, most=2, size=2)
    model.go.set()
    calls.end()


def test_a_request_larger_than_a_batch_is_refused_or_split():
    batches = Batches(Batching(max_batch_size=2), 1)
    with raises(ServingError, "batch-task-too-large", rows=5, max_batch_size=2):
        batches.run(MODEL, "s", {"x": array(1, 2, 3, 4, 5)}, ["y"], 5, forever, Model(held=False))
    model = Model(held=False)
    batching = Batching(
        max_batch_size=8, enable_large_batch_splitting=True, max_execution_batch_size=2
    )
    answer = Batches(batching, 1).run(
        MODEL, "s", {"x": array(1, 2, 3, 4, 5)}, ["y"], 5, forever, model
    )
    assert answer["y"].tolist() == [2, 4, 6, 8, 10]
    assert model.sizes == [2, 2, 1]


def overdue_after(calls):
    """Return a function of the time left: there is some, and after so many calls none."""
    left = iter([0.02] * calls)

    def seconds():
        rest = next(left, None)
        if rest is None:
            raise ServingError("DEADLINE_EXCEEDED", "over")
        return rest

    return seconds


def test_one_whose_time_is_over_leaves_the_queue():
    calls, model = held()
    calls.start("late", array(1), overdue_after(1), waits=False)
    until(lambda: "late" in calls.found)
    assert calls.found["late"].status == "DEADLINE_EXCEEDED"
    calls.start("patient", array(2))
    model.go.set()
    calls.end()
    assert model.sizes == [1, 1]
    assert calls.found["patient"].tolist() == [4]


def test_a_bug_of_the_model_leaves_nobody_waiting():
    model = Model()

    def broken(feeds, left):
        model(feeds, left)
        raise ZeroDivisionError

    batches = Batches(Batching(), 1)
    failures = []

    def call():
        try:
            batches.run(MODEL, "s", {"x": array(1)}, ["y"], 1, forever, broken)
        except (ServingError, ZeroDivisionError) as error:
            failures.append(error)

    threads = [threading.Thread(target=call, daemon=True) for _ in range(3)]
    threads[0].start()
    assert model.begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    until(lambda: waiting(batches) == 2)
    model.go.set()
    for thread in threads:
        thread.join(10)
    assert len(failures) == 3
    assert not batches._queues


def test_texts_of_different_lengths_share_a_batch_where_they_may_be_filled_up():
    calls, model = held(Batching(pad_variable_length_inputs=True))
    calls.start("a", np.ones((1, 2), np.float32), waits=False)
    until(lambda: len(calls.batches._queues) == 2)
    model.go.set()
    calls.end()
    model = Model()
    calls = Calls(Batches(Batching(pad_variable_length_inputs=True), 1), model)
    calls.start("first", np.ones((1, 1), np.float32), waits=False)
    assert model.begun.wait(10)
    calls.start("short", np.ones((1, 2), np.float32))
    calls.start("long", np.ones((2, 3), np.float32))
    model.go.set()
    calls.end()
    assert model.sizes == [1, 3]
    assert calls.found["short"].tolist() == [[2, 2, 0]]
    assert calls.found["long"].tolist() == [[2, 2, 2], [2, 2, 2]]


def test_patience_waits_for_a_full_batch_and_no_longer():
    model = Model(held=False)
    batches = Batches(Batching(max_batch_size=4, batch_timeout_micros=1_000_000_000), 1)
    calls = Calls(batches, model)
    for number in range(3):
        calls.start(number, array(number))
    calls.start(3, array(3), waits=False)
    calls.end()
    assert model.sizes == [4]


def test_patience_ends():
    model = Model(held=False)
    calls = Calls(Batches(Batching(batch_timeout_micros=1000), 1), model)
    calls.start("alone", array(1), waits=False)
    calls.end()
    assert calls.found["alone"].tolist() == [2]


@pytest.mark.parametrize(("times", "longest"), [((5.0, 50.0), 50.0), ((5.0, None), None)])
def test_a_batch_may_take_as_long_as_its_most_patient_request(times, longest):
    """Otherwise a request with little time would end the others."""
    calls, model = held()
    given = []
    calls.model = lambda feeds, left: given.append(left) or model(feeds, left)
    for number, seconds in enumerate(times):
        calls.start(number, array(number), lambda seconds=seconds: seconds)
    model.go.set()
    calls.end()
    assert (model.sizes, given) == ([1, 2], [longest])


@pytest.mark.parametrize("wrong", [lambda x: x[:-1], lambda x: x[:0], np.sum])
def test_outputs_with_fewer_rows_than_the_batch_are_refused(wrong):
    """Nobody is sent rows of others, or fewer rows than requested."""
    calls, model = held()
    calls.model = lambda feeds, left: {"y": wrong(model(feeds, left)["y"])}
    calls.start("a", array(1, 2))
    calls.start("b", array(3, 4))
    model.go.set()
    calls.end()
    for name in ("a", "b"):
        assert calls.found[name].status == "FAILED_PRECONDITION"
        assert shows(calls.found[name], "batch-output-rows", name="y")


def test_two_that_compute_at_once_leave_each_other_alone():
    """A call that may compute, and has not begun, is not taken by another that has."""
    model = Model(held=False)
    batches = Batches(Batching(), 2)

    def call(number):
        for _ in range(300):
            given = array(number)
            answer = batches.run(MODEL, "s", {"x": given}, ["y"], 1, forever, model)
            assert answer["y"].tolist() == [2 * number]
        done.append(number)

    done: list[int] = []
    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(done) == list(range(8))
    assert not batches._queues


@settings(max_examples=20)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=20),
    st.integers(1, 3),
    st.integers(5, 12),
)
def test_everybody_gets_what_is_theirs(requests, threads, most):
    model = Model(held=False)
    batches = Batches(Batching(max_batch_size=most, max_enqueued_batches=100), threads)
    calls = Calls(batches, model)
    for number, values in enumerate(requests):
        calls.start(number, array(*values), waits=False)
    calls.end()
    for number, values in enumerate(requests):
        assert calls.found[number].tolist() == [2 * value for value in values]
    assert max(model.sizes) <= most
    assert sum(model.sizes) == sum(map(len, requests))
    assert not batches._queues


def signature(inputs, outputs):
    def tensors(shapes):
        return {name: Tensor(name, "float32", shape) for name, shape in shapes.items()}

    return Signature("", tensors(inputs), tensors(outputs), SignatureDef())


@pytest.mark.parametrize(
    ("inputs", "outputs", "feeds", "rows"),
    [
        ({"a": (-1, 2)}, {"y": (-1,)}, {"a": np.zeros((3, 2))}, 3),
        ({"a": (-1, 2), "b": (-1,)}, {"y": None}, {"a": np.zeros((3, 2)), "b": np.zeros(3)}, 3),
        ({"a": (-1, 2), "b": (-1,)}, {"y": None}, {"a": np.zeros((3, 2)), "b": np.zeros(2)}, None),
        ({"a": (1, 2)}, {"y": (-1,)}, {"a": np.zeros((1, 2))}, None),
        ({"a": (-1,)}, {"y": (5,)}, {"a": np.zeros(1)}, None),
        ({"a": ()}, {"y": (-1,)}, {"a": np.zeros(())}, None),
        ({"a": (-1,)}, {"y": (-1,)}, {"a": np.zeros(0)}, None),
    ],
)
def test_who_can_share_a_batch(inputs, outputs, feeds, rows):
    assert rows_of(signature(inputs, outputs), feeds) == rows


def test_queues_of_different_models_are_apart():
    calls, model = held()
    other = SimpleNamespace()
    found = calls.batches.run(other, "s", {"x": array(5)}, ["y"], 1, forever, Model(held=False))
    assert found["y"].tolist() == [10]
    model.go.set()
    calls.end()
