"""Workers as processes on this machine, which exit together with their parent."""

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
    """A worker is gone, with its process or its machine; what it was at is to be done again."""

    exit_status = 6


class RunningWorker(Protocol):
    """A `PartWorker` in another process."""

    where: str
    """Its process and machine, for people."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the PartWorker returns.

        An Error raised there is raised here. LostWorkerError: it is gone, or does not answer.
        """
        ...

    def close(self) -> None:
        """End it at once."""
        ...


class Backend(Protocol):
    """Where workers run. `start` is called by several threads at once."""

    processes: int
    """How many workers there are to be."""

    def start(self, task: InferTask) -> RunningWorker | None:
        """Return a worker that has loaded nothing yet; None: there is no more room for one now.

        LostWorkerError: it ended before it answered. Other errors end the work.
        """
        ...

    def close(self) -> None:
        """End what is left of it; who waits for a worker hears that it is lost."""
        ...


ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
"""What keeps TensorFlow from starting a thread for each core: a session of one thread is not
enough where its graph decodes photos."""
PART_WORKER = "deploykit.batch_inference.part_worker:PartWorker"


def worker_environment(task: InferTask) -> tuple[dict[str, str], dict[str, str | None]]:
    """Return variables of a worker that the user may have set otherwise, and those that are set."""
    return dict(KEEP_MEMORY), {**task.settings.environment, **ONE_THREAD}


class ProcessBackend:
    """Processes, each of which has a core of this machine."""

    def __init__(self, processes: int) -> None:
        """Start nothing yet."""
        self.processes = processes
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, task: InferTask) -> "ProcessWorker | None":
        """Return a new process; None: the backend was closed."""
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
        """End all processes; who waits for one hears that it is lost."""
        with self._lock:
            self._closed = True
            for pid in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class ProcessWorker:
    """A PartWorker in a process of this machine."""

    def __init__(self, worker: Worker) -> None:
        """Take a process that was started."""
        self._worker = worker
        self.pid = worker.pid
        self.where = f"process {worker.pid}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method returns. LostWorkerError: the process died, or hangs."""
        try:
            return self._worker.ask(method, *arguments)
        except (CrashError, LimitError) as error:
            raise error.within(self.where, LostWorkerError) from None

    def close(self) -> None:
        """End the process."""
        self._worker.close()
