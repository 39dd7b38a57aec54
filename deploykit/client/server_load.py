"""Load tests: latency and throughput of load steps, and the highest sustained rate."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.rendering.serving import failures, load_name
from deploykit.serving.client.load_generator import (
    MAX_LATE,
    LoadSoFar,
    LoadStep,
    LoadTarget,
    summary_ms,
)
from deploykit.serving.protocol.errors import OK
from deploykit.transforms.common.documents import written
from deploykit.transforms.runtime.child_process import Worker

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_POLL_SECONDS = 0.2
_WARM_UP_SECONDS = 0.5
_MAX_BUSY = 0.9  # of a core; a single Python process cannot use more
_PROBE_CALLERS, _PROBES = 8, 7
_ABOVE = 1.5  # the sustained rate may exceed the throughput of a few clients
_PRECISION = 0.05

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Load:
    """Result of one load step; latencies are in milliseconds."""

    callers: int
    rate: float
    """Scheduled requests per second; 0 if each client waits for its response."""
    seconds: float
    statuses: dict[str, int]
    throughput: float
    """Responses per second."""
    latency_ms: dict[str, float]
    """Percentiles, mean and maximum latency of successful requests."""
    failed_ms: dict[str, float]
    """Percentiles, mean and maximum latency of refused and failed requests."""
    generator_busy: float
    """CPU use of the most loaded generator process, as a share of one core."""
    sent_late: int
    generator_limited: bool
    """Whether the generator limited the load, rather than the server."""

    @property
    @written()
    def failed(self) -> int:
        """Number of requests with a status other than OK."""
        return sum(count for status, count in self.statuses.items() if status != OK)

    @property
    def name(self) -> str:
        """The load in words."""
        return load_name(self.callers, self.rate)

    def meets_bar(self, limit_ms: float) -> bool:
        """Return whether all requests succeeded, with p99 within the limit."""
        return not self.failed and self.latency_ms.get("p99", float("inf")) <= limit_ms


class Generators:
    """Processes that together generate one load on a server."""

    def __init__(self, target: LoadTarget, requests: Sequence[Any], processes: int) -> None:
        """Start the processes, and warm up the server with a short load."""
        self._workers = [
            Worker(
                "deploykit.serving.client.load_generator:Generator",
                target,
                [*requests[n:], *requests[:n]],
            )
            for n in (len(requests) * n // processes for n in range(processes))
        ]
        self.measure(LoadStep(_WARM_UP_SECONDS, callers=processes))

    def measure(self, step: LoadStep, advance: Advance = lambda name, count: None) -> Load:
        """Run a load step and return its result. CrashError: a generator process died."""
        return _load(step, self._taken(step, advance))

    def _taken(self, step: LoadStep, advance: Advance) -> list[LoadSoFar]:
        """Run a load step and return the result of each process."""
        shares = list(zip(self._workers, _shares(step, len(self._workers)), strict=False))
        for worker, share in shares:
            worker.ask("start", share)
        while True:
            measured: list[LoadSoFar] = [worker.ask("so_far") for worker, _ in shares]
            if all(item.over for item in measured):
                return measured
            load = _load(step, measured)
            failed = f", failed: {failures(load.statuses)}" if load.failed else ""
            done = f"{load.seconds:.0f} of {step.seconds:g} s"
            advance(f"{load.name}, {done}: {load.throughput:.0f}/s{failed}", 0)
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> "Generators":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def search(
    generators: Generators, seconds: float, limit_ms: float, advance: Advance
) -> tuple[list[Load], float]:
    """Return the measured loads, and the highest rate at which p99 stays within the limit.

    It is a binary search between 0 and 1.5 times the throughput of eight clients. The rate is 0 if
    none is sustained.
    """
    loads = [generators.measure(LoadStep(seconds, callers=_PROBE_CALLERS), advance)]
    low, high = 0.0, _ABOVE * loads[0].throughput
    for number in range(_PROBES):
        if high - low <= _PRECISION * high:
            break
        rate = (low + high) / 2
        loads.append(generators.measure(LoadStep(seconds, rate=rate, seed=number), advance))
        low, high = (rate, high) if loads[-1].meets_bar(limit_ms) else (low, rate)
    return loads, low


def _shares(step: LoadStep, parts: int) -> list[LoadStep]:
    """Return the load of each process; the sum of Poisson arrivals is again Poisson."""
    if step.callers:
        counts = [(step.callers + n) // parts for n in range(parts)]
        return [replace(step, callers=count) for count in reversed(counts) if count]
    return [replace(step, rate=step.rate / parts, seed=step.seed * parts + n) for n in range(parts)]


def _load(step: LoadStep, used: Sequence[LoadSoFar]) -> Load:
    statuses = sum((item.statuses for item in used), Counter[str]())
    seconds = max(item.seconds for item in used)
    busy, late = max(item.busy for item in used), sum(item.late for item in used)
    limited = late > MAX_LATE * statuses.total() if step.rate else busy > _MAX_BUSY
    return Load(
        step.callers,
        step.rate,
        seconds,
        dict(statuses),
        statuses[OK] / seconds,
        summary_ms([item.answered for item in used], PERCENTILES),
        summary_ms([item.failed for item in used], PERCENTILES),
        busy,
        late,
        limited,
    )
