"""Workers as Ray actors, on a running cluster or on one started for this run."""

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ray

from deploykit import __version__
from deploykit.batch_inference.infer_task import InferTask
from deploykit.batch_inference.process_backend import Backend, LostWorkerError, ProcessBackend
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import BugError, Error, GraphError
from deploykit.transforms.engines.packages import how_to_install, is_installed
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


LOCAL, AUTO = "local", "auto"
ADDRESS = "RAY_ADDRESS"
"""Ray's own variable for the address of a cluster."""

_PLACE = re.compile(r"([^\s/:@]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_SECONDS = 5.0
"""For a first answer of a cluster."""
_TLS = "RAY_USE_TLS"
_STORE = 80 << 20
"""Bytes of the object store of a cluster of our own, through which next to nothing goes; Ray takes
no less."""
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Where this is 0, as on these systems, Ray listens on the loopback interface alone."""
_LONGEST = 40
"""Characters of a temporary folder, below which Ray makes sockets of 107 at most."""


def check_ray(address: str | None) -> str:
    """Return the address of the cluster that is meant.

    GraphError: it is none, or Ray is not installed.
    """
    if not is_installed("ray"):
        raise GraphError("ray-not-installed", install=how_to_install("ray"))
    result = address or os.environ.get(ADDRESS) or LOCAL
    if result.startswith("ray://"):
        raise GraphError("ray-client-address", address=result)
    if result not in (LOCAL, AUTO) and not _PLACE.fullmatch(result):
        raise GraphError(
            "unexpected",
            what="the address",
            got=result,
            expected="HOST:PORT of the head node of Ray, such as 10.0.0.7:6379, or local",
        )
    return result


@contextlib.contextmanager
def ray_cluster(address: str, processes: int | None) -> Iterator[Backend]:
    """Connect to a cluster, and yield a backend of so many workers; one for each CPU by default.

    Where this process is connected to Ray already, that cluster is taken, and stays connected.
    GraphError: there is none, or it cannot be connected to.
    """
    _set_before_import(address)
    import ray

    with contextlib.ExitStack() as undo:
        if not ray.is_initialized():
            undo.enter_context(_connected(address, processes))
        yield RayBackend(processes or max(1, cpus()))


def _set_before_import(address: str) -> None:
    """Set variables that Ray reads when it is imported; what the user has set wins.

    A cluster of our own is reached from this machine alone, and tells nobody of itself. What Ray
    prints of lost workers, on standard output, is left out: it is said in a sentence anyway.
    """
    if address == LOCAL:
        os.environ.setdefault(_CLUSTERS, "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not limits.show_log:
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")


@contextlib.contextmanager
def _connected(address: str, processes: int | None) -> Iterator[None]:
    import ray

    with contextlib.ExitStack() as undo:
        undo.enter_context(_own_signals())
        logging.getLogger("ray").setLevel(logging.ERROR)
        how: dict[str, object] = {}
        if address == LOCAL:
            how = {
                "num_cpus": processes or usable_cores(),
                "include_dashboard": False,
                "object_store_memory": _STORE,
                "_temp_dir": undo.enter_context(_short_folder()),
            }
        else:
            _check_answers(address)
        try:
            ray.init(address=address, log_to_driver=limits.show_log, configure_logging=False, **how)
        except (Exception, SystemExit) as error:
            first = str(error).strip().partition("\n")[0][:300].rstrip(".")
            where = "" if address == LOCAL else f"{address}: "
            raise GraphError("ray-connect-failed", where=where, reason=first) from None
        undo.callback(ray.shutdown)
        yield


def _check_answers(address: str) -> None:
    """Raise GraphError where no cluster answers, for which Ray itself would wait minutes."""
    import grpc
    from grpc_health.v1.health_pb2 import HealthCheckRequest
    from grpc_health.v1.health_pb2_grpc import HealthStub

    if address == AUTO or os.environ.get(_TLS, "0") != "0":
        return
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            HealthStub(channel).Check(HealthCheckRequest(), timeout=_SECONDS)
        except grpc.RpcError as error:
            raise GraphError(
                "ray-head-missing", source=address, status=error.code().name, local=LOCAL
            ) from None


@contextlib.contextmanager
def _short_folder() -> Iterator[str]:
    """Yield a temporary folder for Ray, whose name leaves room for those of its sockets."""
    usual = tempfile.gettempdir()
    place = usual if len(usual) <= _LONGEST else "/tmp"
    folder = tempfile.mkdtemp(prefix="ray-", dir=place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what a SIGTERM does, which Ray changes when it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
