"""The threads that handle requests, and requests whose bytes have not all arrived."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from math import ceil
from operator import itemgetter
from typing import Any, TypeVar

import grpc

from deploykit.serving.execution.uploads import spent
from deploykit.serving.protocol.errors import ServingError
from deploykit.transforms.runtime import resident_memory
from deploykit.transforms.runtime.memory import give_back

Behavior = TypeVar("Behavior", bound=Callable[..., Any])

_SPARE = 8  # for metadata and status calls, while all others run models
_ARRIVING = 128  # minimum number of calls that may wait for their request; they do not block others
_QUEUED = 4096  # calls that may wait for a thread: clients that reset many free theirs soon
LONG = 0.5
"""Seconds; a call that waits longer for its request may be ended for another one."""


class CallThreads(ThreadPoolExecutor):
    """Threads that count the calls they handle, and those that wait for their request."""

    def __init__(
        self,
        in_flight: int,
        name: str = "call",
        patience: float = LONG,
        arriving: int = 0,
        refuse: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without threads.

        The maximum is one per concurrent call, a few spare ones, and `arriving` for calls whose
        request has not arrived. 0: twice as many as `in_flight`, at least 128. `refuse` raises
        ServingError if a call that runs a model must be rejected.
        """
        self._refuse = refuse
        self._arriving = arriving or max(_ARRIVING, 2 * in_flight)
        super().__init__(in_flight + _SPARE + self._arriving, name)
        self.most = in_flight
        """Maximum number of calls that run models."""
        self.occupied = 0
        """The number of accepted calls without a response."""
        self.arrived = 0
        """The number of these whose request has arrived."""
        self.waits = threading.Event()
        """Set whenever a call starts to wait for its request."""
        self._thread = threading.local()  # of its call: since when, and whether it has arrived
        self._patience = patience
        self._lock = threading.Lock()
        self._waiting: dict[grpc.ServicerContext, float] = {}  # since when, oldest first
        self._leaving: set[grpc.ServicerContext] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Accept a call."""
        with self._lock:
            self.occupied += 1
        future = super().submit(self._call, time.monotonic(), fn, *args, **kwargs)
        future.add_done_callback(self._done)
        return future

    def _call(self, since: float, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._thread.since, self._thread.has_arrived = since, False
        try:
            return fn(*args, **kwargs)
        finally:
            if self._thread.has_arrived:
                with self._lock:
                    self.arrived -= 1

    @property
    def arriving(self) -> int:
        """The number of calls that wait for their request."""
        return len(self._waiting)

    def check_free(self, computing: bool) -> None:
        """Free a thread for a call, if necessary by ending a stalled one.

        ServingError: no thread is free, or `refuse` rejects a call that runs a model.
        """
        self._check_arrived(computing)
        if self._on_their_way() < self._arriving:
            return
        self.end(*(call for call, _ in self.waiting(self._patience)[:1]))
        most = self._arriving + (0 if self.arriving >= self._arriving else _QUEUED)
        if self._on_their_way() >= most:
            raise self._full()

    def free_queued(self) -> None:
        """End as many stalled calls as calls wait for a thread, if stalled ones have them all."""
        if self.arriving >= self._arriving:
            queued = max(0, self._on_their_way() - self.arriving)
            self.end(*(call for call, _ in self.waiting(self._patience)[:queued]))

    def _check_arrived(self, computing: bool) -> None:
        if computing:
            self._refuse()
        if self.arrived >= self.most + (0 if computing else _SPARE):
            raise self._full()

    def _on_their_way(self) -> int:
        return self.occupied - self.arrived - len(self._leaving)

    def request(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, computing: bool
    ) -> bytes:
        """Return the single request of a call once it has arrived.

        ServingError: there is none, it took too long, or other calls reached the limit first.
        grpc.RpcError: the call was cancelled.
        """
        data: bytes | None = self.awaited(requests, context, self._thread.since)
        if data is None:
            raise ServingError("UNIMPLEMENTED", "call-without-request")
        with self._lock:
            self._check_arrived(computing)
            self.arrived += 1
            self._thread.has_arrived = True
        return data

    def awaited(
        self, requests: Iterator[Any], context: grpc.ServicerContext, since: float | None = None
    ) -> Any:
        """Return the next request of a call once it has arrived; None: the stream has ended.

        It is waited for from now on, or since the call was accepted.

        ServingError: it took too long. grpc.RpcError: the call was cancelled.
        """
        with self._lock:
            self._waiting[context] = since or time.monotonic()
        if not self.waits.is_set():
            self.waits.set()
        first = failure = None
        try:
            first = next(requests, None)
        except grpc.RpcError as error:
            failure = error
        finally:
            with self._lock:
                ended = self._waiting.pop(context, None) is None
                self._leaving.discard(context)
            if first is None:
                spent.note(None)
        if ended:
            raise ServingError("UNAVAILABLE", "request-too-slow")
        if failure is not None:
            raise failure
        return first

    def _full(self) -> ServingError:
        return ServingError("RESOURCE_EXHAUSTED", "too-many-calls", in_flight=self.most)

    def waiting(self, seconds: float = 0.0) -> list[tuple[grpc.ServicerContext, float]]:
        """Return the calls that wait this long for their request, and since when; oldest first."""
        with self._lock:
            latest = time.monotonic() - seconds
            return list(takewhile(lambda item: item[1] <= latest, self._waiting.items()))

    def end(self, *calls: grpc.ServicerContext) -> None:
        """End calls whose request has not arrived meanwhile."""
        with self._lock:
            ended = [call for call in calls if self._waiting.pop(call, None) is not None]
            self._leaving.update(ended)
        for item in ended:
            _end(item)

    def _done(self, _: "Future[Any]") -> None:
        with self._lock:
            self.occupied -= 1


def _end(context: grpc.ServicerContext) -> None:
    """End a call whose handler waits for its request, and send the reason to the client.

    gRPC has no public method for that: `abort` raises in the calling thread and does not wake the
    handler, and `cancel` sends CANCELLED, as if the client had cancelled. Without gRPC's private
    method, the call still ends with `cancel`.
    """
    call = getattr(getattr(context, "_rpc_event", None), "call", None)
    end = getattr(call, "cancel", None)
    if end is None:
        context.cancel()
    else:
        end(
            grpc.StatusCode.UNAVAILABLE.value[0],
            str(ServingError("UNAVAILABLE", "request-too-slow")),
        )


def answered_by(threads: ThreadPoolExecutor, behavior: Behavior) -> Behavior:
    """Run a method in its own threads, so that it never waits for other calls."""
    behavior.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC's name
    return behavior


_FEW = 2  # calls that may always wait, regardless of their size
_ROOM_FOR = 2  # memory of the other waiting calls, in requests of maximum size
_SMALLEST = 256 << 20  # bytes; a server grows by less for many reasons
_PAUSE = 0.1  # seconds between two checks
_CALM = 3.0  # seconds until freed memory has been returned to the system


class UnfinishedRequests:
    """Ends calls that wait long for their request while the process uses too much memory.

    A check takes about 20 microseconds; there is none while no call waits.
    """

    def __init__(
        self,
        pools: Collection[CallThreads],
        largest: int,
        resident: Callable[[], int] | None = None,
    ) -> None:
        """Watch the calls of these threads; `largest`: maximum size of a request in bytes."""
        self._pools = pools
        self._room = max(_ROOM_FOR * largest, _SMALLEST)
        self._resident = resident or resident_memory.resident
        self._usual = self._resident()
        self._crowded = -_CALM  # time of the last check with many waiting calls
        self._waits = threading.Event()
        self._closed = False
        for pool in pools:
            pool.waits = self._waits

    def start(self) -> None:
        """Start the checks in a new thread."""
        threading.Thread(target=self._run, daemon=True, name="unfinished requests").start()

    def close(self) -> None:
        """Stop the checks."""
        self._closed = True
        self._waits.set()

    def look(self, now: float) -> None:
        """End some of the calls that have waited longest, if the process has grown too much.

        The reference is its size while only a few calls waited for long.
        """
        waiting = sorted(
            ((since, item, pool) for pool in self._pools for item, since in pool.waiting(LONG)),
            key=itemgetter(0),
        )
        if len(waiting) <= _FEW:
            if now - self._crowded >= _CALM:
                self._usual = self._resident()
            return
        self._crowded = now
        if self._grown() > self._room:
            give_back()
            grown = self._grown()
            if grown > self._room:
                part = ceil((1 - self._room / grown) * len(waiting))  # assumes equal sizes
                for _, call, pool in waiting[:-_FEW][:part]:
                    pool.end(call)

    def _grown(self) -> int:
        return self._resident() - self._usual

    def _run(self) -> None:
        while self._waits.wait() and not self._closed:
            self._waits.clear()
            for pool in self._pools:
                pool.free_queued()
            self.look(time.monotonic())
            if any(pool.waiting() for pool in self._pools):
                self._waits.set()
            time.sleep(_PAUSE)
