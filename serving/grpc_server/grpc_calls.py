"""One handler for all methods: lets a call in, waits for its request, answers it, and logs it.

A method is a function of bytes: gRPC neither reads requests nor writes answers itself. A request is
taken in as a stream of one, for a call can only be ended while it is waited for where it runs.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from deploykit.serving.execution.data_plane import Requester
from deploykit.serving.execution.uploads import spent
from deploykit.serving.grpc_server.threads import CallThreads, answered_by
from deploykit.serving.protocol.errors import ServingError, reported
from deploykit.serving.protocol.protos import ModelSpec
from deploykit.serving.protocol.versions import check_name

logger = logging.getLogger("grpc")  # it is kept short, as anybody can make it speak

LONGEST_WAIT = 30 * 24 * 3600.0
"""Seconds; whoever waits longer has no deadline."""
ENDING = "the server is ending; try again later, or another one"

Log = Callable[[str, str, str, float, str, int | None], None]
"""Takes method, peer, code, seconds, model, and the bytes of the request if it came."""


@dataclass
class GrpcCall:
    """A call that was let in."""

    context: grpc.ServicerContext
    model: str = ""
    """Whom it is for, once its method has read that; for the log."""

    def caller(self) -> Requester:
        """Return how long the caller waits, and whether he still does."""
        left = self.context.time_remaining()  # without a deadline: None, or centuries
        deadline = None if left is None or left > LONGEST_WAIT else time.monotonic() + left
        return Requester(deadline, lambda: not self.context.is_active())


@dataclass(frozen=True)
class Method:
    """How calls of a method are answered."""

    answer: Callable[..., Any]
    """Takes the bytes of a request and its `GrpcCall`, and returns the bytes of the answer.

    One that `watches` takes as well what sends an answer, again and again, and returns at once.
    """
    computes: bool = False
    """Whether it may take long; others find a few threads that those never take."""
    threads: CallThreads | None = None
    """Those that answer nothing else, as for probes; None: the common ones."""
    watches: bool = False


def of_messages(
    kind: type[Message], answer: Callable[[Any, GrpcCall], Message]
) -> Callable[..., Any]:
    """Return what takes and gives bytes, of a function that takes and gives messages."""
    has_spec = "model_spec" in kind.DESCRIPTOR.fields_by_name

    def answered(request: bytes, call: GrpcCall) -> bytes:
        message = parsed(kind, request)
        if has_spec:
            call.model = model_named(message.model_spec)
        return bytes(answer(message, call).SerializeToString())

    return answered


def model_named(spec: ModelSpec) -> str:
    """Return the model that a call is for. ServingError: nobody wants to write down such a name."""
    check_name("the name of the model", spec.name)
    return str(spec.name)


def parsed(kind: type[Message], request: bytes) -> Any:
    """Return a message. ServingError: these bytes are none."""
    try:
        return kind.FromString(request)
    except DecodeError:
        logger.exception("Exception deserializing message!")
        raise ServingError("INTERNAL", "request-not-deserialized") from None


class GrpcCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """All calls of some methods; those beyond a bound are refused by their headers, body unread."""

    def __init__(
        self, threads: CallThreads, methods: Mapping[str, Method], log: Log | None = None
    ) -> None:
        """Answer methods by their paths, such as `/grpc.health.v1.Health/Check`."""
        self.closing = False
        """Set where new calls are refused with UNAVAILABLE; probes still have their answer."""
        self.last_began = time.monotonic()
        """When the last call arrived that is no probe."""
        self._threads = threads
        self._methods = methods
        self._log = log
        self._lock = threading.Lock()
        self._unsent = 0  # calls of which the answer is not all sent
        self._handlers = {path: self._handler(path, method) for path, method in methods.items()}

    @property
    def in_flight(self) -> int:
        """How many calls that are no probes have come, and not all of their answer is sent."""
        return max(self._threads.taken, self._unsent) - self.arriving

    @property
    def arriving(self) -> int:
        """How many calls that are no probes wait for their request."""
        return self._threads.arriving

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return what answers a call, of which the headers are there."""
        method = self._methods.get(details.method)
        if method is None:
            return None
        threads = method.threads or self._threads
        if threads is self._threads:
            self.last_began = time.monotonic()
            if self.closing:
                return self._refusal(details.method, "UNAVAILABLE", ENDING)
        try:
            threads.check_free(method.computes)
        except ServingError as error:
            return self._refusal(details.method, error.status, error.message)
        return self._handlers[details.method]

    def _handler(self, path: str, method: Method) -> Any:
        threads = method.threads or self._threads

        def behavior(requests: Iterator[bytes], context: grpc.ServicerContext, *send: Any) -> Any:
            call, size, start = GrpcCall(context), None, time.monotonic()
            peer = self._peer(context)
            if threads is self._threads:
                self._begin(context)
            try:
                request = threads.request(requests, context, method.computes)
                size, start = len(request), time.monotonic()
                return method.answer(request, call, *send)
            except grpc.RpcError:  # it ended before its request came
                context.set_code(grpc.StatusCode.CANCELLED)
                raise
            except Exception as raised:
                error = reported(raised)  # the caller never sees UNKNOWN
                context.abort(grpc.StatusCode[error.status], error.message)
            finally:
                spent.note(size or 0, refused=context.code() is not None)
                if not method.watches:
                    self._write(path, peer, call, time.monotonic() - start, size)

        answered_by(threads, behavior)
        if method.watches:
            behavior.experimental_non_blocking = True  # type: ignore[attr-defined]  # gRPC's name
            return grpc.stream_stream_rpc_method_handler(behavior)
        return grpc.stream_unary_rpc_method_handler(behavior)

    def _begin(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._unsent += 1
        if not context.add_callback(self._sent):  # it has ended before
            self._sent()

    def _sent(self) -> None:
        with self._lock:
            self._unsent -= 1

    def _refusal(self, path: str, code: str, words: str) -> Any:
        def refuse(_: Iterable[bytes], context: grpc.ServicerContext) -> None:
            try:
                context.abort(grpc.StatusCode[code], words)
            finally:
                self._write(path, self._peer(context), GrpcCall(context), 0.0, None)

        # As a stream, a request is not waited for.
        return grpc.stream_unary_rpc_method_handler(answered_by(_AT_ONCE, refuse))

    def _peer(self, context: grpc.ServicerContext) -> str:
        """Return who calls, for the log; of a call that has ended, gRPC does not know it."""
        return "" if self._log is None else str(context.peer())

    def _write(
        self, path: str, peer: str, call: GrpcCall, seconds: float, size: int | None
    ) -> None:
        if self._log is not None:
            code = call.context.code() or grpc.StatusCode.OK
            self._log(path.rpartition("/")[2], peer, code.name, seconds, call.model, size)


class _InPlace(ThreadPoolExecutor):
    """Runs what it is given where it is given; gRPC accepts no other class."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run it now; gRPC's own functions raise nothing."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


_AT_ONCE = _InPlace(1)  # a refusal waits for nothing
