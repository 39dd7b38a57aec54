"""Generates load on a server, closed-loop (a fixed concurrency) or open-loop (Poisson arrivals at a
request rate), and measures latencies.
"""

import functools
import itertools
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploykit.serving.protocol.errors import OK

_BITS = 10


def step_of(latency_us: float) -> int:
    """Return the histogram bucket of a latency: its middle, in whole microseconds."""
    whole = max(1, round(latency_us))
    shift = max(0, whole.bit_length() - _BITS)
    return (whole >> shift << shift) + (1 << shift >> 1)  # the middle of the bucket


def summary_ms(counts: Iterable[Counter[int]], percentiles: Sequence[float]) -> dict[str, float]:
    """Return percentiles (nearest rank), mean and maximum latency in ms; {} without latencies.

    All are accurate to 0.1 %.

    Args:
        counts: number of requests per bucket of `step_of`.
        percentiles: such as 50 and 99.9, named `p50` and `p99.9`.
    """
    together = sum(counts, Counter[int]())
    total, steps = together.total(), sorted(together)
    if not total:
        return {}
    result, passed, last = {}, 0, iter(steps)
    step = 0
    for percentile in sorted(percentiles):
        while passed < total * percentile / 100:
            step = next(last)
            passed += together[step]
        result[f"p{percentile:g}"] = step / 1e3
    mean = sum(step * count for step, count in together.items()) / total
    given = {f"p{percentile:g}": result[f"p{percentile:g}"] for percentile in percentiles}
    return {**given, "mean": round(mean / 1e3, 3), "max": steps[-1] / 1e3}


LATE_SECONDS = 0.01
"""Seconds. A request sent later than this after its scheduled time counts as delayed by the load
generator."""
MAX_LATE = 0.01
"""Largest share of late requests; above it, the load generator is the bottleneck."""


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield the send time of each request in seconds, at a mean of `rate` requests per second.

    The gaps are exponentially distributed (a Poisson process), like requests of many independent
    clients. The same seed gives the same times.

    Example:
        >>> [round(each, 2) for each in poisson(2, 1.5, seed=3)]
        [0.14, 0.53, 0.76, 1.22]
    """
    gaps = random.Random(seed)
    due = gaps.expovariate(rate)
    while due < seconds:
        yield due
        due += gaps.expovariate(rate)


_CONNECTIONS = 16  # a server with several processes balances connections, not requests
_SWITCH_SECONDS = 5e-4  # Python's default of 5 ms delays the sending thread
_MAX_IN_FLIGHT = 4096


@dataclass(frozen=True)
class LoadStep:
    """One load: a number of concurrent clients, or a request rate per second."""

    seconds: float
    callers: int = 0
    rate: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class LoadSoFar:
    """The measurements of a load, as plain data."""

    over: bool
    seconds: float
    """Seconds from the start until the last response."""
    statuses: Counter[str]
    """The number of requests by gRPC status."""
    late: int
    """The number of requests that the generator itself sent late."""
    busy: float
    """The CPU usage of the generator, in cores."""
    answered: Counter[int]
    """Successful requests by latency bucket (`step_of`); empty until the load ends."""
    failed: Counter[int]
    """The same for requests that ended with a status other than OK."""


class Sender(Protocol):
    """Sends requests and returns only the gRPC status name of each response."""

    def send(self, request: Any, /) -> str:
        """Wait for the response; return its status."""
        ...

    def begin(self, request: Any, done: Callable[[str], None], /) -> None:
        """Send it and return; another thread calls `done` with the status."""
        ...


LoadTarget = Callable[[], Sender]
"""Where requests are sent, as plain data: it returns a sender with its own connections."""


class Generator:
    """Sends requests from a child process; several generators make a larger load."""

    def __init__(self, target: LoadTarget, requests: Sequence[Any]) -> None:
        """Cycle through the requests, in the format of the target's senders."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._requests = itertools.cycle(requests)
        self._senders = [target() for _ in range(_CONNECTIONS)]
        self._lock = threading.Lock()

    def start(self, step: LoadStep) -> None:
        """Start a load; `so_far` returns its progress."""
        self._statuses: Counter[str] = Counter()
        self._latencies: dict[bool, Counter[int]] = {ok: Counter() for ok in (True, False)}
        self._late = 0
        self._ended: float | None = None
        self._began, self._cpu = time.perf_counter(), time.process_time()
        act = self._closed_loop if step.callers else self._open_loop
        threading.Thread(target=act, args=[step], daemon=True).start()

    def so_far(self) -> LoadSoFar:
        """Return the measurements so far."""
        with self._lock:
            seconds = (self._ended or time.perf_counter()) - self._began
            return LoadSoFar(
                self._ended is not None,
                seconds,
                Counter(self._statuses),
                self._late,
                (time.process_time() - self._cpu) / max(seconds, 1e-9),
                # Copying the histograms during the load would delay requests.
                Counter(self._latencies[True] if self._ended else ()),
                Counter(self._latencies[False] if self._ended else ()),
            )

    def _closed_loop(self, step: LoadStep) -> None:
        threads = [
            threading.Thread(target=self._caller, args=[self._senders[n % _CONNECTIONS], step])
            for n in range(step.callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._ended = time.perf_counter()

    def _caller(self, sender: Sender, step: LoadStep) -> None:
        while (due := time.perf_counter()) < self._began + step.seconds:
            self._took(sender.send(self._next()), due)

    def _open_loop(self, step: LoadStep) -> None:
        in_flight = threading.Semaphore(_MAX_IN_FLIGHT)
        for number, after in enumerate(poisson(step.rate, step.seconds, step.seed)):
            due = self._began + after
            time.sleep(max(0.0, due - time.perf_counter()))
            self._late += time.perf_counter() - due > LATE_SECONDS
            in_flight.acquire()
            done = functools.partial(self._done, due, in_flight)
            self._senders[number % _CONNECTIONS].begin(self._next(), done)
        for _ in range(_MAX_IN_FLIGHT):  # until no request is in flight
            in_flight.acquire()
        self._ended = time.perf_counter()

    def _done(self, due: float, in_flight: threading.Semaphore, status: str) -> None:
        self._took(status, due)
        in_flight.release()

    def _took(self, status: str, due: float) -> None:
        passed = time.perf_counter() - due
        with self._lock:
            self._statuses[status] += 1
            self._latencies[status == OK][step_of(passed * 1e6)] += 1

    def _next(self) -> Any:
        with self._lock:
            return next(self._requests)
