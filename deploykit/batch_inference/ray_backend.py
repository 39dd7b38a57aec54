"""Workers as Ray actors: each has a worker process on whichever machine Ray has put it."""

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ray

from deploykit import __version__
from deploykit.batch_inference.infer_task import InferTask
from deploykit.batch_inference.process_backend import LostWorkerError, ProcessBackend
from deploykit.transforms.common.errors import BugError, Error, GraphError
from deploykit.transforms.runtime.child_process import ResourceLimits, limits

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


logger = logging.getLogger("deploykit")

_PATIENCE = 0.25
"""Seconds that Ray is given to find room, before it is asked again."""
_LONG = 20.0
"""Seconds without any worker after which that is said."""
_ON_THE_WAY = 30.0
"""Seconds that an answer may take beyond the worker's own deadline."""


@dataclass(frozen=True)
class _Candidate:
    """An actor that may still be waiting for a CPU."""

    actor: Any
    place: Any
    """What `PartActor.place` will return."""
    since: float = field(default_factory=time.monotonic)


class RayBackend:
    """Actors of the cluster that this process is connected to."""

    def __init__(self, processes: int) -> None:
        """Start nothing yet."""
        self.processes = processes
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(PartActor)
        self._lock = threading.Lock()
        self._waiting: list[_Candidate] = []
        self._actors: list[Any] = []
        self._closed = self._quiet = False

    def start(self, task: InferTask) -> "RayWorker | None":
        """Return an actor once Ray has found room for it.

        GraphError: its machine has no deploykit, or another one.
        """
        with self._lock:
            if self._closed:
                return None
            value = self._waiting.pop() if self._waiting else self._begun(task)
        with _losing("a worker that was to start"):
            if ray.wait([value.place], timeout=_PATIENCE)[0]:
                self._quiet = True
                return RayWorker(value.actor, _checked(ray.get(value.place)))
        with self._lock:
            self._waiting.append(value)
            if not self._quiet and time.monotonic() - value.since > _LONG:
                self._quiet = True
                logger.warning("Ray has had no CPU for a worker for %d seconds; the cluster has "
                               "%d, and waits until one is free", _LONG, cpus())  # fmt: skip
        return None

    def close(self) -> None:
        """End all actors."""
        with self._lock:
            self._closed = True
            for actor in self._actors:
                _end(actor)

    def _begun(self, task: InferTask) -> _Candidate:
        actor = self._kind.remote(task, limits)
        self._actors.append(actor)
        return _Candidate(actor, actor.place.remote())


class RayWorker:
    """A PartWorker on a machine of the cluster."""

    def __init__(self, actor: Any, where: str) -> None:
        """Take an actor that runs."""
        self._actor = actor
        self.where = where

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what a method returns. LostWorkerError: process or machine died, or hang."""
        with _losing(self.where):
            kind, value = ray.get(
                self._actor.ask.remote(method, *arguments), timeout=limits.seconds + _ON_THE_WAY
            )
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """End the actor, and with it the process that computes."""
        _end(self._actor)


def cpus() -> int:
    """Return how many CPUs the cluster has."""
    return int(ray.cluster_resources().get("CPU", 0))


def _checked(place: ActorPlace) -> str:
    """Return where a worker is. GraphError: another deploykit is there."""
    if place.version != __version__:
        raise GraphError(
            "cluster-version-differs",
            source=place.where,
            version=place.version,
            own_version=__version__,
        )
    return place.where


@contextlib.contextmanager
def _losing(where: str) -> Iterator[None]:
    """Let what Ray raises mean that a worker is lost. GraphError: none can be started there."""
    try:
        yield
    except ray.exceptions.RayError as error:
        lines = _COLOUR.sub("", str(error)).strip().splitlines() or [""]
        if getattr(error, "actor_init_failed", False):
            raise GraphError(
                "cluster-worker-failed", reason=lines[-1].strip()[:200], version=__version__
            ) from None
        kinds = [how for kind, how in _LOST if isinstance(error, kind)]
        raise LostWorkerError(
            "worker-lost", source=where, reason=kinds[0] if kinds else lines[0][:200]
        ) from None


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LOST = (
    (ray.exceptions.ActorUnavailableError, "its machine does not answer any more"),
    (ray.exceptions.NodeDiedError, "its machine is gone"),
    (ray.exceptions.ActorDiedError, "it died, or its machine is gone"),
    (ray.exceptions.GetTimeoutError, "it has not answered in time (--timeout)"),
    (ray.exceptions.ObjectStoreFullError, "the object store of Ray is full"),
    (ray.exceptions.OutOfDiskError, "the disk of Ray is full"),
)


def _end(actor: Any) -> None:
    with contextlib.suppress(Exception):  # it has ended, or the cluster has
        ray.kill(actor)
