"""Sessions of the candidates, in worker processes that several candidates may share."""

import contextlib
import gc
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from deploykit.benchmarking.devices import gpu_bytes_peak
from deploykit.benchmarking.engines.engine_choice import import_engine, opened
from deploykit.benchmarking.engines.runner import Runner, status
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job, Measurement, Turn
from deploykit.benchmarking.statistics import steady_from
from deploykit.system.cpu_usage import cpu_seconds
from deploykit.transforms.common.errors import CrashError, Error, LimitError
from deploykit.transforms.engines.engines import TENSORFLOW, TITLES
from deploykit.transforms.runtime.child_process import Worker, limits
from deploykit.transforms.runtime.memory import give_back

Outcome = tuple[list[int], int, int, int, int]
"""Result of a round: nanoseconds of each call, of all calls, and of CPU time. Then voluntary and
involuntary context switches."""


def started(settings_of: Job, *, imports: bool = False) -> Worker:
    """Return a process without sessions, in the environment of a job's settings.

    `imports`: it imports its engine at once, in parallel to other processes. Without it, the first
    session does, alone on the machine.
    """
    settings = settings_of.settings
    engine = settings.engine or TENSORFLOW
    imported = engine if imports else None
    return Worker(
        f"{__name__}:ProcessSessions", imported, forced=settings.environment, runs=TITLES[engine]
    )


class ProcessSessions:
    """The sessions in a worker process, each a Runner with a number. Errors are those of Runner."""

    def __init__(self, imported: str | None = None) -> None:
        """Start without sessions; import the engine `imported`."""
        if imported is not None:
            import_engine(imported)
        self._runners: list[Runner] = []
        self._bytes: list[int] = []

    def open(self, job: Job) -> int:
        """Open a session, and return its number."""
        before = _forget_peak() if self._runners else None
        like = next((runner for runner in self._runners if runner.is_graph_of(job)), None)
        runner = opened(job, like)
        self._runners.append(runner)
        # Memory of other sessions is not this one's.
        self._bytes.append(0 if before is None else before - self._runners[0].bytes_before)
        return len(self._runners) - 1

    def renew(self, job: Job) -> int:
        """Give the only session another job, and return its number.

        A new session replaces it if more than the batch and concurrency differ; the memory of the
        old one is free before the new one takes any.
        """
        if self._runners and _is_same_session(self._runners[0].job, job):
            self._runners[0].go_on_with(job)
            return 0
        self._runners.clear()
        self._bytes.clear()
        gc.collect()  # a session and its graph refer to each other
        give_back()
        return self.open(job)

    def facts(self, number: int) -> dict[str, Any]:
        """Return metadata of a session; its peak of memory excludes other sessions."""
        facts = self._runners[number].facts()
        peak = max(facts["bytes_peak"] - self._bytes[number], 0)
        first = self._runners[0].bytes_before
        return facts | {"bytes_before": first, "bytes_peak": max(peak, first)}

    def turn(
        self, number: int, seconds: float, runs: int | None = None, resume: bool = False
    ) -> Outcome:
        """Run a session for `seconds` or `runs` calls; `resume` makes an untimed call before.

        That call warms the caches after rounds of other sessions.
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

    def gpu_bytes_peak(self) -> list[int]:
        """Return the peak of TensorFlow's memory on each GPU of this process, in bytes."""
        return gpu_bytes_peak()

    def profile(self, number: int, runs: int) -> Any:
        """Profile a session."""
        return self._runners[number].profile(runs)


def _is_same_session(job: Job, other: Job) -> bool:
    """Return whether one session can do both jobs, with other inputs and calls in parallel."""
    first, second = (replace(item.settings, batch=None, concurrency=1) for item in (job, other))
    return (job.model, job.devices, first) == (other.model, other.devices, second)


def _forget_peak() -> int:
    """Free unused memory, reset the peak of memory, and return the bytes in use.

    Source: proc(5), /proc/PID/clear_refs.
    """
    give_back()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


WARM_UP_BLOCK = 0.25
MAX_SESSIONS = 24
SHORT, LONG = 5.0, 20.0
"""Seconds of measuring a candidate: below SHORT, starting more processes takes longer than the
measurement; from LONG on, it does not."""
_LOADING = 0.4  # maximum share of the measuring time for loading more sessions
_MEMORY = 0.5  # maximum share of the free memory
_AGAIN = 0.05  # seconds that a further session runs before its first round


@dataclass(frozen=True)
class BenchmarkCandidate:
    """A candidate: a model with one set of settings."""

    name: str
    model: str
    sha256: str
    job: Job


@dataclass
class Process:
    """A worker process with ProcessSessions; `number` is unique in a benchmark."""

    number: int
    worker: Worker


@dataclass
class CandidateRun:
    """The run of a candidate: its sessions in all processes, and their results so far."""

    candidate: BenchmarkCandidate
    sessions: list["CandidateSession"] = field(default_factory=list)
    load_seconds: float = 0.0
    first_run_ms: float = 0.0
    call_seconds: float = 0.0
    warm_up_ms: list[float] = field(default_factory=list)
    settled: bool = False
    rounds_ms: list[tuple[float, ...]] = field(default_factory=list)
    rounds_seconds: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of samples per call."""
        return samples_in(self.candidate.job.batches[0]) * len(self.facts["towers"])

    def open(self, process: Process) -> "CandidateSession":
        """Open a session in a process."""
        session = CandidateSession(self, process, len(self.sessions))
        session.number = session.ask("open", self.candidate.job)
        self.sessions.append(session)
        return session

    def warm_up(self, limit: float) -> None:
        """Run the first session until its latency is steady, or for `limit` seconds."""
        session = self.sessions[0]
        first, *_ = session.ask("turn", session.number, 0, 1)
        self.first_run_ms = max(first) / 1e6  # of the first call of each thread
        calls: list[float] = []
        start, passed = None, 0.0
        while start is None and passed < limit:
            result, used, *_ = session.ask("turn", session.number, WARM_UP_BLOCK)
            calls += (item / 1e6 for item in result)
            passed += used / 1e9
            start = steady_from(calls)
        self.settled = start is not None
        self.warm_up_ms = calls[:start]
        self.call_seconds = sorted(calls[start:] or calls or [self.first_run_ms])[0] / 1e3
        self.facts = session.ask("facts", session.number)
        self.load_seconds = self.facts["load_ns"] / 1e9

    @property
    def cpu_use(self) -> dict[str, Any]:
        """CPU use of the process in percent of one core: mean and maximum over the rounds."""
        shares = [
            turn.cpu_ms / seconds / 10
            for turn, seconds in zip(self.turns, self.rounds_seconds, strict=True)
        ]
        if not shares:
            return {"samples": []}
        return {"percent": {"mean": sum(shares) / len(shares), "max": max(shares)}, "samples": []}

    def measurement(self) -> Measurement:
        """Return the measurement so far."""
        candidate = self.candidate
        return Measurement(
            name=candidate.name,
            model=candidate.model,
            sha256=candidate.sha256,
            settings=candidate.job.settings,
            samples=self.samples,
            load_ms=1e3 * self.load_seconds,
            first_run_ms=self.first_run_ms,
            warm_up_ms=tuple(self.warm_up_ms),
            settled=self.settled,
            rounds_ms=tuple(self.rounds_ms),
            rounds_seconds=tuple(self.rounds_seconds),
            turns=tuple(self.turns),
            facts=self.facts,
        )


@dataclass
class CandidateSession:
    """A session of a candidate, as the main process refers to it."""

    candidate_run: CandidateRun
    process: Process
    index: int
    """Number of the session among those of its candidate."""
    number: int = 0
    """Number of the session in the ProcessSessions of its process."""

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method in the process. LimitError: TensorFlow died or hung."""
        name = self.candidate_run.candidate.name
        try:
            return self.process.worker.ask(method, *arguments)
        except CrashError as error:
            raise error.within(name, LimitError) from None
        except Error as error:
            raise error.within(name) from None

    def run_turn(self, block: int, seconds: float, runs: int | None, resume: bool) -> None:
        """Run a round of `seconds` or `runs` calls, and store its result."""
        outcome: Outcome = self.ask("turn", self.number, seconds, runs, resume)
        latencies, used, cpu, waited, pushed = outcome
        run = self.candidate_run
        run.rounds_ms.append(tuple(latency / 1e6 for latency in latencies))
        run.rounds_seconds.append(used / 1e9)
        run.turns.append(Turn(block, self.process.number, self.index, cpu / 1e6, waited, pushed))


class SessionPool:
    """The runs of all candidates, and their processes, which end when the exit stack closes."""

    def __init__(
        self, candidates: Sequence[BenchmarkCandidate], stack: contextlib.ExitStack
    ) -> None:
        """Store the candidates; no process starts yet."""
        self.candidate_runs = [CandidateRun(candidate) for candidate in candidates]
        self.processes: list[Process] = []
        self._stack = stack
        self._groups: dict[Any, list[CandidateRun]] = {}
        for run in self.candidate_runs:
            self._groups.setdefault(run.candidate.job.process, []).append(run)

    @property
    def _on_gpu(self) -> bool:
        return any(run.candidate.job.settings.device != "cpu" for run in self.candidate_runs)

    def open_first(self, warm_up: float) -> Iterator[str]:
        """Open and warm up a session of each candidate; yield its name before.

        Sessions open one after another, as a start would disturb a measurement.
        """
        processes: dict[Any, Process] = {}
        for run in self.candidate_runs:
            yield run.candidate.name
            group = run.candidate.job.process
            if group not in processes:
                processes[group] = self._start(run)
            run.open(processes[group])
            run.warm_up(warm_up)

    def open_more(self, seconds: float | None, most: int, tell: Callable[[], None]) -> None:
        """Open further sessions, as far as the measuring time and the free memory allow.

        `seconds` is None if calls are counted instead of time.
        """
        expected = self._sessions(seconds, most)
        copies = min(self._copies(seconds), most)
        order = random.Random(0)
        started = [
            [self._start(candidate_runs[0], imports=True) for _ in range(1, copies)]
            for candidate_runs in self._groups.values()
        ]
        for candidate_runs, more in zip(self._groups.values(), started, strict=True):
            processes = [candidate_runs[0].sessions[0].process, *more]
            for number in range(max(expected, copies)):
                process = processes[number % copies]
                for run in order.sample(candidate_runs, len(candidate_runs)):
                    if number:
                        tell()
                        session = run.open(process)
                        session.ask("turn", session.number, 0, 1)
                        session.ask("turn", session.number, _AGAIN)

    def _copies(self, seconds: float | None) -> int:
        """Return the number of processes per group: more if they improve the verdict enough.

        Of graphs that differ by 3 %, 3 processes with 8 sessions each detected 3 of 8 within 25
        seconds. 6 processes with 4 sessions each detected 4 of 5.
        """
        groups = len(self._groups)
        if seconds is None or seconds < SHORT:
            result = 2 if groups > 1 else 1
        elif seconds >= LONG and groups == 1:
            result = 6
        else:
            result = 3 if groups <= 3 else 2
        fitting = _session_memory() / max(
            1, *(run.facts["bytes_peak"] for run in self.candidate_runs)
        )
        return min(result, 2 if self._on_gpu else result, max(1, int(fitting)))

    def own_seconds(self) -> float:
        """Return the CPU time of all processes in seconds."""
        return sum(cpu_seconds(process.worker.pid) for process in self.processes)

    def _start(self, run: CandidateRun, *, imports: bool = False) -> Process:
        worker = started(run.candidate.job, imports=imports)
        self._stack.callback(worker.close)
        self.processes.append(Process(len(self.processes), worker))
        return self.processes[-1]

    def _sessions(self, seconds: float | None, most: int) -> int:
        """Return the number of sessions of each candidate."""
        free = _session_memory()
        bytes_each = sum(
            run.facts["bytes_peak"] - run.facts["bytes_before"] for run in self.candidate_runs
        )
        most = min(most, MAX_SESSIONS, 1 + int(free / max(bytes_each, 1)))
        if self._on_gpu:  # GPU memory per session is unknown
            most = min(most, 3)
        if seconds is None:
            return most
        cost = max(
            run.load_seconds + run.first_run_ms / 1e3 + _AGAIN for run in self.candidate_runs
        )
        call = max(run.call_seconds for run in self.candidate_runs)
        share = _LOADING if len(self.candidate_runs) > 1 else _LOADING / 2
        by_time = 1 + int(share * seconds / cost)
        by_calls = max(1, int(seconds / (6 * call)))
        return max(1, min(most, by_time, by_calls))


def _session_memory() -> float:
    """Return the bytes of memory that sessions may use."""
    return _MEMORY * (limits.memory or psutil.virtual_memory().available)
