"""A running server, and a process that serves until a signal stops it."""

import contextlib
import logging
import os
import queue
import resource
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from deploykit.serving.server.ports import bracketed
from deploykit.serving.server.server import Server
from deploykit.serving.server.server_flags import LOOPBACK
from deploykit.serving.server.settings import ServerSettings, cores
from deploykit.serving.server.shutdown import (
    check_signals,
    obey_signals,
    wait_for_signal,
    was_terminated,
)
from deploykit.transforms.common.documents import AsHtml, written
from deploykit.transforms.runtime import resident_memory
from deploykit.transforms.runtime.memory import keep_less
from deploykit.transforms.runtime.tensorflow_start import expect_sessions

logger = logging.getLogger("deploykit")

_ARENAS = 4  # minimum; two per running thread are as fast as the default of eight
_LOG_SECONDS = 1.0  # between two lines of gRPC's log
_LOOK_SECONDS = 0.5  # maximum delay in handling a signal

Report = TypeVar("Report")
_is_own_process = False  # else the limits of the process are not the server's


@dataclass(frozen=True)
class Ready:
    """The report of a listening server: its ports, and the available versions of each model."""

    port: int
    rest_api_port: int | None
    models: Mapping[str, Sequence[int]]


class RunningServer(AsHtml):
    """A running server, until `close` or the end of a `with` block."""

    def __init__(
        self, settings: ServerSettings, ready: Ready, end: Callable[[bool], object]
    ) -> None:
        """Store the report and `end`, which shuts down, optionally after a lame-duck phase."""
        self.settings = settings
        self.port: int = ready.port
        """The gRPC port."""
        self.rest_api_port: int | None = ready.rest_api_port
        """The REST port; None if REST is disabled."""
        self.models: Mapping[str, Sequence[int]] = ready.models
        """The versions of each model that were available when the server started to listen."""
        self._end = end
        self._closed = threading.Event()
        self._closing = threading.Lock()

    @property
    @written(flat=True)
    def _reachable_at(self) -> dict[str, Any]:
        return {
            "host": self.settings.host,
            "port": self.port,
            "grpc_socket_path": self.settings.grpc_socket_path or None,
            "rest_api_port": self.rest_api_port,
            "pid": os.getpid(),
            "models": self.models,
        }

    @property
    def address(self) -> str:
        """The address for `deploykit.predict`, `status` and `load_test` on this machine."""
        return f"{bracketed(_reached(self.settings.host))}:{self.port}"

    @property
    @written()
    def rest_url(self) -> str | None:
        """The base URL of REST on this machine; None if REST is disabled."""
        host = bracketed(_reached(self.settings.host))
        scheme = "https" if self.settings.tls and not self.settings.rest_plain else "http"
        return None if self.rest_api_port is None else f"{scheme}://{host}:{self.rest_api_port}/v1"

    def wait(self) -> None:
        """Return once it is closed, by another thread or Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            while not (wait_for_signal(_LOOK_SECONDS) or self._closed.is_set()):
                pass
        self.close(lame_duck=was_terminated())

    def close(self, lame_duck: bool = False) -> None:
        """Reject new requests, complete those in progress, and stop. A second call has no effect.

        With `lame_duck`, it first serves for `lame_duck_seconds` while health reports NOT_SERVING,
        so that clients switch to another server. SIGTERM does so for `deploykit serve`.
        """
        with self._closing:  # a concurrent call waits until it is closed
            if not self._closed.is_set():
                self._closed.set()
                self._end(lame_duck)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reached(host: str) -> str:
    """Return the address of a host on this machine, which may mean all interfaces."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)


def start(settings: ServerSettings) -> RunningServer:
    """Serve in threads of this process; return once it listens.

    Error, ServingError: as in `Server`, before it listens. KeyboardInterrupt: a signal arrived.
    """
    if _is_own_process and settings.memory_limit is not None:
        resident_memory.bound_address_space((settings.memory_limit << 20) // settings.workers)
    server = Server(settings)
    started: Future[None] = Future()

    def begin() -> None:
        try:
            server.start()
        except BaseException as error:
            server.drain(0)
            started.set_exception(error)
        else:
            started.set_result(None)

    # TensorFlow may load for long, and Python handles signals only in a thread that runs Python.
    threading.Thread(target=begin, daemon=True).start()
    try:
        while not wait([started], _LOOK_SECONDS).done:
            check_signals()
    except KeyboardInterrupt:
        started.add_done_callback(lambda _: server.drain(0))
        raise
    started.result()
    rest = server.rest.port if server.rest is not None else None
    ready = Ready(server.port, rest, server.available)
    return RunningServer(settings, ready, lambda lame_duck: _drain(server, lame_duck))


def _drain(server: Server, lame_duck: bool) -> None:
    settings = server.settings
    before = settings.lame_duck_seconds if lame_duck else 0.0
    try:
        answered = server.drain(settings.drain_seconds, before)
    except BaseException:  # Ctrl-C in a notebook: stop at once
        server.drain(0)
        raise
    if not answered:
        logger.warning("requests that took longer than --drain_seconds were cancelled")


def own_process() -> None:
    """Configure a process that only serves: file limit, memory, gRPC's log, signals.

    The first SIGTERM or Ctrl-C stops the wait for startup or the running server. The second one
    ends the process at once. SIGHUP has no effect.
    """
    global _is_own_process
    _is_own_process = True
    expect_sessions()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection needs a file
    keep_less(max(_ARENAS, 2 * cores()))
    _quiet_grpc()
    obey_signals()


def next_of(reports: "queue.SimpleQueue[Report]") -> Report:
    """Return the next report. KeyboardInterrupt: a signal arrived before it."""
    while True:
        check_signals()
        with contextlib.suppress(queue.Empty):
            return reports.get(timeout=_LOOK_SECONDS)


def _quiet_grpc() -> None:
    """Limit gRPC's log to short lines without tracebacks: bad requests cause messages."""
    last = -_LOG_SECONDS

    def seldom(record: logging.LogRecord) -> bool:
        nonlocal last
        if record.created - last < _LOG_SECONDS:
            return False
        last = record.created
        if record.exc_info:
            error = record.exc_info[1]
            record.msg = f"gRPC: {record.getMessage()} {type(error).__name__}: {error}"[:300]
            record.args, record.exc_info, record.exc_text = (), None, None
        return True

    log = logging.getLogger("grpc")
    log.handlers = list(logger.handlers)
    log.propagate = False
    for name in ("grpc", "grpc._server", "grpc._common"):
        logging.getLogger(name).addFilter(seldom)
