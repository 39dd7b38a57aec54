"""A model in an engine, made ready and run in a loop; it lives in a child process."""

import contextlib
import itertools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Job
from deploykit.system.allocators import in_force
from deploykit.system.machine import environment
from deploykit.transforms.common.errors import LimitError
from deploykit.transforms.ir.tensors import Array

if TYPE_CHECKING:
    from deploykit.benchmarking.profiling.profile import Profile


class Runner(ABC):
    """A model that an engine has loaded, and the loop around its calls. Times are in nanoseconds.

    An engine says what makes a call: how a model is loaded, what runs it once, and what is known
    of it.
    """

    job: Job
    batches: Sequence[tuple[Array, ...]]
    """What is fed, call by call; the batches come in turn."""
    bytes_before: int
    """Of memory, before the model was loaded."""
    load: int
    """How long loading took."""
    _call: Callable[..., Any]
    """Makes a call with the arrays of a batch."""

    @abstractmethod
    def is_graph_of(self, job: Job) -> bool:
        """Say whether a further session of this job may share what was loaded."""

    @abstractmethod
    def go_on_with(self, job: Job) -> None:
        """Take other batches and another number of calls in flight, in the session as it is."""

    @abstractmethod
    def profile(self, runs: int) -> "Profile":
        """Find what the time goes to, in a pass of its own of so many calls."""

    @abstractmethod
    def _engine_facts(self) -> dict[str, Any]:
        """Return what is known of the engine: its version, and what is in force there."""

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        """Make an Error of what the engine raises in a call."""
        return contextlib.nullcontext()

    def facts(self) -> dict[str, Any]:
        """Return what is known of the process: versions, settings in force, memory in bytes."""
        feeds = zip(self.job.inputs, self.job.batches[0], strict=True)
        return {
            "inputs": {name: f"{array.dtype} {list(array.shape)}" for name, array in feeds},
            **self._engine_facts(),
            "allocator": [*in_force()],
            "cpus": sorted(os.sched_getaffinity(0)),
            "environment": environment(),
            "load_ns": self.load,
            "bytes_before": self.bytes_before,
            "bytes_peak": status("VmHWM"),
        }

    def run(self, seconds: float, runs: int | None = None) -> tuple[list[int], int]:
        """Run for so long, or so often; return each call's time and the time of them all.

        With several calls in flight, each thread runs for so long, and `runs` counts all calls.
        """
        count = self.job.settings.concurrency
        item = None if runs is None else -(-runs // count)
        start = time.perf_counter_ns()
        with self._explained():
            if count == 1:
                result = _loop(self._call, self.batches, seconds, item)
            else:
                result = self._in_flight(count, seconds, item)
        used = time.perf_counter_ns() - start
        return [latency for _, latency in result], used

    def compute(self, number: int) -> None:
        """Make a call with the batch of this number; batches come in turn."""
        with self._explained():
            self._call(*self.batches[number % len(self.batches)])

    def outputs(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of one call, as the job names them."""
        with self._explained():
            return list(self._call(*arrays))

    def _in_flight(self, count: int, seconds: float, runs: int | None) -> list[tuple[int, int]]:
        calls_of: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                calls_of[number] = _loop(self._call, self.batches, seconds, runs)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return sorted(call for number in calls_of for call in number)


def _loop(
    call: Callable[..., Any],
    batches: Sequence[tuple[Array, ...]],
    seconds: float,
    runs: int | None,
) -> list[tuple[int, int]]:
    """Return when each call ended, and how long it took."""
    clock = time.perf_counter_ns
    calls: list[tuple[int, int]] = []
    end = clock() + int(seconds * 1e9)
    for feeds in itertools.cycle(batches):
        start = clock()
        call(*feeds)
        stop = clock()
        calls.append((stop, stop - start))
        if stop >= end or len(calls) == runs:
            break
    return calls


def status(field: str) -> int:
    """Return a field of the process's status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    raise LimitError("kernel-reports-nothing", field=field)
