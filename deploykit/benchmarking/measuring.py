"""Measure models in turn, each in a process of its own, round by round: a drift hits all."""

import contextlib
import datetime
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.devices import check_devices
from deploykit.benchmarking.feeding import MADE_UP, Feeding
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.runner import started
from deploykit.benchmarking.sampling import Sampler, open_devices
from deploykit.benchmarking.settings import SECONDS, Settings
from deploykit.benchmarking.statistics import steady_from
from deploykit.freezing.open_model import OpenedModel
from deploykit.hardware.machine import machine
from deploykit.transforms.core.errors import CrashError, Error, LimitError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.running.child import Worker

ROUNDS = 20  # of 10, an interval finds a difference of 10 % less often
RESUME_SECONDS = 0.05  # caches and threads are cold after the others' turns
WARM_UP_SECONDS = 15.0  # at most
WARM_UP_BLOCK = 0.25

Advance = Callable[[str, int], None]


@dataclass(frozen=True)
class Contestant:
    """A model with one set of settings, as it is measured."""

    name: str
    model: str
    sha256: str
    job: Job


@dataclass
class _Course:
    """A contestant's process, and what it has done so far."""

    contestant: Contestant
    worker: Worker
    first_run_ms: float = 0.0
    warm_up_ms: list[float] = field(default_factory=list)
    settled: bool = False
    rounds_ms: list[tuple[float, ...]] = field(default_factory=list)
    rounds_seconds: list[float] = field(default_factory=list)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def ask(self, method: str, *arguments: Any) -> Any:
        """Ask the process; LimitError: TensorFlow died or hung."""
        try:
            return self.worker.ask(method, *arguments)
        except CrashError as error:
            raise LimitError(f"{self.contestant.name}: {error}") from None
        except Error as error:
            raise type(error)(f"{self.contestant.name}: {error}") from None

    def run(self, seconds: float, runs: int | None = None) -> tuple[tuple[float, ...], float]:
        """Return the milliseconds of each call, and the seconds of them all."""
        latencies, total = self.ask("run", seconds, runs)
        return tuple(latency / 1e6 for latency in latencies), total / 1e9

    def warm_up(self, limit: float) -> None:
        """Run until the latencies are steady, which the last calls of the first block may be."""
        first, _ = self.run(0, 1)
        self.first_run_ms = max(first)  # of the first call of each thread
        calls: list[float] = []
        start, passed = None, 0.0
        while start is None and passed < limit:
            found, seconds = self.run(WARM_UP_BLOCK)
            calls += found
            passed += seconds
            start = steady_from(calls)
        self.settled = start is not None
        self.warm_up_ms = calls[:start]

    def take_a_round(self, seconds: float, runs: int | None) -> None:
        """Run for so long, or so often."""
        self.run(RESUME_SECONDS, None if runs is None else 1)
        latencies, taken = self.run(seconds, runs)
        self.rounds_ms.append(latencies)
        self.rounds_seconds.append(taken)

    def measurement(self) -> Measurement:
        """Return what was found."""
        contestant = self.contestant
        return Measurement(
            name=contestant.name,
            model=contestant.model,
            sha256=contestant.sha256,
            settings=contestant.job.settings,
            samples=samples_in(contestant.job.batches[0]) * len(self.facts["towers"]),
            load_ms=self.facts["load_ns"] / 1e6,
            first_run_ms=self.first_run_ms,
            warm_up_ms=tuple(self.warm_up_ms),
            settled=self.settled,
            rounds_ms=tuple(self.rounds_ms),
            rounds_seconds=tuple(self.rounds_seconds),
            facts=self.facts,
        )


def measure(
    contestants: Sequence[Contestant],
    *,
    seconds: float = SECONDS,
    runs: int | None = None,
    rounds: int = ROUNDS,
    warm_up: float = WARM_UP_SECONDS,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure contestants in turn (A B B A ...), each for so many seconds, or calls, in all.

    `warm_up` is how many seconds each may take until it is steady. With `profile_runs`, each makes
    so many traced calls in the end.
    Ctrl-C ends it early: what was measured until then is the result. LimitError: TensorFlow died,
    or took too long. KeyboardInterrupt: nothing was measured yet.
    """
    start = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    seen, interrupted = machine(), False
    shares: list[int | None] = [None] * rounds
    if runs is not None:
        rounds = min(rounds, runs)
        shares = [runs * (i + 1) // rounds - runs * i // rounds for i in range(rounds)]
    steps = len(contestants) * (1 + rounds + bool(profile_runs))
    with contextlib.ExitStack() as stack:
        sampler = Sampler(open_devices(), lambda line: advance(line, 0))
        courses = []
        for each in contestants:  # one after another: a start beside a measurement spoils it
            advance(f"load {each.name}", steps)
            worker = started(each.job)
            stack.callback(worker.close)
            course = _Course(each, worker)
            course.warm_up(warm_up)
            course.facts = course.ask("facts")
            courses.append(course)
        profiles = {}
        try:
            for number in range(rounds):
                for course in courses if number % 2 == 0 else reversed(courses):
                    advance(course.contestant.name, steps)
                    with sampler.watching(course.contestant.name, course.worker.pid):
                        course.take_a_round(
                            seconds / rounds if runs is None else 1e9, shares[number]
                        )
            for course in courses:
                course.facts = course.ask("facts")  # the peak of memory is known now
            for course in courses if profile_runs else ():
                name = course.contestant.name
                advance(f"profile {name}", steps)
                profiles[name] = course.ask("profile", profile_runs)
        except KeyboardInterrupt:
            interrupted = True
            courses = [course for course in courses if course.rounds_ms]
            if not courses:
                raise
        for course in courses:
            course.facts = {**course.facts, **sampler.facts(course.contestant.name)}
        found = tuple(course.measurement() for course in courses)
    return BenchmarkResult(found, seen, start, interrupted, profiles)


def measure_models(
    models: Mapping[str, OpenedModel],
    settings: Iterable[Settings] = (Settings(),),
    feeding: Feeding = MADE_UP,
    *,
    seconds: float = SECONDS,
    runs: int | None = None,
    rounds: int = ROUNDS,
    profile_runs: int = 0,
    advance: Advance = lambda name, count: None,
) -> BenchmarkResult:
    """Measure models by name, each with each of the settings, in turn, as `measure` does.

    GraphError: an input has no known shape, or does not fit the data; a GPU is not there.
    LimitError: TensorFlow died.
    """
    chosen = tuple(settings)
    check_devices(each.device for each in chosen)
    feeding = feeding.read()
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        contestants = []
        for number, (name, model) in enumerate(models.items()):
            path, graph = Path(folder, f"{number}.pb"), model.graph
            spill(graph, path)
            fed = {
                size: feeding.batches(graph, size)
                for size in dict.fromkeys(each.batch for each in chosen)
            }
            for each in chosen:
                job = Job(str(path), graph.inputs, graph.outputs, fed[each.batch], each)
                contestants.append(Contestant("", name, model.sha256, job))
        found = measure(
            _named(contestants),
            seconds=seconds,
            runs=runs,
            rounds=rounds,
            profile_runs=profile_runs,
            advance=advance,
        )
    return replace(found, models=models)


def _named(contestants: Sequence[Contestant]) -> list[Contestant]:
    """Give each a name: its model, and its settings where they differ."""
    models = {each.model for each in contestants}
    short = {model: Path(model).name for model in models}
    if len(set(short.values())) < len(models):
        short = {model: model for model in models}
    several = len({each.job.settings for each in contestants}) > 1
    found = []
    for each in contestants:
        words = [short[each.model]] if len(models) > 1 or not several else []
        words += [str(each.job.settings)] if several else []
        found.append(replace(each, name=", ".join(words)))
    return found


def spill(graph: Graph, path: Path) -> str:
    """Write a graph to a file of this run, and return its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in graph.serialized():
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()
