"""The backend with Ray actors; each has a worker process on the machine that Ray chose."""

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
"""`value` and a result, or `error` and an exception, which Ray would otherwise wrap."""


@dataclass(frozen=True)
class ActorPlace:
    """The location of a worker, and its version of deploykit."""

    where: str
    version: str = __version__


class PartActor:
    """A process with a PartWorker, on the machine that Ray chose."""

    def __init__(self, task: InferTask, given: ResourceLimits) -> None:
        """Start the process with the resource limits of the driver."""
        limits.take(given)
        worker = ProcessBackend(1).start(task)
        assert worker is not None  # as the backend is not closed
        worker.where = f"{worker.where} of {socket.gethostname()}"
        self._worker = worker

    def place(self) -> ActorPlace:
        """Return the location of the worker."""
        return ActorPlace(self._worker.where)

    def ask(self, method: str, *arguments: Any) -> Outcome:
        """Return the result or the error of a method of the PartWorker."""
        try:
            return "value", self._worker.ask(method, *arguments)
        except (Error, BugError) as error:
            return "error", error


logger = logging.getLogger("deploykit")

_PATIENCE = 0.25
"""Seconds to wait for an actor before the next check."""
_LONG = 20.0
"""Seconds without any worker after which a warning is logged."""
_ON_THE_WAY = 30.0
"""Seconds that a response may take beyond the worker's own deadline."""


@dataclass(frozen=True)
class _Candidate:
    """An actor that may still be waiting for a CPU."""

    actor: Any
    place: Any
    """The pending result of `PartActor.place`."""
    since: float = field(default_factory=time.monotonic)


class RayBackend:
    """Actors in the cluster to which this process is connected."""

    def __init__(self, processes: int) -> None:
        """Start nothing yet."""
        self.processes = processes
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(PartActor)
        self._lock = threading.Lock()
        self._waiting: list[_Candidate] = []
        self._actors: list[Any] = []
        self._closed = self._quiet = False

    def start(self, task: InferTask) -> "RayWorker | None":
        """Return an actor once Ray has a free CPU for it.

        GraphError: deploykit is missing on its machine, or has another version.
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
                               "%d CPUs; waiting for a free one", _LONG, cpus())  # fmt: skip
        return None

    def close(self) -> None:
        """Kill all actors."""
        with self._lock:
            self._closed = True
            for actor in self._actors:
                _end(actor)

    def _begun(self, task: InferTask) -> _Candidate:
        actor = self._kind.remote(task, limits)
        self._actors.append(actor)
        return _Candidate(actor, actor.place.remote())


class RayWorker:
    """A PartWorker on a machine in the cluster."""

    def __init__(self, actor: Any, where: str) -> None:
        """Wrap a running actor."""
        self._actor = actor
        self.where = where

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method. LostWorkerError: the process or machine died or hangs."""
        with _losing(self.where):
            kind, value = ray.get(
                self._actor.ask.remote(method, *arguments), timeout=limits.seconds + _ON_THE_WAY
            )
        if kind == "error":
            raise value
        return value

    def close(self) -> None:
        """Kill the actor together with its worker process."""
        _end(self._actor)


def cpus() -> int:
    """Return the number of CPUs in the cluster."""
    return int(ray.cluster_resources().get("CPU", 0))


def _checked(place: ActorPlace) -> str:
    """Return the location of a worker. GraphError: it has another version of deploykit."""
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
    """Convert Ray's errors to LostWorkerError. GraphError: Ray cannot start a worker."""
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
    (ray.exceptions.ActorUnavailableError, "its machine no longer responds"),
    (ray.exceptions.NodeDiedError, "its machine has failed"),
    (ray.exceptions.ActorDiedError, "it died, or its machine has failed"),
    (ray.exceptions.GetTimeoutError, "it has not responded in time (--timeout)"),
    (ray.exceptions.ObjectStoreFullError, "the object store of Ray is full"),
    (ray.exceptions.OutOfDiskError, "the disk of Ray is full"),
)


def _end(actor: Any) -> None:
    with contextlib.suppress(Exception):  # the actor or the cluster may have ended
        ray.kill(actor)
