"""Sessions of the candidates, in worker processes that several candidates share."""

import contextlib
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from deploykit.benchmarking.devices import gpu_bytes_peak
from deploykit.benchmarking.engines.engine_choice import opened
from deploykit.benchmarking.engines.runner import Runner, status
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job, Measurement, ScenarioResult, Turn
from deploykit.benchmarking.run_config import BenchmarkOptions, RunConfig
from deploykit.benchmarking.scenarios.load import Played, Stage
from deploykit.benchmarking.statistics import steady_from
from deploykit.system.process_usage import cpu_seconds
from deploykit.transforms.common.errors import CrashError, Error, LimitError
from deploykit.transforms.engines.engines import OPENVINO, TENSORFLOW, TITLES
from deploykit.transforms.runtime.child_process import Worker, limits
from deploykit.transforms.runtime.memory import give_back

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
        like = next((runner for runner in self._runners if runner.is_graph_of(job)), None)
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
        latencies, used = runner.run(seconds, runs)
        cpu = time.process_time_ns() - cpu
        after = resource.getrusage(resource.RUSAGE_SELF)
        waited = after.ru_nvcsw - before.ru_nvcsw
        return latencies, used, cpu, waited, after.ru_nivcsw - before.ru_nivcsw

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


WARM_UP_BLOCK = 0.25
MOST_SESSIONS = 24
SHORT, LONG = 5.0, 20.0
"""Seconds of measuring a contestant: below the first, more processes would take longer than that;
from the second on, many do not."""
_LOADING = 0.4  # of the time to measure, at most, for loading more sessions
_MEMORY = 0.5  # of what is free, at most
_AGAIN = 0.05  # seconds that a further session runs before its first turn


@dataclass(frozen=True)
class Contestant:
    """A model with one set of settings, as it is measured."""

    name: str
    model: str
    sha256: str
    job: Job

    @property
    def process(self) -> tuple[RunConfig, tuple[str, ...]]:
        """What those who share a process agree in."""
        alone = replace(self.job.settings, batch=None, concurrency=1, executor=None)
        if alone.engine == OPENVINO:  # each graph is compiled for its own threads
            alone = replace(alone, threads=None, precision=None)
        return alone, self.job.devices


@dataclass
class Process:
    """A process with sessions; `number` tells it from all others of the run."""

    number: int
    worker: Worker


@dataclass
class Course:
    """A contestant, its sessions, and what they have done so far."""

    contestant: Contestant
    seats: list["Seat"] = field(default_factory=list)
    load_seconds: float = 0.0
    first_run_ms: float = 0.0
    call_seconds: float = 0.0
    warm_up_ms: list[float] = field(default_factory=list)
    settled: bool = False
    rounds_ms: list[tuple[float, ...]] = field(default_factory=list)
    rounds_seconds: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)
    scenario: ScenarioResult | None = None

    @property
    def samples(self) -> int:
        """How many are in each call."""
        return samples_in(self.contestant.job.batches[0]) * len(self.facts["towers"])

    def open(self, process: Process) -> "Seat":
        """Make a session in a process."""
        seat = Seat(self, process, len(self.seats))
        seat.number = seat.ask("open", self.contestant.job)
        self.seats.append(seat)
        return seat

    def warm_up(self, limit: float) -> None:
        """Run the first session until it is steady, which the last of its first calls may be."""
        seat = self.seats[0]
        first, *_ = seat.ask("turn", seat.number, 0, 1)
        self.first_run_ms = max(first) / 1e6  # of the first call of each thread
        calls: list[float] = []
        start, passed = None, 0.0
        while start is None and passed < limit:
            result, used, *_ = seat.ask("turn", seat.number, WARM_UP_BLOCK)
            calls += (item / 1e6 for item in result)
            passed += used / 1e9
            start = steady_from(calls)
        self.settled = start is not None
        self.warm_up_ms = calls[:start]
        self.call_seconds = sorted(calls[start:] or calls or [self.first_run_ms])[0] / 1e3
        self.facts = seat.ask("facts", seat.number)
        self.load_seconds = self.facts["load_ns"] / 1e9

    @property
    def cpu_use(self) -> dict[str, Any]:
        """What the process took of one core, in percent, in the mean and at most in a turn."""
        shares = [
            turn.cpu_ms / seconds / 10
            for turn, seconds in zip(self.turns, self.rounds_seconds, strict=True)
        ]
        if not shares:
            return {"samples": []}
        return {"percent": {"mean": sum(shares) / len(shares), "max": max(shares)}, "samples": []}

    def measurement(self) -> Measurement:
        """Return what was found."""
        contestant = self.contestant
        return Measurement(
            name=contestant.name,
            model=contestant.model,
            sha256=contestant.sha256,
            settings=contestant.job.settings,
            samples=self.samples,
            load_ms=1e3 * self.load_seconds,
            first_run_ms=self.first_run_ms,
            warm_up_ms=tuple(self.warm_up_ms),
            settled=self.settled,
            rounds_ms=tuple(self.rounds_ms),
            rounds_seconds=tuple(self.rounds_seconds),
            turns=tuple(self.turns),
            facts=self.facts,
            scenario=self.scenario,
        )


@dataclass
class Seat:
    """A session of a contestant."""

    course: Course
    process: Process
    session: int
    """Its number in the course."""
    number: int = 0
    """Its number in the process."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask the process; LimitError: TensorFlow died or hung."""
        name = self.course.contestant.name
        try:
            return self.process.worker.ask(method, *arguments)
        except CrashError as error:
            raise error.within(name, LimitError) from None
        except Error as error:
            raise error.within(name) from None

    def take_a_turn(self, block: int, seconds: float, runs: int | None, resume: bool) -> None:
        """Run for so long, or so often, and note what was found."""
        outcome: Outcome = self.ask("turn", self.number, seconds, runs, resume)
        latencies, used, cpu, waited, pushed = outcome
        course = self.course
        course.rounds_ms.append(tuple(latency / 1e6 for latency in latencies))
        course.rounds_seconds.append(used / 1e9)
        course.turns.append(
            Turn(block, self.process.number, self.session, cpu / 1e6, waited, pushed)
        )


class Seating:
    """All contestants, their sessions and processes, until the stack that holds them ends."""

    def __init__(self, contestants: Sequence[Contestant], stack: contextlib.ExitStack) -> None:
        """Start nothing yet."""
        self.courses = [Course(contestant) for contestant in contestants]
        self.processes: list[Process] = []
        self._stack = stack
        self._groups: dict[Any, list[Course]] = {}
        for course in self.courses:
            self._groups.setdefault(course.contestant.process, []).append(course)

    @property
    def _on_gpu(self) -> bool:
        return any(course.contestant.job.settings.device != "cpu" for course in self.courses)

    def open_first(self, warm_up: float) -> Iterator[str]:
        """Open a session of each contestant, and warm it up; yield the name of each before.

        One after another: a start beside a measurement spoils it.
        """
        processes: dict[Any, Process] = {}
        for course in self.courses:
            yield course.contestant.name
            group = course.contestant.process
            if group not in processes:
                processes[group] = self._start(course)
            course.open(processes[group])
            course.warm_up(warm_up)

    def open_more(self, seconds: float | None, most: int, tell: Callable[[], None]) -> None:
        """Open further sessions, as many as fit the time to measure and the memory that is free.

        `seconds` is None where calls are counted, not time.
        """
        expected = self._sessions(seconds, most)
        copies = min(self._copies(seconds), most)
        order = random.Random(0)
        for courses in self._groups.values():
            processes = [courses[0].seats[0].process]
            processes += [self._start(courses[0]) for _ in range(1, copies)]
            for number in range(max(expected, copies)):
                process = processes[number % copies]
                for course in order.sample(courses, len(courses)):
                    if number:
                        tell()
                        seat = course.open(process)
                        seat.ask("turn", seat.number, 0, 1)
                        seat.ask("turn", seat.number, _AGAIN)

    def _copies(self, seconds: float | None) -> int:
        """Return how often each process is there: more often where that tells more than it costs.

        Of equal chains that differ by 3 %, 3 of 8 were told apart in 25 seconds each by 3 processes
        with 8 sessions of either, and 4 of 5 by 6 processes with 4.
        """
        groups = len(self._groups)
        if seconds is None or seconds < SHORT:
            result = 2 if groups > 1 else 1
        elif seconds >= LONG and groups == 1:
            result = 6
        else:
            result = 3 if groups <= 3 else 2
        room = _room() / max(1, *(course.facts["bytes_peak"] for course in self.courses))
        return min(result, 2 if self._on_gpu else result, max(1, int(room)))

    def own_seconds(self) -> float:
        """Return the CPU time that all processes have used."""
        return sum(cpu_seconds(process.worker.pid) for process in self.processes)

    def _start(self, course: Course) -> Process:
        worker = started(course.contestant.job)
        self._stack.callback(worker.close)
        self.processes.append(Process(len(self.processes), worker))
        return self.processes[-1]

    def _sessions(self, seconds: float | None, most: int) -> int:
        """Return how many sessions each contestant gets."""
        free = _room()
        bytes_each = sum(
            course.facts["bytes_peak"] - course.facts["bytes_before"] for course in self.courses
        )
        most = min(most, MOST_SESSIONS, 1 + int(free / max(bytes_each, 1)))
        if self._on_gpu:  # how much of its memory a session takes is not known
            most = min(most, 3)
        if seconds is None:
            return most
        cost = max(
            course.load_seconds + course.first_run_ms / 1e3 + _AGAIN for course in self.courses
        )
        call = max(course.call_seconds for course in self.courses)
        share = _LOADING if len(self.courses) > 1 else _LOADING / 2
        by_time = 1 + int(share * seconds / cost)
        by_calls = max(1, int(seconds / (6 * call)))
        return max(1, min(most, by_time, by_calls))


def _room() -> float:
    """Return the bytes of memory that sessions may take."""
    return _MEMORY * (limits.memory or psutil.virtual_memory().available)
