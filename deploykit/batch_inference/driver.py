"""Distributes parts to workers, and retries the parts of lost workers."""

import queue
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from deploykit.batch_inference.infer_task import InferTask, PartProgress
from deploykit.batch_inference.process_backend import Backend, LostWorkerError, RunningWorker
from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.transforms.common.errors import Error, LimitError
from deploykit.transforms.runtime import process_limits
from deploykit.transforms.runtime.child_process import limits

STEP = 0.25
"""Seconds that a worker runs before it reports progress."""
PAUSE = 0.5
"""Seconds between attempts to start a worker."""
ENDING = 10.0
"""Maximum seconds to wait for a thread and its worker to end."""


class PartsToDo:
    """The parts that are not started yet, and how often each was lost. It is thread-safe."""

    def __init__(self, parts: Sequence[DataPart], retries: int) -> None:
        """Store parts in the order in which they are started."""
        self._waiting = deque(parts)
        self._unfinished = len(parts)
        self._retries = retries
        self._losses: dict[int, int] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self.failure: BaseException | None = None

    @property
    def ended(self) -> bool:
        """Whether all parts are done, or the run has been stopped."""
        return self._stopped or not self._unfinished

    def wait(self) -> bool:
        """Wait until a part is available; return False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self.ended or self._waiting)
            return not self.ended

    def take(self) -> DataPart | None:
        """Return the next part; None if another thread has just taken it."""
        with self._changed:
            return self._waiting.popleft() if self._waiting and not self.ended else None

    def finished(self) -> None:
        """Count a part as done."""
        with self._changed:
            self._unfinished -= 1
            self._changed.notify_all()

    def lost(self, part: DataPart, error: Error) -> None:
        """Schedule a lost part again, unless it was lost too often."""
        losses = self._losses[part.number] = self._losses.get(part.number, 0) + 1
        if losses > self._retries:
            often = "its worker was lost" if losses == 1 else f"{losses} workers were lost with it"
            self.fail(
                LimitError("part-failed-often", source=part_name(part), what=often, reason=error)
            )
            return
        with self._changed:
            self._waiting.appendleft(part)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Stop the run with an error; only the first error is kept."""
        with self._changed:
            if not self.ended:
                self.failure = error
        self.stop()

    def stop(self) -> None:
        """Start no more parts."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def part_name(part: DataPart) -> str:
    """Return a text that describes the rows of a part."""
    if len(part.files) > 1:
        return f"{part.files[0]} to {part.files[-1]}"
    return f"{part.files[0]}: rows {part.start} to {part.stop - 1}"


@dataclass(frozen=True)
class Loss:
    """A lost worker, and the number of rows of its part that are lost."""

    error: LostWorkerError
    rows: int = 0


News = PartProgress | Loss


class _Shift(threading.Thread):
    """A thread that controls a worker, and replaces it if it is lost."""

    def __init__(
        self,
        backend: Backend,
        task: InferTask,
        parts: PartsToDo,
        reported: "queue.SimpleQueue[News | None]",
    ) -> None:
        super().__init__(daemon=True, name="asks a worker")
        self._backend, self._task, self._parts, self._told = backend, task, parts, reported
        self._worker: RunningWorker | None = None
        self._in_vain = 0
        self._rows = 0

    def run(self) -> None:
        """Run parts until there are no more."""
        try:
            while self._parts.wait():
                self._do_one()
        except BaseException as error:
            self._parts.fail(error)
        finally:
            self._end_worker()
            self._told.put(None)

    def _do_one(self) -> None:
        part = None
        try:
            if self._worker is None:
                self._worker = self._backend.start(self._task)
            if self._worker is None:
                time.sleep(PAUSE)
            elif (part := self._parts.take()) is not None:
                self._compute(self._worker, part)
        except LostWorkerError as error:
            self._end_worker()
            if self._parts.ended:
                return
            self._told.put(Loss(error, self._rows if part is not None else 0))
            if part is not None:
                self._parts.lost(part, error)
                return
            self._in_vain += 1
            if self._in_vain > self._task.retries:
                raise

    def _compute(self, worker: RunningWorker, part: DataPart) -> None:
        self._rows, done = 0, None
        worker.ask("begin", part)
        while done is None:
            progress: PartProgress = worker.ask("step", STEP)
            self._rows += progress.rows
            done = progress.done
            if done is not None:
                self._in_vain = 0
                self._parts.finished()
            self._told.put(progress)

    def _end_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


def computed(
    backend: Backend, task: InferTask, parts: Sequence[DataPart]
) -> Generator[News, None, None]:
    """Run all parts, and yield the progress and the losses of workers.

    Each finished part is yielded once. All workers end when the generator ends or is closed.

    LimitError: a part lost its worker too often, or no worker can start. Raises the errors of
    workers too.
    """
    to_do = PartsToDo(parts, task.retries)
    reported: queue.SimpleQueue[News | None] = queue.SimpleQueue()
    shifts = [
        _Shift(backend, task, to_do, reported) for _ in range(min(backend.processes, len(parts)))
    ]
    try:
        for shift in shifts:
            shift.start()
        yield from _heard(reported, len(shifts), to_do)
    finally:
        to_do.stop()
        backend.close()
        for shift in shifts:
            shift.join(timeout=ENDING)
    if to_do.failure is not None:
        raise to_do.failure


def _heard(
    reported: "queue.SimpleQueue[News | None]", working: int, to_do: PartsToDo
) -> Iterator[News]:
    """Yield the reports of the threads until all threads have ended."""
    silent = 0.0
    while working:
        try:
            with process_limits.waiting():
                news = reported.get(timeout=PAUSE)
        except queue.Empty:
            silent += PAUSE
            if silent > 2 * limits.seconds:
                to_do.fail(LimitError("workers-idle", seconds=silent))
                return
            continue
        silent = 0.0
        if news is None:
            working -= 1
        else:
            yield news
