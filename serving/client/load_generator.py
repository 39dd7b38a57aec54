"""Load on a server: clients that wait for each response, or Poisson arrivals at a rate, and
their latencies.
"""

import functools
import itertools
import random
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from deploykit.serving.protocol.errors import OK

_BITS = 10


def step_of(latency_us: float) -> int:
    """Return the whole number of microseconds that stands for a latency."""
    whole = max(1, round(latency_us))
    shift = max(0, whole.bit_length() - _BITS)
    return (whole >> shift << shift) + (1 << shift >> 1)  # the middle of the step


def summary_ms(counts: Iterable[Counter[int]], percentiles: Sequence[float]) -> dict[str, float]:
    """Return percentiles (nearest rank), mean and largest latency in ms; {} of no latencies.

    All are right to 0.1 %.

    Args:
        counts: how often each step was taken, by `step_of`.
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
"""A call that is sent later than this after it was due, though nothing else held it up, was held
back by what makes the load."""
MOST_LATE = 0.01
"""Of the calls; where more are late, what makes the load is its limit."""


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield after how many seconds each call is due, `rate` a second in the mean.

    How long it is from one to the next has an exponential distribution: calls of many callers who
    know nothing of each other arrive so (a Poisson process). A seed gives the same each time.

    Example:
        >>> [round(each, 2) for each in poisson(2, 1.5, seed=3)]
        [0.14, 0.53, 0.76, 1.22]
    """
    gaps = random.Random(seed)
    due = gaps.expovariate(rate)
    while due < seconds:
        yield due
        due += gaps.expovariate(rate)


_CONNECTIONS = 16  # a server with several processes spreads connections, not calls
_SWITCH_SECONDS = 5e-4  # with Python's 5 ms, threads that take answers hold up the one that sends
_MOST_IN_FLIGHT = 4096


@dataclass(frozen=True)
class LoadStep:
    """One load: so many callers, or so many calls a second."""

    seconds: float
    callers: int = 0
    rate: float = 0.0
    seed: int = 0
    keeps_calls: bool = False
    """Whether each call is told, and not only how many took how long."""


@dataclass(frozen=True)
class Taken:
    """What was measured, as plain data."""

    over: bool
    seconds: float
    """From the start until the last answer."""
    statuses: Counter[str]
    """How many calls ended with each status."""
    late: int
    """Calls that were sent too late, because the generator had no time."""
    busy: float
    """The share of a core that the generator took."""
    answered: Counter[int]
    """At the end, how many calls took so many microseconds, by `step_of`."""
    failed: Counter[int]
    """The same, of calls that ended with another status than OK."""
    calls: bytes = b""
    """At the end, where they are kept, three doubles for each call, in the order of the answers:
    when it was due and when it ended, in seconds of the machine's clock, and 1 if it was answered
    or 0."""


class Sender(Protocol):
    """Sends requests; of a response, it keeps how it ended: the name of a status of gRPC."""

    def send(self, request: Any, /) -> str:
        """Wait for the response; return its status."""
        ...

    def begin(self, request: Any, done: Callable[[str], None], /) -> None:
        """Send it and return; `done` is called with the status, in another thread."""
        ...


class LoadTarget(Protocol):
    """Where requests go, as plain data."""

    def sender(self) -> Sender:
        """Return what sends them, over connections of its own."""
        ...


class Generator:
    """What sends requests; it lives in a child process, and several make a larger load."""

    def __init__(self, target: LoadTarget, requests: Sequence[Any]) -> None:
        """Take requests as the senders of the target take them, which are sent in turn."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._requests = itertools.cycle(requests)
        self._senders = [target.sender() for _ in range(_CONNECTIONS)]
        self._lock = threading.Lock()

    def start(self, step: LoadStep) -> None:
        """Begin a load; `so_far` tells how it goes."""
        self._statuses: Counter[str] = Counter()
        self._latencies: dict[bool, Counter[int]] = {ok: Counter() for ok in (True, False)}
        self._calls = array("d") if step.keeps_calls else None
        self._late = 0
        self._ended: float | None = None
        self._began, self._cpu = time.perf_counter(), time.process_time()
        act = self._closed_loop if step.callers else self._open_loop
        threading.Thread(target=act, args=[step], daemon=True).start()

    def so_far(self) -> Taken:
        """Return what was measured until now."""
        with self._lock:
            seconds = (self._ended or time.perf_counter()) - self._began
            return Taken(
                self._ended is not None,
                seconds,
                Counter(self._statuses),
                self._late,
                (time.process_time() - self._cpu) / max(seconds, 1e-9),
                # To copy them while calls are sent would hold those up.
                Counter(self._latencies[True] if self._ended else ()),
                Counter(self._latencies[False] if self._ended else ()),
                self._calls.tobytes() if self._ended and self._calls is not None else b"",
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
        in_flight = threading.Semaphore(_MOST_IN_FLIGHT)
        for number, after in enumerate(poisson(step.rate, step.seconds, step.seed)):
            due = self._began + after
            time.sleep(max(0.0, due - time.perf_counter()))
            self._late += time.perf_counter() - due > LATE_SECONDS
            in_flight.acquire()
            done = functools.partial(self._done, due, in_flight)
            self._senders[number % _CONNECTIONS].begin(self._next(), done)
        for _ in range(_MOST_IN_FLIGHT):  # until nothing is in flight
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
            if self._calls is not None:
                self._calls.extend((due, due + passed, status == OK))

    def _next(self) -> Any:
        with self._lock:
            return next(self._requests)
