"""Distributes parts to workers, and retries the parts of lost workers."""

import contextlib
import itertools
import queue
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
"""Seconds between attempts to start a worker."""


@dataclass(frozen=True)
class Loss:
    """A lost worker, and the number of rows of its part that are lost."""

    error: LostWorkerError
    rows: int = 0


News = PartProgress | Loss


class _Workers:
    """Runs parts in workers, which are started when needed and reused; threads share them."""

    def __init__(self, backend: Backend, task: InferTask) -> None:
        self._backend, self._task = backend, task
        self._idle: list[RunningWorker] = []
        self.reported: queue.SimpleQueue[News | Future[None]] = queue.SimpleQueue()
        self.stopped = threading.Event()

    def compute(self, part: DataPart) -> None:
        """Run a part, and again in another worker if its worker is lost."""
        for losses in itertools.count(1):
            worker = self._worker()
            if worker is None:
                return
            rows, done = 0, None
            try:
                worker.ask("begin", part)
                while done is None:
                    progress: PartProgress = worker.ask("step", STEP)
                    rows, done = rows + progress.rows, progress.done
                    self.reported.put(progress)
            except LostWorkerError as error:
                worker.close()
                if self.stopped.is_set():
                    return
                self.reported.put(Loss(error, rows))
                if losses > self._task.retries:
                    raise _too_often(part, losses, error) from None
            except BaseException:
                worker.close()
                raise
            else:
                self._idle.append(worker)
                return

    def close(self) -> None:
        """Stop all workers."""
        self._backend.close()
        while self._idle:
            self._idle.pop().close()

    def _worker(self) -> RunningWorker | None:
        """Return an idle worker or a new one; None after the end. LostWorkerError: none starts."""
        in_vain = 0
        while not self.stopped.is_set():
            with contextlib.suppress(IndexError):
                return self._idle.pop()
            try:
                worker = self._backend.start(self._task)
            except LostWorkerError as error:
                if self.stopped.is_set():
                    break
                self.reported.put(Loss(error))
                in_vain += 1
                if in_vain > self._task.retries:
                    raise
                continue
            if worker is not None:
                return worker
            self.stopped.wait(PAUSE)
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
    workers = _Workers(backend, task)
    pool = ThreadPoolExecutor(min(backend.processes, len(parts)), "asks a worker")
    try:
        futures = [pool.submit(workers.compute, part) for part in parts]
        for future in futures:
            future.add_done_callback(workers.reported.put)
        yield from _reports(workers, futures)
    finally:
        workers.stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        workers.close()
        pool.shutdown(wait=True)
        workers.close()  # those that became idle meanwhile


def _reports(workers: _Workers, futures: Sequence[Future[None]]) -> Generator[News, None, None]:
    """Yield the reports until all parts have ended; raise the first error then."""
    silent, left = 0.0, len(futures)
    failure: BaseException | None = None
    while left:
        try:
            with process_limits.waiting():
                news = workers.reported.get(timeout=PAUSE)
        except queue.Empty:
            silent += PAUSE
            if silent > 2 * limits.seconds:
                raise LimitError("workers-idle", seconds=silent) from None
            continue
        silent = 0.0
        if not isinstance(news, Future):
            yield news
            continue
        left -= 1
        error = None if news.cancelled() else news.exception()
        if error is not None and failure is None:
            failure = error
            workers.stopped.set()
            for future in futures:
                future.cancel()
    if failure is not None:
        raise failure


def _too_often(part: DataPart, losses: int, error: LostWorkerError) -> LimitError:
    often = "its worker was lost" if losses == 1 else f"{losses} workers were lost with it"
    return LimitError("part-failed-often", source=part_name(part), what=often, reason=error)


def part_name(part: DataPart) -> str:
    """Return a text that describes the rows of a part."""
    if len(part.files) > 1:
        return f"{part.files[0]} to {part.files[-1]}"
    return f"{part.files[0]}: rows {part.start} to {part.stop - 1}"
