"""The threads that answer calls, and the refusal of calls for which there are none."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

Behavior = TypeVar("Behavior", bound=Callable[..., Any])

_SPARE = 8  # for calls that ask for status or metadata, while those that compute are all taken


class Threads(ThreadPoolExecutor):
    """Threads that know how many calls they have taken on, waiting ones among them."""

    def __init__(self, in_flight: int) -> None:
        """Start none yet; there is one for each call in flight, and a few to spare."""
        super().__init__(in_flight + _SPARE, "call")
        self.in_flight = in_flight
        self._lock = threading.Lock()
        self._taken = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Take on a call."""
        with self._lock:
            self._taken += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def free_for(self, computing: bool) -> bool:
        """Return whether there is a thread left for a call."""
        return self._taken < self.in_flight + (0 if computing else _SPARE)

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self._taken -= 1


def answered_by(threads: ThreadPoolExecutor, behavior: Behavior) -> Behavior:
    """Let threads of their own answer a method: it then never waits for other calls."""
    behavior.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC's name
    return behavior


class Admission(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls beyond the bound as soon as their headers are there, body unread."""

    def __init__(self, threads: Threads, services: Iterable[str], asking: Iterable[str]) -> None:
        """Bound the calls of these services; methods that are `asking` compute nothing."""
        self._threads = threads
        self._services = tuple(f"/{service}/" for service in services)
        self._asking = frozenset(asking)
        words = f"{threads.in_flight} calls are in flight already; try again later"

        def refuse(_: Iterable[bytes], context: grpc.ServicerContext) -> None:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, words)

        # As a stream, a request is not waited for.
        self._refusal = grpc.stream_unary_rpc_method_handler(
            answered_by(ThreadPoolExecutor(1, "refusal"), refuse)
        )

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Return what answers the call."""
        method: str = details.method
        if method.startswith(self._services):
            computing = method.rpartition("/")[2] not in self._asking
            if not self._threads.free_for(computing):
                return self._refusal
        return continuation(details)
