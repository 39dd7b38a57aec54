"""A Ray cluster to run workers on: one that runs already, or one of this machine for one run."""

import contextlib
import logging
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator

from deploykit.batch_inference.process_backend import Backend
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.packages import how_to_install, is_installed
from deploykit.transforms.runtime.child_process import limits

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

    from deploykit.batch_inference.ray_backend import RayBackend, cpus

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
