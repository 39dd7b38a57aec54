"""What lives on a machine of a Ray cluster: an actor that has a worker in a process of its own.

TensorFlow so starts as everywhere else: with its own environment and limits, in a process that may
die alone and ends with the actor, which Ray ends with its driver.
"""

import socket
from dataclasses import dataclass
from typing import Any

from deploykit import __version__
from deploykit.batch_inference.backends.process_backend import ProcessBackend
from deploykit.batch_inference.infer_task import InferTask
from deploykit.transforms.core.errors import BugError, Error
from deploykit.transforms.core.running.child import ResourceLimits, limits

Outcome = tuple[str, Any]
"""`value` and what a method returned, or `error` and what it raised, which Ray would wrap."""


@dataclass(frozen=True)
class ActorPlace:
    """Where a worker is, and which deploykit is there."""

    where: str
    version: str = __version__


class PartActor:
    """A process with a PartWorker, on whichever machine Ray has put it."""

    def __init__(self, task: InferTask, given: ResourceLimits) -> None:
        """Start the process, within the limits of the driver."""
        limits.take(given)
        worker = ProcessBackend(1).start(task)
        assert worker is not None  # as nobody has closed the backend
        worker.where = f"{worker.where} of {socket.gethostname()}"
        self._worker = worker

    def place(self) -> ActorPlace:
        """Return where this is."""
        return ActorPlace(self._worker.where)

    def ask(self, method: str, *arguments: Any) -> Outcome:
        """Return what a method of the PartWorker returns or raises."""
        try:
            return "value", self._worker.ask(method, *arguments)
        except (Error, BugError) as error:
            return "error", error
