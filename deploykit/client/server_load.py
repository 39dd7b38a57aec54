"""How a server bears a load: latency and throughput of steps, and the highest rate that holds."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deploykit.rendering.serving import failures, load_name
from deploykit.serving.client.load_generator import (
    MOST_LATE,
    LoadStep,
    LoadTarget,
    Taken,
    summary_ms,
)
from deploykit.serving.protocol.errors import OK
from deploykit.transforms.common.documents import written
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import Worker

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_POLL_SECONDS = 0.2
_WARM_UP_SECONDS = 0.5
_MOST_BUSY = 0.9  # of a core; one Python process has no more to give
_PROBE_CALLERS, _PROBES = 8, 7
_ABOVE = 1.5  # a rate may be higher than what so few callers reach
_PRECISION = 0.05

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Load:
    """What one step measured; latencies in milliseconds."""

    callers: int
    rate: float
    """Calls that were due in a second; 0 where callers wait for their answers."""
    seconds: float
    statuses: dict[str, int]
    throughput: float
    """Answers in a second."""
    latency_ms: dict[str, float]
    """Percentiles, mean and max of what was answered."""
    failed_ms: dict[str, float]
    """The same of what was refused or failed."""
    generator_busy: float
    """Share of a core that the busiest process of the generator took."""
    sent_late: int
    generator_limited: bool
    """Whether the load was the generator's limit and not the server's."""

    @property
    @written()
    def failed(self) -> int:
        """How many calls ended with another status than OK."""
        return sum(count for status, count in self.statuses.items() if status != OK)

    @property
    def name(self) -> str:
        """What the load was, in words."""
        return load_name(self.callers, self.rate)

    def meets_bar(self, limit_ms: float) -> bool:
        """Say whether all calls were answered, 99 % within the limit from when they were due."""
        return not self.failed and self.latency_ms.get("p99", float("inf")) <= limit_ms


class Generators:
    """Processes that send requests to one server, together one load."""

    def __init__(self, target: LoadTarget, requests: Sequence[Any], processes: int) -> None:
        """Start them, and let each call the server for a moment, so that it is warm."""
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
        """Return what a step measured. CrashError: a process of the generator died."""
        return _load(step, self._taken(step, advance))

    def trace(self, step: LoadStep, advance: Advance) -> tuple[Load, Array]:
        """Return what a step measured, and when each answered call was due and ended.

        The times are seconds of the machine's clock, float64 [calls, 2], by when they were due.
        CrashError: a process of the generator died.
        """
        measured = self._taken(replace(step, keeps_calls=True), advance)
        calls = np.frombuffer(b"".join(item.calls for item in measured)).reshape(-1, 3)
        answered = calls[calls[:, 2] == 1, :2]
        return _load(step, measured), answered[np.argsort(answered[:, 0], kind="stable")]

    def _taken(self, step: LoadStep, advance: Advance) -> list[Taken]:
        """Return what each process measured of a step."""
        shares = list(zip(self._workers, _shares(step, len(self._workers)), strict=False))
        for worker, share in shares:
            worker.ask("start", share)
        while True:
            measured: list[Taken] = [worker.ask("so_far") for worker, _ in shares]
            if all(item.over for item in measured):
                return measured
            advance(_live_line(step, measured), 0)
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
    """Return what was measured, and the highest rate found at which 99 % of calls hold a limit.

    The rate is halved in on between 0 and somewhat more than eight callers reach; it is 0 where
    none holds.
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
    """Return the load of each process; Poisson arrivals of several are Poisson together."""
    if step.callers:
        counts = [(step.callers + n) // parts for n in range(parts)]
        return [replace(step, callers=count) for count in reversed(counts) if count]
    return [replace(step, rate=step.rate / parts, seed=step.seed * parts + n) for n in range(parts)]


def _live_line(step: LoadStep, used: Sequence[Taken]) -> str:
    load = _load(step, used)
    failed = f", failed: {failures(load.statuses)}" if load.failed else ""
    return f"{load.name}, {load.seconds:.0f} of {step.seconds:g} s: {load.throughput:.0f}/s{failed}"


def _load(step: LoadStep, used: Sequence[Taken]) -> Load:
    statuses = sum((item.statuses for item in used), Counter[str]())
    seconds = max(item.seconds for item in used)
    busy, late = max(item.busy for item in used), sum(item.late for item in used)
    limited = late > MOST_LATE * statuses.total() if step.rate else busy > _MOST_BUSY
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
