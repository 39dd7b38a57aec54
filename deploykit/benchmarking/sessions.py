"""Several sessions in one process, which take turns; this lives in a child process."""

import contextlib
import resource
import time
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import gpu_bytes_peak
from deploykit.benchmarking.engines.opening import opened
from deploykit.benchmarking.engines.runner import Runner, status
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.scenarios.stage import Played, Stage
from deploykit.benchmarking.scenarios.timing import BenchmarkOptions
from deploykit.transforms.core.engines.engines import TENSORFLOW, TITLES
from deploykit.transforms.core.running.child import Worker
from deploykit.transforms.core.running.free_memory import give_back

Outcome = tuple[list[int], int, int, int, int]
"""Of a turn: nanoseconds of each call and of them all, CPU nanoseconds of the process, and how
often a thread was switched: because it waited, and although it could have gone on."""


def started(settings_of: Job) -> Worker:
    """Return a process without sessions, in the environment that a job's settings ask for."""
    settings = settings_of.settings
    runs = TITLES[settings.engine or TENSORFLOW]
    return Worker(f"{__name__}:Sessions", forced=settings.environment, runs=runs)


class Sessions:
    """Sessions of one or several jobs, by their number. Errors are those of Runner."""

    def __init__(self) -> None:
        """Hold none yet."""
        self._runners: list[Runner] = []
        self._bytes: list[int] = []

    def open(self, job: Job) -> int:
        """Make a session, and return its number."""
        before = _forget_peak() if self._runners else None
        like = next((each for each in self._runners if each.is_graph_of(job)), None)
        runner = opened(job, like)
        self._runners.append(runner)
        # What other sessions hold is not this one's.
        self._bytes.append(0 if before is None else before - self._runners[0].bytes_before)
        return len(self._runners) - 1

    def facts(self, number: int) -> dict[str, Any]:
        """Return what is known of a session; the peak of memory is as if it were alone."""
        facts = self._runners[number].facts()
        peak = max(facts["bytes_peak"] - self._bytes[number], 0)
        first = self._runners[0].bytes_before
        return facts | {"bytes_before": first, "bytes_peak": max(peak, first)}

    def turn(
        self, number: int, seconds: float, runs: int | None = None, resume: bool = False
    ) -> Outcome:
        """Run a session for so long, or so often; before, `resume` makes a call that is not timed.

        Caches are cold after the turns of others.
        """
        runner = self._runners[number]
        if resume:
            runner.run(0, 1)
        before, cpu = resource.getrusage(resource.RUSAGE_SELF), time.process_time_ns()
        latencies, taken = runner.run(seconds, runs)
        cpu = time.process_time_ns() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF)
        waited = after.ru_nvcsw - before.ru_nvcsw
        return latencies, taken, cpu, waited, after.ru_nivcsw - before.ru_nivcsw

    def begin(self, number: int, timing: BenchmarkOptions) -> None:
        """Begin the load of a scenario on a session; `so_far` tells how it goes."""
        self._stage = Stage(self._runners[number], timing)

    def so_far(self) -> Played:
        """Return what is known of the load."""
        return self._stage.so_far()

    def stop(self) -> None:
        """End the load early."""
        self._stage.stop()

    def gpu_bytes_peak(self) -> list[int]:
        """Return what TensorFlow held at most on each GPU that this process sees, in bytes."""
        return gpu_bytes_peak()

    def profile(self, number: int, runs: int) -> Any:
        """Find what the time of a session goes to."""
        return self._runners[number].profile(runs)


def _forget_peak() -> int:
    """Give back what is free, start the peak of memory anew, and return what is in use in bytes.

    Source: proc(5), /proc/PID/clear_refs.
    """
    give_back()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")
