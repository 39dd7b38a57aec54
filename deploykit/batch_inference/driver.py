"""Distributes parts to workers, and retries the parts of lost workers."""

import queue
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deploykit.batch_inference.infer_task import InferTask, PartProgress
from deploykit.batch_inference.process_backend import Backend, LostWorkerError, RunningWorker
from deploykit.batch_inference.reading.data_parts import DataPart
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.runtime import process_limits
from deploykit.transforms.runtime.child_process import limits

STEP = 0.25
"""Seconds that a worker runs before it reports progress."""
PAUSE = 0.5
"""Seconds to wait for a report."""


@dataclass(frozen=True)
class Loss:
    """A lost worker, and the number of rows of its part that are lost."""

    error: LostWorkerError
    rows: int = 0


News = PartProgress | Loss


class _PartsQueue:
    """The parts to run, and the reports of the threads that run them in workers."""

    def __init__(self, backend: Backend, task: InferTask, parts: Sequence[DataPart]) -> None:
        self._backend, self._task = backend, task
        self._waiting = deque((part, 0) for part in parts)  # with the number of lost workers
        self.reported: queue.SimpleQueue[News | BaseException | None] = queue.SimpleQueue()
        self.stopped = threading.Event()

    def work(self) -> None:
        """Run parts in one worker at a time; report an error, and None at the end."""
        worker: RunningWorker | None = None
        try:
            while self._waiting and not self.stopped.is_set():
                if worker is None:
                    worker = self._started()
                elif not self._compute(worker):
                    worker.close()
                    worker = None
        except BaseException as error:
            self.reported.put(error)
        finally:
            try:
                if worker is not None:
                    worker.close()
            finally:
                self.reported.put(None)

    def _compute(self, worker: RunningWorker) -> bool:
        """Run the next part; False if the worker is lost. LimitError: the part lost too many."""
        try:
            part, losses = self._waiting.popleft()
        except IndexError:  # another thread was faster
            return True
        rows, done = 0, None
        try:
            worker.ask("begin", part)
            while done is None:
                progress: PartProgress = worker.ask("step", STEP)
                rows, done = rows + progress.rows, progress.done
                self.reported.put(progress)
        except LostWorkerError as error:
            if self.stopped.is_set():
                return False
            self.reported.put(Loss(error, rows))
            if losses >= self._task.retries:
                raise _too_often(part, losses + 1, error) from None
            self._waiting.appendleft((part, losses + 1))
            return False
        return True

    def _started(self) -> RunningWorker | None:
        """Return a new worker; None after the end. LostWorkerError: none starts."""
        for attempt in range(self._task.retries + 1):
            try:
                return self._backend.start(self._task, self.stopped)
            except LostWorkerError as error:
                if self.stopped.is_set():
                    break
                self.reported.put(Loss(error))
                if attempt == self._task.retries:
                    raise
        return None


def computed(
    backend: Backend, task: InferTask, parts: Sequence[DataPart]
) -> Generator[News, None, None]:
    """Run all parts, and yield the progress and the losses of workers.

    Each finished part is yielded once. After an error, parts that are running are finished. All
    workers end when the generator ends or is closed.

    LimitError: a part lost its worker too often, or no worker can start. Raises the errors of
    workers too.
    """
    waiting = _PartsQueue(backend, task, parts)
    threads = min(backend.processes, len(parts))
    pool = ThreadPoolExecutor(threads, "asks a worker")
    try:
        for _ in range(threads):
            pool.submit(waiting.work)
        yield from _reports(waiting, len(parts), threads)
    finally:
        waiting.stopped.set()
        backend.close()
        pool.shutdown()


def _reports(waiting: _PartsQueue, parts: int, threads: int) -> Generator[News, None, None]:
    """Yield the reports until all parts are done; after an error, until all threads have ended."""
    silent = 0.0
    failure: BaseException | None = None
    while parts and threads:
        try:
            with process_limits.waiting():
                news = waiting.reported.get(timeout=PAUSE)
        except queue.Empty:
            silent += PAUSE
            if silent > 2 * limits.seconds:
                raise LimitError("workers-idle", seconds=silent) from None
            continue
        silent = 0.0
        if news is None:
            threads -= 1
        elif isinstance(news, BaseException):
            failure = failure or news
            waiting.stopped.set()
        else:
            parts -= isinstance(news, PartProgress) and news.done is not None
            yield news
    if parts and failure is not None:
        raise failure


def _too_often(part: DataPart, losses: int, error: LostWorkerError) -> LimitError:
    often = "its worker was lost" if losses == 1 else f"{losses} workers were lost with it"
    rows = f"{part.files[0]}: rows {part.start} to {part.stop - 1}"
    source = f"{part.files[0]} to {part.files[-1]}" if len(part.files) > 1 else rows
    return LimitError("part-failed-often", source=source, what=often, reason=error)
