"""The threads that answer calls, and the refusal of calls for which there are none."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

logger = logging.getLogger("grpc")  # it is kept short, as anybody can make it speak

Behavior = TypeVar("Behavior", bound=Callable[..., Any])

_SPARE = 8  # for calls that ask for status or metadata, while those that compute are all taken
_PATIENCE = 10.0  # seconds until a call whose request has not come makes room for another
_REFUSALS = ThreadPoolExecutor(1, "refusal")


class CallThreads(ThreadPoolExecutor):
    """Threads that know how many calls they have taken on, and which wait for their request."""

    def __init__(self, in_flight: int, name: str = "call", patience: float = _PATIENCE) -> None:
        """Start none yet; there is one for each call in flight, and a few to spare."""
        super().__init__(in_flight + _SPARE, name)
        self.in_flight = in_flight
        self._patience = patience
        self._lock = threading.Lock()
        self._taken = 0
        self._waiting: dict[grpc.ServicerContext, float] = {}  # since when, the longest first
        self._leaving: set[grpc.ServicerContext] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Take on a call."""
        with self._lock:
            self._taken += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def free_for(self, computing: bool) -> bool:
        """Return whether there is a thread left for a call, if need be that of a stalled one."""
        most = self.in_flight + (0 if computing else _SPARE)
        if self._taken >= most:
            self.end_stalled()
        return self._taken - len(self._leaving) < most

    def request(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        """Return the one request of a call, once it is there."""
        with self._lock:
            self._waiting[context] = time.monotonic()
        try:
            found = next(requests, None)
        finally:
            with self._lock:
                self._waiting.pop(context, None)
                self._leaving.discard(context)
        if found is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "the call brings no request")
        return found

    def end_stalled(self) -> None:
        """End the calls whose request has not come for too long."""
        with self._lock:
            latest = time.monotonic() - self._patience
            stalled = [each for each, since in self._waiting.items() if since <= latest]
            for each in stalled:
                del self._waiting[each]
            self._leaving.update(stalled)
        for each in stalled:
            each.cancel()

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self._taken -= 1


def answered_by(threads: ThreadPoolExecutor, behavior: Behavior) -> Behavior:
    """Let threads of their own answer a method: it then never waits for other calls."""
    behavior.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC's name
    return behavior


def _threads_of(handler: Any) -> ThreadPoolExecutor | None:
    """Return the threads of their own that answer a method."""
    behavior = handler.unary_unary or handler.unary_stream
    return getattr(behavior, "experimental_thread_pool", None)


class Arrival(grpc.ServerInterceptor):  # type: ignore[misc]
    """Takes in requests; as gRPC does it, a call whose request never comes has a thread forever."""

    def __init__(self, threads: CallThreads) -> None:
        """Methods without threads of their own are answered by these."""
        self._threads = threads

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return what answers the call once its request is there."""
        handler = continuation(details)
        if handler is None or handler.request_streaming:
            return handler
        threads = _threads_of(handler) or self._threads
        if not isinstance(threads, CallThreads):
            return handler
        behavior = handler.unary_unary or handler.unary_stream

        # As a stream, a request is waited for here, where the call can be ended.
        def answer(requests: Iterator[bytes], context: grpc.ServicerContext, *send: Any) -> Any:
            content = threads.request(requests, context)
            try:
                request = handler.request_deserializer(content)
            except Exception:
                logger.exception("Exception deserializing message!")
                context.abort(grpc.StatusCode.INTERNAL, "Exception deserializing request!")
            return behavior(request, context, *send)

        answer.experimental_non_blocking = getattr(  # type: ignore[attr-defined]  # gRPC's name
            behavior, "experimental_non_blocking", False
        )
        make = (grpc.stream_stream_rpc_method_handler if handler.response_streaming
                else grpc.stream_unary_rpc_method_handler)  # fmt: skip
        return make(answered_by(threads, answer), None, handler.response_serializer)


class Admission(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls beyond the bound as soon as their headers are there, body unread."""

    def __init__(self, threads: CallThreads, asking: Iterable[str]) -> None:
        """Bound the calls that these threads answer; methods that are `asking` compute nothing."""
        self._threads = threads
        self._asking = frozenset(asking)

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return what answers the call."""
        handler = continuation(details)
        if handler is None or handler.request_streaming:
            return handler
        threads = _threads_of(handler) or self._threads
        computing = details.method.rpartition("/")[2] not in self._asking
        if isinstance(threads, CallThreads) and not threads.free_for(computing):
            return _refusal(f"{threads.in_flight} calls are in flight already; try again later")
        return handler


def _refusal(words: str) -> Any:
    def refuse(_: Iterable[bytes], context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)

    # As a stream, a request is not waited for.
    return grpc.stream_unary_rpc_method_handler(answered_by(_REFUSALS, refuse))
