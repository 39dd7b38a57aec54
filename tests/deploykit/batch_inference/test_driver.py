"""Each part is done once, whatever becomes of the workers."""

import contextlib
import itertools
import threading
import time

import pytest

from deploykit.batch_inference import driver
from deploykit.batch_inference.driver import Loss, computed
from deploykit.batch_inference.infer_task import InferTask, PartDone, PartProgress
from deploykit.batch_inference.process_backend import LostWorkerError
from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.transforms.common.errors import GraphError, LimitError
from deploykit.transforms.runtime.child_process import ResourceLimits
from tests.support import because, raises


def task(retries=3):
    data = Data("x", "arrays", (), {})
    return InferTask(
        "m", {}, {}, RunConfig(), Pipeline(data, {}), "f", "n", "npz", 1, retries=retries
    )


def parts(count, rows=10):
    return [DataPart(n, ("f",), n * rows, (n + 1) * rows) for n in range(count)]


class Backend:
    """Workers in this process, of which some calls are lost, as `fails` says."""

    def __init__(self, processes, fails=lambda number, method, part: None, room=lambda: True):
        self.processes, self.fails, self.room = processes, fails, room
        self.calls, self.started, self.ended = itertools.count(), 0, 0
        self.lock = threading.Lock()

    def start(self, task, stopped):
        while not self.room():
            if stopped.wait(0.01):
                return None
        with self.lock:
            self.started += 1
        return Worker(self)

    def close(self):
        pass


class Worker:
    where = "a worker"

    def __init__(self, backend):
        self.backend, self.part, self.steps = backend, None, 0

    def ask(self, method, *arguments):
        if method == "begin":
            (self.part,) = arguments
            self.steps = 0
        with self.backend.lock:
            number = next(self.backend.calls)
        if (error := self.backend.fails(number, method, self.part)) is not None:
            raise error
        if method == "begin":
            return None
        self.steps += 1
        if self.steps < 3:
            return PartProgress(5, 0.1)
        return PartProgress(0, 0.1, PartDone(self.part.number, "f", 10, 1, "", ""))

    def close(self):
        with self.backend.lock:
            self.backend.ended += 1


def done(news):
    return sorted(each.done.number for each in news if getattr(each, "done", None))


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(driver, "PAUSE", 0.01)


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_every_part_is_done_once(workers):
    backend = Backend(workers)
    news = list(computed(backend, task(), parts(11)))
    assert done(news) == list(range(11))
    assert sum(each.rows for each in news) == 110
    assert backend.started == backend.ended <= min(workers, 11)


@pytest.mark.parametrize("every", [5, 7, 11])
def test_what_a_lost_worker_was_at_is_done_again(every):
    lost = LostWorkerError("it is gone")
    backend = Backend(3, lambda number, *_: lost if number % every == every - 1 else None)
    news = list(computed(backend, task(retries=100), parts(7)))
    assert done(news) == list(range(7))
    losses = [each for each in news if isinstance(each, Loss)]
    assert losses
    rows = sum(each.rows for each in news if isinstance(each, PartProgress))
    assert rows - sum(each.rows for each in losses) == 70
    assert backend.started == backend.ended


def test_a_part_that_takes_every_worker_with_it_ends_the_run_and_is_named():
    lost = LostWorkerError("it is gone")
    backend = Backend(2, lambda n, m, part: lost if part.number == 1 and m == "step" else None)
    news = []
    often = because("workers-lost-with-part", count=3)
    with raises(LimitError, "part-failed-often", source="f: rows 10 to 19", what=often):
        news.extend(computed(backend, task(retries=2), parts(4)))
    assert backend.started == backend.ended


def test_what_was_done_before_an_error_is_told():
    def fails(number, method, part):
        if part.number == 2:
            time.sleep(0.2)  # the others are done by then
            return GraphError("a row is bad")
        return None

    news = []
    with pytest.raises(GraphError, match="row is bad"):
        news.extend(computed(Backend(3, fails), task(), parts(3)))
    assert done(news) == [0, 1]


def test_who_listens_no_more_ends_all_workers():
    backend = Backend(2)
    news = computed(backend, task(), parts(100))
    next(news)
    news.close()
    assert backend.started == backend.ended > 0


def test_workers_come_when_there_is_room():
    room = iter([False] * 10 + [True] * 100)
    with contextlib.suppress(StopIteration):
        assert done(computed(Backend(1, room=lambda: next(room)), task(), parts(3))) == [0, 1, 2]


def test_where_there_never_is_room_the_run_ends():
    with (
        ResourceLimits(seconds=0.05),
        raises(LimitError, "workers-idle"),
    ):
        list(computed(Backend(2, room=lambda: False), task(), parts(3)))


def test_workers_that_never_start_end_the_run():
    class Broken(Backend):
        def start(self, task, stopped):
            raise LostWorkerError("node 1: it ended at once")

    with pytest.raises(LostWorkerError, match="ended at once"):
        list(computed(Broken(2), task(retries=2), parts(3)))
