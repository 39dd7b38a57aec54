"""A server that runs, and a process that does nothing else until a signal ends it."""

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
    at_hangup,
    check_signals,
    forget_hangup,
    obey_signals,
    wait_for_signal,
    was_terminated,
)
from deploykit.transforms.common.documents import AsHtml, written
from deploykit.transforms.runtime.memory import keep_less
from deploykit.transforms.runtime.tensorflow_start import expect_sessions

logger = logging.getLogger("deploykit")

_ARENAS = 4  # at least; two for each thread that computes is as quick as eight
_LOG_SECONDS = 1.0  # between two lines of gRPC's own log
_LOOK_SECONDS = 0.5  # at most, until a signal is acted upon

Report = TypeVar("Report")


@dataclass(frozen=True)
class Ready:
    """What a server says when it listens: where, and the available versions of each model."""

    port: int
    rest_api_port: int | None
    models: Mapping[str, Sequence[int]]


class RunningServer(AsHtml):
    """A server that listens, until `close` or the end of a `with` block."""

    def __init__(
        self, settings: ServerSettings, ready: Ready, end: Callable[[bool], object]
    ) -> None:
        """Keep what it says, and what ends it, as a lame duck at first or not."""
        self.settings = settings
        self.port: int = ready.port
        """Of gRPC."""
        self.rest_api_port: int | None = ready.rest_api_port
        """None: there is no REST."""
        self.models: Mapping[str, Sequence[int]] = ready.models
        """The versions of each model that were available when it began to listen."""
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
        """Where `deploykit.predict`, `status` and `load_test` reach it from this machine."""
        return f"{bracketed(_reached(self.settings.host))}:{self.port}"

    @property
    @written()
    def rest_url(self) -> str | None:
        """Where REST begins, seen from this machine; None: there is none."""
        host = bracketed(_reached(self.settings.host))
        scheme = "https" if self.settings.tls and not self.settings.rest_plain else "http"
        return None if self.rest_api_port is None else f"{scheme}://{host}:{self.rest_api_port}/v1"

    def wait(self, ending: Callable[[], object] = lambda: None) -> None:
        """Return once it is closed: by another thread, or by Ctrl-C here. `ending` runs before."""
        with contextlib.suppress(KeyboardInterrupt):
            while not (wait_for_signal(_LOOK_SECONDS) or self._closed.is_set()):
                pass
        ending()
        self.close(lame_duck=was_terminated())

    def close(self, lame_duck: bool = False) -> None:
        """Refuse new calls, answer those in flight, and end; what is closed stays so.

        As a lame duck it first answers calls as ever for `lame_duck_seconds`, while health says
        that it ends, so that callers find another server. SIGTERM asks `deploykit serve` for that.
        """
        with self._closing:  # whoever else closes it waits as well
            if not self._closed.is_set():
                self._closed.set()
                self._end(lame_duck)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reached(host: str) -> str:
    """Return where this machine reaches what listens on a host, which may be all interfaces."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)


def start(settings: ServerSettings) -> RunningServer:
    """Serve in threads of this process; return once it listens.

    Error, ServingError: as `Server`, before it listens. KeyboardInterrupt: it is to end already.
    """
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

    # TensorFlow may load for long, and signals only reach a thread that runs Python.
    threading.Thread(target=begin, daemon=True).start()
    try:
        while not wait([started], _LOOK_SECONDS).done:
            check_signals()
    except KeyboardInterrupt:
        started.add_done_callback(lambda _: server.drain(0))
        raise
    started.result()
    at_hangup(server.reopen_log)
    rest = server.rest.port if server.rest is not None else None
    ready = Ready(server.port, rest, server.available)
    return RunningServer(settings, ready, lambda lame_duck: _drain(server, lame_duck))


def _drain(server: Server, lame_duck: bool) -> None:
    forget_hangup(server.reopen_log)
    settings = server.settings
    before = settings.lame_duck_seconds if lame_duck else 0.0
    try:
        answered = server.drain(settings.drain_seconds, before)
    except BaseException:  # Ctrl-C in a notebook: at once
        server.drain(0)
        raise
    if not answered:
        logger.warning("calls were cut off that took longer than --drain_seconds")


def own_process() -> None:
    """Prepare a process that does nothing but serve: files, memory, gRPC's log, signals.

    The first SIGTERM or Ctrl-C ends a wait for a server or of a server; the second one ends the
    process at once. SIGHUP lets logs be opened again.
    """
    expect_sessions()
    _raise_file_limit()
    keep_less(max(_ARENAS, 2 * cores()))
    _quiet_grpc()
    obey_signals()


def next_of(reports: "queue.SimpleQueue[Report]") -> Report:
    """Return what comes next. KeyboardInterrupt: a signal came before."""
    while True:
        check_signals()
        with contextlib.suppress(queue.Empty):
            return reports.get(timeout=_LOOK_SECONDS)


def _quiet_grpc() -> None:
    """Let gRPC's own log be lines without tracebacks, and no flood: it tells of bad requests."""
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


def _raise_file_limit() -> None:
    """Take as many files as may be had: a connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
