"""The backend with worker processes on this machine, which exit together with their parent."""

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

    def start(self, task: InferTask, stopped: threading.Event) -> RunningWorker | None:
        """Return a new worker once there is a CPU for it; None once `stopped` is set.

        LostWorkerError: it ended before its first response. Other errors end the run.
        """
        ...

    def close(self) -> None:
        """Kill all workers; pending requests raise LostWorkerError."""
        ...


ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
"""Variables that keep TensorFlow from starting a thread for each core. A session with one thread
is not enough if its graph decodes images."""
PART_WORKER = "deploykit.batch_inference.part_worker:PartWorker"


class ProcessWorker(Worker):
    """A PartWorker in a process on this machine."""

    def __init__(self, task: InferTask) -> None:
        """Start the process."""
        super().__init__(
            PART_WORKER,
            task,
            env=KEEP_MEMORY,
            forced={**task.settings.environment, **ONE_THREAD},
            runs=TITLES[task.settings.engine or TENSORFLOW],
        )
        self.where = f"process {self.pid}"

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method. LostWorkerError: the process died or hangs."""
        try:
            return super().ask(method, *arguments)
        except (CrashError, LimitError) as error:
            raise error.within(self.where, LostWorkerError) from None

    def kill(self) -> None:
        """Kill the process while another thread may wait for it."""
        self._child.process.kill()


class ProcessBackend:
    """Worker processes, each on one core of this machine."""

    def __init__(self, processes: int) -> None:
        """Create the backend without workers."""
        self.processes = processes
        self._workers: list[ProcessWorker] = []

    def start(self, task: InferTask, stopped: threading.Event) -> ProcessWorker:
        """Return a new worker process."""
        self._workers.append(worker := ProcessWorker(task))
        return worker

    def close(self) -> None:
        """Kill all processes; pending requests raise LostWorkerError."""
        for worker in self._workers:
            worker.kill()
