"""One handler for all methods: it admits a call, receives its request, responds, and logs it.

A method maps bytes to bytes: gRPC neither parses requests nor serializes responses. The handler
takes a request as a stream of one, because only a handler that waits can end the call.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message

from deploykit.serving.execution.data_plane import Requester
from deploykit.serving.execution.uploads import spent
from deploykit.serving.grpc_server.floods import Floods
from deploykit.serving.grpc_server.threads import CallThreads, answered_by
from deploykit.serving.protocol.errors import ServingError, reported
from deploykit.serving.protocol.protos import ModelSpec, methods_of
from deploykit.serving.protocol.versions import check_name
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted import wire

logger = logging.getLogger("grpc")  # kept short, because any client can trigger its messages

LONGEST_WAIT = 30 * 24 * 3600.0
"""Seconds; a longer timeout counts as no deadline."""
ENDING = "the server is shutting down; retry later, or on another server"

UNCHECKED_BYTES = 1 << 19
"""Bytes of a request that is parsed without a check: the memory of the result is bounded anyway."""
MAX_FIELDS = 1 << 22
"""Fields of a larger request, so that the check takes at most two seconds."""

Log = Callable[[str, str, str, float, str, int | None], None]
"""Takes method, peer, code, seconds, model, and the size of the request in bytes if it arrived."""


@dataclass
class GrpcCall:
    """An admitted call."""

    context: grpc.ServicerContext
    model: str = ""
    """The model's name for the log, once the method has parsed it."""

    def caller(self) -> Requester:
        """Return the deadline of the client and whether it still waits."""
        left = self.context.time_remaining()  # without a deadline: None or centuries
        deadline = None if left is None or left > LONGEST_WAIT else time.monotonic() + left
        return Requester(deadline, lambda: not self.context.is_active())


@dataclass(frozen=True)
class Method:
    """The implementation of a gRPC method."""

    answer: Callable[..., Any]
    """Takes the bytes of a request and its `GrpcCall`, and returns the bytes of the response.

    If `watches` is set, it also takes a function that sends a response, and returns at once.
    """
    computes: bool = False
    """Whether it runs a model; a few threads are reserved for methods that do not."""
    threads: CallThreads | None = None
    """Dedicated threads, as for probes; None: the shared ones."""
    watches: bool = False


def of_messages(
    kind: type[Message], answer: Callable[[Any, GrpcCall], Message]
) -> Callable[..., Any]:
    """Return a function of bytes for a function of messages."""
    has_spec = "model_spec" in kind.DESCRIPTOR.fields_by_name

    def answered(request: bytes, call: GrpcCall) -> bytes:
        message = parsed(kind, request)
        if has_spec:
            call.model = model_named(message.model_spec)
        return bytes(answer(message, call).SerializeToString())

    return answered


Answers = Mapping[str, Callable[[Any, GrpcCall], Any]]
"""Functions of messages by the name of their method."""


def of_service(
    service: str,
    answers: Answers,
    computes: bool = False,
    threads: CallThreads | None = None,
) -> dict[str, Method]:
    """Return methods of a service by path."""
    kinds = methods_of(service)
    return {
        f"/{service}/{name}": Method(of_messages(kinds[name][0], answer), computes, threads)
        for name, answer in answers.items()
    }


def model_named(spec: ModelSpec) -> str:
    """Return the model's name of a request. ServingError: the name is too long."""
    check_name("the name of the model", spec.name)
    return str(spec.name)


def parsed(kind: type[Message], request: bytes) -> Any:
    """Return a message. ServingError: the bytes are invalid, or it is too large when parsed."""
    try:
        if len(request) > UNCHECKED_BYTES:
            wire.check_growth(request, kind, MAX_FIELDS)
        return kind.FromString(request)
    except (DecodeError, GraphError) as error:
        if isinstance(error, GraphError) and error.code in ("message-too-large", "fields-too-many"):
            raise ServingError.of("INVALID_ARGUMENT", error, "the request") from None
        logger.exception("Exception deserializing message!")
        raise ServingError("INTERNAL", "request-not-deserialized") from None


class GrpcCalls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Handles all calls of some methods; those beyond a limit are rejected with the body unread."""

    def __init__(
        self,
        threads: CallThreads,
        methods: Mapping[str, Method],
        log: Log | None = None,
        floods: Floods | None = None,
    ) -> None:
        """Handle methods by path, such as `/grpc.health.v1.Health/Check`."""
        self._floods = floods or Floods(0)
        self.closing = False
        """Whether new calls are rejected with UNAVAILABLE; probes are still handled."""
        self.last_began = time.monotonic()
        """Time of the last call that was not a probe."""
        self._threads = threads
        self._methods = methods
        self._log = log
        self._lock = threading.Lock()
        self._unsent = 0  # calls whose response is not completely sent
        self._handlers = {path: self._handler(path, method) for path, method in methods.items()}

    @property
    def in_flight(self) -> int:
        """The number of calls in progress, without probes, until their response is sent."""
        return max(self._threads.occupied, self._unsent) - self.arriving

    @property
    def arriving(self) -> int:
        """The number of calls, without probes, that wait for their request."""
        return self._threads.arriving

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call whose headers have arrived."""
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
            peer = str(context.peer())  # gRPC forgets it once the call has ended
            if threads is self._threads:
                with self._lock:
                    self._unsent += 1
            self._floods.note(peer, calls=1)
            sent = partial(self._sent, peer, threads is self._threads)
            if not context.add_callback(sent):  # it has ended already
                sent()
            try:
                self._floods.note(peer, arriving=1)
                try:
                    request = threads.request(requests, context, method.computes)
                finally:
                    self._floods.note(peer, arriving=-1)
                size, start = len(request), time.monotonic()
                return method.answer(request, call, *send)
            except grpc.RpcError:  # cancelled before its request arrived
                self._floods.reset(peer)
                context.set_code(grpc.StatusCode.CANCELLED)
                raise
            except Exception as raised:
                error = reported(raised)  # so that clients do not receive UNKNOWN
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

    def _sent(self, peer: str, is_counted: bool) -> None:
        self._floods.note(peer, calls=-1)
        if is_counted:
            with self._lock:
                self._unsent -= 1

    def _refusal(self, path: str, code: str, words: str) -> Any:
        def refuse(_: Iterable[bytes], context: grpc.ServicerContext) -> None:
            peer = str(context.peer())
            self._floods.note(peer)
            try:
                context.abort(grpc.StatusCode[code], words)
            finally:
                self._write(path, peer, GrpcCall(context), 0.0, None)

        # A stream handler does not wait for the request.
        return grpc.stream_unary_rpc_method_handler(answered_by(_AT_ONCE, refuse))

    def _write(
        self, path: str, peer: str, call: GrpcCall, seconds: float, size: int | None
    ) -> None:
        if self._log is not None:
            code = call.context.code() or grpc.StatusCode.OK
            self._log(path.rpartition("/")[2], peer, code.name, seconds, call.model, size)


class _InPlace(ThreadPoolExecutor):
    """An executor that runs functions in the calling thread; gRPC accepts no other class."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Run it now; gRPC's functions do not raise."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


_AT_ONCE = _InPlace(1)  # rejections do not wait for a thread
