"""A process that serves until it is told to end: SIGTERM or Ctrl-C once to drain, twice to stop."""

import contextlib
import gc
import logging
import os
import queue
import resource
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from deploykit.serving.server.ports import check_ports
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings

logger = logging.getLogger("deploykit")

_LOG_LEVEL, _SILENT = "TF_CPP_MIN_LOG_LEVEL", "3"
_LOG_SECONDS = 1.0  # between two lines of gRPC's own log
_LOOK_SECONDS = 0.5  # at most, until a signal that another thread got is acted upon
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Report = TypeVar("Report")


@dataclass(frozen=True)
class Ready:
    """What a server says when it listens: where, and the available versions of each model."""

    port: int
    rest_api_port: int | None
    models: Mapping[str, Sequence[int]]


def serve(settings: ServerSettings, ready: Callable[[Ready], None]) -> None:
    """Serve; `ready` is called once it listens. Returns after it is drained.

    Error, ServingError: as `Server`, before it listens.
    """
    _raise_file_limit()
    quiet_grpc()
    reports: queue.SimpleQueue[BaseException | str] = queue.SimpleQueue()
    listen_to_signals(lambda: reports.put("stop"))
    server = Server(settings)

    def start() -> None:
        try:
            check_ports(settings)  # before TensorFlow starts, which takes seconds
            if settings.models:
                start_tensorflow()
            server.start()
        except BaseException as error:
            reports.put(error)
        else:
            reports.put("started")

    # TensorFlow may load for long, and signals only reach a thread that runs Python.
    threading.Thread(target=start, daemon=True).start()
    event = next_of(reports)
    if isinstance(event, BaseException):
        raise event
    if event == "started":
        rest = server.rest.port if server.rest is not None else None
        ready(Ready(server.port, rest, server.available))
        next_of(reports)
        logger.info("draining: new calls are refused, those in flight are answered")
        if not server.drain(settings.drain_seconds):
            logger.warning("calls were cut off that took longer than --drain_seconds")


def start_tensorflow() -> None:
    """Import TensorFlow, and let Python's garbage collector never look at it again.

    A full collection goes through all that its modules hold, for as long as many calls take.
    """
    with _silence():
        import tensorflow as tf

        tf.get_logger().setLevel(logging.ERROR)
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Drop what C++ writes to standard error, if TensorFlow's log is off."""
    if os.environ.get(_LOG_LEVEL) != _SILENT:
        yield
        return
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def next_of(reports: "queue.SimpleQueue[Report]") -> Report:
    """Return what comes next.

    It looks anew now and then: where another thread gets a signal, Python lets the handler run in
    the main thread, but nothing ends the wait there.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return reports.get(timeout=_LOOK_SECONDS)


def listen_to_signals(stop: Callable[[], None], at_once: Callable[[], None] = lambda: None) -> None:
    """Call `stop` at the first signal to end; end the process at the second, after `at_once`."""
    seen: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if seen:
            at_once()
            os._exit(128 + number)
        seen.append(number)
        stop()

    for number in _SIGNALS:
        signal.signal(number, handle)


def quiet_grpc() -> None:
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
