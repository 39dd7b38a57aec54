"""A line of JSON for each call: when, who, what, how long, and what became of it."""

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

import grpc

from deploykit.transforms.core.errors import FileError

STANDARD_OUTPUT = "-"


class AccessLog:
    """A file that grows by a line a call."""

    def __init__(self, path: str) -> None:
        """Open it. FileError: it cannot be."""
        self._lock = threading.Lock()
        self._file = sys.stdout if path == STANDARD_OUTPUT else _opened(path)

    def write(self, protocol: str, method: str, peer: str, code: str, seconds: float,
              model: str = "", bytes_in: int | None = None) -> None:  # fmt: skip
        """Add a call."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "protocol": protocol, "method": method, "model": model, "peer": peer,
                "code": code, "milliseconds": round(seconds * 1000, 3)}  # fmt: skip
        if bytes_in is not None:
            line["bytes_in"] = bytes_in
        with self._lock:
            self._file.write(f"{json.dumps(line)}\n")
            self._file.flush()


class LoggedCalls(grpc.ServerInterceptor):  # type: ignore[misc]
    """Writes the calls of gRPC to a log; streams of probes and tools are left out."""

    def __init__(self, log: AccessLog) -> None:
        """Log there."""
        self._log = log

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return what answers the call, with the clock around it."""
        handler = continuation(details)
        if handler is None or handler.response_streaming:
            return handler
        make = (grpc.stream_unary_rpc_method_handler if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler)  # fmt: skip
        behavior = handler.stream_unary or handler.unary_unary

        def logged(request: Any, context: grpc.ServicerContext) -> Any:
            start = time.monotonic()
            try:
                return behavior(request, context)
            finally:
                self._write(details.method, request, context, time.monotonic() - start)

        if threads := getattr(behavior, "experimental_thread_pool", None):
            logged.experimental_thread_pool = threads  # type: ignore[attr-defined]
        return make(logged, handler.request_deserializer, handler.response_serializer)

    def _write(
        self, method: str, request: Any, context: grpc.ServicerContext, seconds: float
    ) -> None:
        spec = getattr(request, "model_spec", None)
        size = request.ByteSize() if hasattr(request, "ByteSize") else None
        code = context.code() or grpc.StatusCode.OK
        self._log.write(
            "grpc",
            method.rpartition("/")[2],
            context.peer(),
            getattr(code, "name", str(code)),
            seconds,
            spec.name if spec is not None else "",
            size,
        )


def _opened(path: str) -> TextIO:
    """Open a file to append to, or a pipe that somebody reads; it is open as long as we live."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        file = os.open(path, flags | os.O_NONBLOCK, 0o666)  # a pipe's reader is not waited for
    except OSError as error:
        reason = "nobody reads this pipe" if error.errno == errno.ENXIO else error.strerror
        raise FileError(f"{path}: {reason}") from None
    os.set_blocking(file, True)
    return os.fdopen(file, "a")
