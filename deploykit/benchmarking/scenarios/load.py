"""A load on a session, in threads of its process; no word passes to another one between calls."""

import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from deploykit.benchmarking.engines.runner import Runner
from deploykit.benchmarking.run_config import OFFLINE, SERVER, BenchmarkOptions
from deploykit.serving.client.load_generator import poisson

SEED = 0
LONGEST_WAIT = 1.0
"""After the last arrival, calls that still wait are computed for so many times the duration."""

Call = tuple[int, int, int, int]
"""When a call was due, when a thread was free for it, when it started, when it ended, in
nanoseconds from the start of the load. In scenario server `due` is the intended time."""


@dataclass(frozen=True)
class Played:
    """What a load was so far, as plain data; most is known at the end alone."""

    over: bool
    done: int
    """Calls that were answered."""
    calls: tuple[Call, ...] = ()
    """In the order in which they were due."""
    left: int = 0
    """Calls that were due and never started."""
    taken: int = 0
    """Nanoseconds from the start until the last answer."""
    cpu: int = 0
    """CPU nanoseconds of the process."""
    waited: int = 0
    """How often a thread was switched because it waited."""
    pushed: int = 0
    """How often although it could have gone on."""


class Stage:
    """A load, from its making until it is over.

    Threads take calls in the order in which these are due, and wait where one is not due yet: that
    is a queue with as many places to be computed at.
    """

    def __init__(self, runner: Runner, timing: BenchmarkOptions) -> None:
        """Begin."""
        self._runner, self._timing = runner, timing
        self._lock, self._stopped = threading.Lock(), threading.Event()
        self._calls: list[Call] = []
        self._errors: list[BaseException] = []
        self._number = 0
        self._working = runner.job.settings.concurrency
        self._due = self._due_times()
        self._usage, self._cpu = resource.getrusage(resource.RUSAGE_SELF), time.process_time_ns()
        self._began = time.perf_counter_ns()
        for _ in range(runner.job.settings.concurrency):
            threading.Thread(target=self._work, daemon=True).start()

    def stop(self) -> None:
        """Let what is being computed end, and no other call begin."""
        self._stopped.set()

    def so_far(self) -> Played:
        """Return what is known. GraphError, LimitError: a call failed."""
        with self._lock:
            if self._working:
                return Played(False, len(self._calls))
            if self._errors:
                raise self._errors[0]
            return self._played

    def _due_times(self) -> Iterator[int]:
        """Yield when each call is due; without a rate that is as soon as a thread is free."""
        end = int(self._timing.seconds * 1e9)
        if self._timing.scenario == SERVER:
            for item in poisson(self._timing.rate or 0.0, self._timing.seconds, SEED):
                yield int(item * 1e9)
            return
        together = len(self._runner.batches) if self._timing.scenario == OFFLINE else 1
        while (now := self._now()) < end:
            yield now
            for _ in range(1, together):
                yield self._now()

    def _work(self) -> None:
        try:
            while self._call():
                pass
        except BaseException as error:
            self._errors.append(error)
            self.stop()
        with self._lock:
            self._working -= 1
            if not self._working:
                self._played = self._outcome()

    def _call(self) -> bool:
        """Make the next call; return whether there was one."""
        with self._lock:
            due = None if self._gives_up() else next(self._due, None)
            number, self._number = self._number, self._number + (due is not None)
        if due is None:
            return False
        free = self._now()
        if due > free and self._stopped.wait((due - free) / 1e9):
            return False
        start = self._now()
        self._runner.compute(number)
        self._calls.append((due, free, start, self._now()))
        return True

    def _gives_up(self) -> bool:
        longest = (1 + LONGEST_WAIT) * self._timing.seconds * 1e9
        is_late = self._timing.scenario == SERVER and self._now() > longest
        return is_late or self._stopped.is_set()

    def _outcome(self) -> Played:
        cpu = time.process_time_ns() - self._cpu
        usage, before = resource.getrusage(resource.RUSAGE_SELF), self._usage
        now, calls = self._now(), tuple(sorted(self._calls))
        left = sum(item < now for item in self._due) if self._timing.scenario == SERVER else 0
        return Played(
            True,
            len(calls),
            calls,
            left,
            max((stop for *_, stop in calls), default=0),
            cpu,
            usage.ru_nvcsw - before.ru_nvcsw,
            usage.ru_nivcsw - before.ru_nivcsw,
        )

    def _now(self) -> int:
        return time.perf_counter_ns() - self._began
