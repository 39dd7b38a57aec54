"""Connects to a running Ray cluster, or starts a local one for a single run."""

import contextlib
import logging
import os
import re
import signal
import tempfile
import threading
from collections.abc import Iterator

from deploykit.batch_inference.process_backend import Backend
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import FileError, GraphError, cannot_be
from deploykit.transforms.engines.packages import how_to_install, is_installed
from deploykit.transforms.runtime.child_process import limits
from deploykit.transforms.untrusted.file_locks import note
from deploykit.transforms.untrusted.files import check_socket_path

LOCAL, AUTO = "local", "auto"
ADDRESS = "RAY_ADDRESS"
"""Ray's environment variable for the address of a cluster."""

_PLACE = re.compile(r"([^\s/:@]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
_SECONDS = 5.0
"""Seconds to wait for the first response of a cluster."""
_TLS = "RAY_USE_TLS"
_STORE = 80 << 20
"""Bytes of the object store of a local cluster: Ray's minimum, as it is almost unused."""
_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If this variable is 0, as on Windows and macOS, Ray only listens on the loopback interface."""
_SOCKET = "session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""The longest path of a socket below the folder of Ray; it contains the time and process id."""
_SHORT = "/tmp"
"""The folder to use where the path of the usual one is too long for sockets."""


def check_ray(address: str | None) -> str:
    """Return the address of the cluster to use.

    GraphError: the address is invalid, or Ray is not installed.
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
    """Connect to a cluster, and yield a backend with the given number of workers.

    The default is one worker per CPU. An existing connection of this process to Ray is used and
    stays open. GraphError: the cluster does not exist, or the connection fails.
    """
    _set_before_import(address)
    import ray

    from deploykit.batch_inference.ray_backend import RayBackend, cpus

    with contextlib.ExitStack() as undo:
        if not ray.is_initialized():
            undo.enter_context(_connected(address, processes))
        yield RayBackend(processes or max(1, cpus()))


def _set_before_import(address: str) -> None:
    """Set variables that Ray reads when imported; the user's values take precedence.

    A local cluster is only reachable from this machine and sends no usage data. Ray's output about
    lost workers on standard output is turned off, because deploykit logs them.
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
        if threading.current_thread() is threading.main_thread():  # Ray replaces the handler
            undo.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
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
    """Raise GraphError if no cluster responds; Ray itself would wait for minutes."""
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
    """Create a temporary folder for Ray with a path short enough for its sockets.

    FileError: no such folder can be created.
    """
    with contextlib.ExitStack() as undo:
        try:
            folder = undo.enter_context(_folder_in(tempfile.gettempdir()))
        except FileError as error:
            try:
                folder = undo.enter_context(_folder_in(_SHORT))
            except FileError:
                raise error from None
        yield folder


@contextlib.contextmanager
def _folder_in(place: str) -> Iterator[str]:
    """Create a temporary folder for Ray. FileError: its path is too long, or it cannot be made."""
    check_socket_path(os.path.join(place, "ray-01234567", _SOCKET), " (TMPDIR)")
    try:
        made = tempfile.TemporaryDirectory(prefix="ray-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        raise cannot_be("made", place, error) from None
    note(made.name)  # also removed if the process is killed
    with made as folder:
        yield folder
