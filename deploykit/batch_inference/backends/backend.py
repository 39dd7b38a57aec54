"""What a backend offers: workers that it starts, each of which answers one question at a time."""

from typing import Any, Protocol

from deploykit.batch_inference.infer_task import InferTask
from deploykit.transforms.core.errors import Error


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
