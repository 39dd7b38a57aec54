"""Batches concurrent requests for the same model; the thread of a waiting request runs each batch.

It uses no scheduler thread and, by default, no batch timeout. The first request runs at once.
Requests that arrive meanwhile form the next batch, which the longest-waiting one runs. So an
unloaded request waits for nothing, and concurrent requests share the overhead of a session run.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deploykit.serving.execution.servable import Servable
from deploykit.serving.protocol.errors import ServingError, refused
from deploykit.serving.protocol.protos import Batching
from deploykit.transforms.ir.tensors import Array

Run = Callable[[Mapping[str, Array], float | None], dict[str, Array]]
"""Runs a batch within the given number of seconds."""
Left = Callable[[], float | None]
"""Returns the seconds until a request's deadline. ServingError: it has passed or was cancelled."""


@dataclass(eq=False)
class _Task:
    """The examples of one request in a batch."""

    feeds: Mapping[str, Array]
    rows: int
    left: Left
    since: float = field(default_factory=time.monotonic)
    leads: bool = False
    """Whether its request runs the batch, also for others; no other request runs this task then."""
    reported: threading.Event = field(default_factory=threading.Event)
    """Set when the task is done or must lead."""
    outputs: dict[str, Array] | None = None
    error: Exception | None = None

    @property
    def done(self) -> bool:
        """Return whether it has outputs or an error."""
        return self.outputs is not None or self.error is not None


@dataclass
class _Queue:
    """Tasks that may share a batch, and the number of requests that run batches of them."""

    tasks: deque[_Task] = field(default_factory=deque)
    leaders: int = 0


class Batches:
    """All queues: one per signature, set of outputs, and shape of an example."""

    def __init__(
        self,
        settings: Batching,
        threads: int,
        observe: Callable[[float, str], None] = lambda *_: None,
    ) -> None:
        """Set the limits; `threads` is the number of batches that run concurrently.

        `observe` is called with each request's seconds in the queue and the thread pool's name.
        """
        self._settings = settings
        self._observe = observe
        self._threads = settings.num_batch_threads or threads
        self._queues: dict[Any, _Queue] = {}
        self._changed = threading.Condition()

    def run(
        self,
        servable: Servable,
        signature: str,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        rows: int,
        left: Left,
        compute: Run,
    ) -> dict[str, Array]:
        """Return the outputs of a request, which may share a batch with others.

        ServingError: the request is too large, the queue is full, the deadline has passed, or the
        model rejects the inputs.
        """
        settings = self._settings
        if rows > settings.max_batch_size:
            raise refused("batch-task-too-large", rows=rows, max_batch_size=settings.max_batch_size)
        if rows > settings.largest:
            parts = [
                self.run(servable, signature, _rows(feeds, start, start + settings.largest),
                         outputs, min(settings.largest, rows - start), left, compute)
                for start in range(0, rows, settings.largest)
            ]  # fmt: skip
            return {name: np.concatenate([part[name] for part in parts]) for name in outputs}
        pads = settings.pad_variable_length_inputs
        kind = [  # what examples must have in common to share a batch
            (name, array.dtype.str, array.ndim if pads else array.shape[1:])
            for name, array in sorted(feeds.items())
        ]
        key = (id(servable), signature, tuple(outputs), *kind)
        return self._shared(key, _Task(feeds, rows, left), compute)

    def _shared(self, key: Any, task: _Task, compute: Run) -> dict[str, Array]:
        with self._changed:
            queue = self._queues.setdefault(key, _Queue())
            size, most = self._settings.largest, self._settings.max_enqueued_batches
            waiting = sum(task.rows for task in queue.tasks)
            if waiting + task.rows > most * size:
                raise ServingError(
                    "UNAVAILABLE",
                    "batch-queue-full",
                    rows=task.rows,
                    capacity=max(0, most * size - waiting),
                    waiting=-(-waiting // size),
                    most=most,
                    size=size,
                )
            queue.tasks.append(task)
            task.leads = queue.leaders < self._threads
            queue.leaders += task.leads
            if self._settings.batch_timeout_micros:
                self._changed.notify_all()
        if not task.leads:
            self._wait(queue, task)
        if task.leads:
            try:
                self._lead(queue, task, compute)
            finally:
                self._pass_on(key, queue)
        if task.error is not None:
            try:
                raise task.error
            finally:
                del task  # breaks the cycle of the error's traceback and this frame
        assert task.outputs is not None
        return task.outputs

    def _wait(self, queue: _Queue, task: _Task) -> None:
        """Wait until the task is done or leads. ServingError: its deadline has passed."""
        try:
            while not task.reported.wait(task.left()):
                pass
        except ServingError:
            with self._changed:
                if task.leads:  # it was just chosen, and others wait for it
                    return
                if task in queue.tasks:
                    queue.tasks.remove(task)
            raise

    def _lead(self, queue: _Queue, own: _Task, compute: Run) -> None:
        """Run a batch of a task and of those queued behind it."""
        batch, name = self._take(queue, own), self._settings.thread_pool_name
        try:
            now = time.monotonic()
            for task in batch:
                self._observe(now - task.since, name)
            _compute(batch, compute, self._settings)
        finally:
            for task in batch:
                if not task.done:
                    task.error = ServingError("INTERNAL", "batch-not-computed")
                task.reported.set()

    def _take(self, queue: _Queue, own: _Task) -> list[_Task]:
        """Return the tasks of a batch; wait for more if a batch timeout is set."""
        most, patience = self._settings.largest, self._settings.batch_timeout_micros / 1e6
        end = time.monotonic() + patience
        with self._changed:
            while patience and sum(task.rows for task in queue.tasks) < most:
                rest = end - time.monotonic()
                if rest <= 0 or not self._changed.wait(rest):
                    break
            batch, rows = [own], own.rows
            for task in queue.tasks:
                if not task.leads:
                    if rows + task.rows > most:
                        break
                    batch.append(task)
                    rows += task.rows
            for task in batch:
                queue.tasks.remove(task)
            return batch

    def _pass_on(self, key: Any, queue: _Queue) -> None:
        """Let the longest-waiting request lead, or stop if none waits."""
        with self._changed:
            waiting = next((task for task in queue.tasks if not task.leads), None)
            if waiting is not None:
                waiting.leads = True
                waiting.reported.set()
                return
            queue.leaders -= 1
            if not queue.leaders and not queue.tasks:
                self._queues.pop(key, None)


def _compute(batch: Sequence[_Task], compute: Run, settings: Batching) -> None:
    """Run a batch and distribute its rows; if it fails, run each task alone."""
    waiting = []
    for task in batch:
        try:
            waiting.append((task, task.left()))
        except ServingError as error:
            task.error = error.with_traceback(None)
    if not waiting:
        return
    tasks = [task for task, _ in waiting]
    times = [seconds for _, seconds in waiting]
    longest = None if None in times else max(times)  # type: ignore[type-var]
    rows = sum(task.rows for task in tasks)
    try:
        result = compute(_joined(tasks, settings.allowed_batch_sizes), longest)
        for name, array in result.items():
            if array.ndim == 0 or len(array) < rows:
                raise ServingError("FAILED_PRECONDITION", "batch-output-rows", name=name)
    except ServingError as error:
        if len(tasks) == 1:
            tasks[0].error = error.with_traceback(None)  # its frames would keep the arrays
            return
        for task in tasks:
            _compute([task], compute, settings)
        return
    start = 0
    for task in tasks:
        task.outputs = _rows(result, start, start + task.rows)
        start += task.rows


def _joined(tasks: Sequence[_Task], sizes: Sequence[int]) -> dict[str, Array]:
    """Return the arrays of all tasks, padded to an allowed batch size with the first example."""
    rows = sum(task.rows for task in tasks)
    padded = next((size for size in sizes if size >= rows), rows)
    results = {}
    for name in tasks[0].feeds:
        arrays = _equalized([task.feeds[name] for task in tasks])
        if padded > rows:
            arrays.append(np.repeat(arrays[0][:1], padded - rows, axis=0))
        results[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return results


def _equalized(arrays: list[Array]) -> list[Array]:
    """Return arrays whose examples have the same shape: smaller ones are padded with zeros."""
    if len({array.shape[1:] for array in arrays}) == 1:
        return arrays
    largest = [max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True)]
    results = []
    for array in arrays:
        empty: Any = b"" if array.dtype == np.object_ else 0
        full = np.full((len(array), *largest), empty, array.dtype)
        full[tuple(slice(size) for size in array.shape)] = array
        results.append(full)
    return results


def _rows(arrays: Mapping[str, Array], start: int, end: int) -> dict[str, Array]:
    return {name: array[start:end] for name, array in arrays.items()}
