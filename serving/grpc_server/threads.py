"""The threads that answer calls, and those of them whose request does not come."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from deploykit.serving.protocol.errors import ServingError

Behavior = TypeVar("Behavior", bound=Callable[..., Any])

_SPARE = 8  # for calls that ask for status or metadata, while those that compute are all taken
_PATIENCE = 10.0  # seconds until a call whose request has not come makes room for another


class CallThreads(ThreadPoolExecutor):
    """Threads that know how many calls they have taken on, and which wait for their request."""

    def __init__(self, in_flight: int, name: str = "call", patience: float = _PATIENCE) -> None:
        """Start none yet; there is one for each call in flight, and a few to spare."""
        super().__init__(in_flight + _SPARE, name)
        self.most = in_flight
        """How many calls that compute they take on."""
        self.taken = 0
        """How many calls they have taken on and not answered yet."""
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: dict[grpc.ServicerContext, float] = {}  # since when, the longest first
        self._leaving: set[grpc.ServicerContext] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Take on a call."""
        with self._lock:
            self.taken += 1
        future = super().submit(fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def free_for(self, computing: bool) -> bool:
        """Return whether there is a thread left for a call, if need be that of a stalled one."""
        most = self.most + (0 if computing else _SPARE)
        if self.taken >= most:
            self.end_stalled()
        return self.taken - len(self._leaving) < most

    def request(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Return the one request of a call, once it is there.

        ServingError: it brings none, or brought none for too long. grpc.RpcError: it was cancelled.
        """
        with self._lock:
            self._waiting[context] = time.monotonic()
        try:
            found = next(requests, None)
        finally:
            with self._lock:
                ended = self._waiting.pop(context, None) is None
                self._leaving.discard(context)
        if ended:
            raise ServingError("CANCELLED", "the call brought no request for too long")
        if found is None:
            raise ServingError("UNIMPLEMENTED", "the call brings no request")
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
            self.taken -= 1


def answered_by(threads: ThreadPoolExecutor, behavior: Behavior) -> Behavior:
    """Let threads of their own answer a method: it then never waits for other calls."""
    behavior.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC's name
    return behavior
