"""The backend with Ray actors; each has a worker process on the machine that Ray chose."""

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray

from deploykit import __version__
from deploykit.batch_inference.infer_task import InferTask
from deploykit.batch_inference.process_backend import LostWorkerError, ProcessWorker
from deploykit.transforms.common.errors import BugError, Error, GraphError
from deploykit.transforms.runtime.child_process import ResourceLimits, limits


class PartActor:
    """A process with a PartWorker, on the machine that Ray chose."""

    def __init__(self, task: InferTask, given: ResourceLimits) -> None:
        """Start the process with the resource limits of the driver."""
        limits.take(given)
        self._worker = ProcessWorker(task)
        self._worker.where += f" of {socket.gethostname()}"

    def place(self) -> tuple[str, str]:
        """Return the location of the worker, and its version of deploykit."""
        return self._worker.where, __version__

    def ask(self, method: str, *arguments: Any) -> tuple[Any, Exception | None]:
        """Return the result of a method of the PartWorker, or its error, which Ray would wrap."""
        try:
            return self._worker.ask(method, *arguments), None
        except (Error, BugError) as error:
            return None, error


logger = logging.getLogger("deploykit")

_PATIENCE = 0.25
"""Seconds to wait for an actor before the next check."""
_LONG = 20.0
"""Seconds without any worker after which a warning is logged."""
_ON_THE_WAY = 30.0
"""Seconds that a response may take beyond the worker's own deadline."""


class RayBackend:
    """Actors in the cluster to which this process is connected."""

    def __init__(self, processes: int) -> None:
        """Start nothing yet."""
        self.processes = processes
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(PartActor)
        self._actors: list[Any] = []
        self._warning = threading.Lock()  # never released, so that it is logged once

    def start(self, task: InferTask, stopped: threading.Event) -> "RayWorker | None":
        """Return an actor once Ray has a free CPU for it; None once `stopped` is set.

        GraphError: deploykit is missing on its machine, or has another version.
        """
        since = time.monotonic()
        with _losing("a worker that was to start"):
            self._actors.append(actor := self._kind.remote(task, limits))
            place = actor.place.remote()
            while not ray.wait([place], timeout=_PATIENCE)[0]:
                if stopped.is_set():
                    _end(actor)
                    return None
                is_long = time.monotonic() - since > _LONG
                if is_long and self._warning.acquire(blocking=False):
                    logger.warning(
                        "Ray has had no CPU for a worker for %d seconds; the cluster has %d CPUs; "
                        "waiting for a free one",
                        _LONG,
                        cpus(),
                    )
            self._warning.acquire(blocking=False)
            where, version = ray.get(place)
        if version != __version__:
            raise GraphError(
                "cluster-version-differs", source=where, version=version, own_version=__version__
            )
        return RayWorker(actor, where)

    def close(self) -> None:
        """Kill all actors; pending requests raise LostWorkerError."""
        for actor in self._actors:
            _end(actor)


class RayWorker:
    """A PartWorker on a machine in the cluster."""

    def __init__(self, actor: Any, where: str) -> None:
        """Wrap a running actor."""
        self._actor = actor
        self.where = where

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method. LostWorkerError: the process or machine died or hangs."""
        with _losing(self.where):
            result, error = ray.get(
                self._actor.ask.remote(method, *arguments), timeout=limits.seconds + _ON_THE_WAY
            )
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        """Kill the actor together with its worker process."""
        _end(self._actor)


def cpus() -> int:
    """Return the number of CPUs in the cluster."""
    return int(ray.cluster_resources().get("CPU", 0))


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
