"""The backend with worker processes on this machine, which exit together with their parent."""

import contextlib
import os
import signal
import threading
from typing import Any, Protocol

from deploykit.batch_inference.infer_task import InferTask
from deploykit.benchmarking.run_config import KEEP_MEMORY
from deploykit.transforms.common.errors import CrashError, Error, LimitError
from deploykit.transforms.engines.engines import TENSORFLOW, TITLES
from deploykit.transforms.runtime.child_process import Worker


class LostWorkerError(Error):
    """A worker process or its machine has failed; its work must be retried."""

    exit_status = 6


class RunningWorker(Protocol):
    """A `PartWorker` in another process."""

    where: str
    """A text with its process and machine."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method of the PartWorker.

        Raises the Error of that method. LostWorkerError: the worker is lost or does not respond.
        """
        ...

    def close(self) -> None:
        """Kill the worker."""
        ...


class Backend(Protocol):
    """Starts workers. Several threads may call `start` at the same time."""

    processes: int
    """The number of workers to start."""

    def start(self, task: InferTask) -> RunningWorker | None:
        """Return a new worker; None if all CPUs are in use.

        LostWorkerError: it ended before its first response. Other errors end the run.
        """
        ...

    def close(self) -> None:
        """Stop all workers; pending requests raise LostWorkerError."""
        ...


ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
"""Variables that keep TensorFlow from starting a thread for each core. A session with one thread
is not enough if its graph decodes images."""
PART_WORKER = "deploykit.batch_inference.part_worker:PartWorker"


def worker_environment(task: InferTask) -> tuple[dict[str, str], dict[str, str | None]]:
    """Return the default variables of a worker, and those that override the user's."""
    return dict(KEEP_MEMORY), {**task.settings.environment, **ONE_THREAD}


class ProcessBackend:
    """Worker processes, each on one core of this machine."""

    def __init__(self, processes: int) -> None:
        """Create the backend without workers."""
        self.processes = processes
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, task: InferTask) -> "ProcessWorker | None":
        """Return a new worker process; None if the backend was closed."""
        defaults, forced = worker_environment(task)
        runs = TITLES[task.settings.engine or TENSORFLOW]
        with self._lock:
            if self._closed:
                return None
            process_worker = ProcessWorker(
                Worker(PART_WORKER, task, env=defaults, forced=forced, runs=runs)
            )
            self._running.add(process_worker.pid)
        return process_worker

    def close(self) -> None:
        """Kill all processes; pending requests raise LostWorkerError."""
        with self._lock:
            self._closed = True
            for pid in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class ProcessWorker:
    """A PartWorker in a process on this machine."""

    def __init__(self, worker: Worker) -> None:
        """Wrap a started process."""
        self._worker = worker
        self.pid = worker.pid
        self.where = f"process {worker.pid}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method. LostWorkerError: the process died or hangs."""
        try:
            return self._worker.ask(method, *arguments)
        except (CrashError, LimitError) as error:
            raise error.within(self.where, LostWorkerError) from None

    def close(self) -> None:
        """Kill the process."""
        self._worker.close()
