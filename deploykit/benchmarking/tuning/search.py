"""Coordinate search of settings for the lowest latency and the highest throughput."""

import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from deploykit.benchmarking.engines.engine_choice import check_answers
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.worker_sessions import Outcome, started
from deploykit.importers.open_model import OpenedModel
from deploykit.transforms.common.documents import Flat, IfSet, Written, converted
from deploykit.transforms.common.errors import Error
from deploykit.transforms.runtime.child_process import ResourceLimits, Worker, limits

GOALS = ("latency", "throughput")
CLEARLY = 0.06  # two processes of one model differ by up to 3 %, and only one of each is tried
NOISE = 2.0  # standard errors that a gain must exceed as well

Coordinate = Sequence[Mapping[str, Any]]
"""Changes of settings by name; `env` adds variables to those so far, `without` removes some."""


@dataclass(frozen=True)
class Figures:
    """Metrics of a short run, whose rounds alternate with those of the default settings."""

    p50_ms: float
    p99_ms: float
    items_per_second: float
    faster: tuple[float, ...]
    """For each round, the default's median latency divided by this one's."""
    more: tuple[float, ...]
    """For each round, the throughput divided by the default's."""


@dataclass(frozen=True)
class SettingsTrial:
    """Settings that were tried, with their metrics or the reason of the failure."""

    settings: RunConfig
    figures: Flat[Figures | None]
    failure: IfSet[str] = ""
    seconds: Annotated[float, Written(digits=2)] = 0.0

    @classmethod
    def of(
        cls, plain: Mapping[str, Any], own: Collection[tuple[str, str | None]] = ()
    ) -> "SettingsTrial":
        """Return a trial from its document; `own` is as in `RunConfig.of`.

        KeyError, GraphError: not a trial.
        """
        settings, seconds = RunConfig.of(plain["settings"], own), converted(plain["seconds"], float)
        failure = converted(plain.get("failure", ""), str)
        return cls(settings, None if failure else converted(plain, Figures), failure, seconds)


@dataclass
class Search:
    """A coordinate search for both goals from one start; each trial runs once.

    Coordinates are lists of changes to the best settings so far. They are tried in this order, and
    again until none helps or the time is used up. For the first goal, batch and concurrency stay as
    in the start.
    """

    trial: Callable[[RunConfig], Figures]
    """Runs a trial. It may raise an Error, which is stored; the error of the start is passed on."""
    start: RunConfig
    coordinates: Sequence[Coordinate]
    left: Callable[[Sequence[SettingsTrial]], float]
    """Seconds that are left for trials, if these are the best in the end."""
    latency_limit: float | None = None
    """Limit on p99 of the throughput choice, in milliseconds."""
    done: Sequence[SettingsTrial] = ()
    """Trials of an earlier search, whose time counts."""
    keep: Callable[[Sequence[SettingsTrial]], None] = lambda trials: None
    """Stores all trials, after each trial."""
    advance: Callable[[str, int], None] = lambda name, count: None
    clock: Callable[[], float] = time.monotonic
    best: dict[str, RunConfig] = field(default_factory=dict)
    complete: bool = False
    """Whether the search finished before its time limit."""

    def __post_init__(self) -> None:
        self._trials = {item.settings: item for item in self.done}

    @property
    def trials(self) -> tuple[SettingsTrial, ...]:
        """All trials in the order in which they ran."""
        return tuple(self._trials.values())

    @property
    def finalists(self) -> tuple[SettingsTrial, ...]:
        """The start, and the best settings so far."""
        chosen = dict.fromkeys([self.start, *self.best.values()])
        return tuple(self._trials[item] for item in chosen if item in self._trials)

    @property
    def runner_up(self) -> SettingsTrial | None:
        """Settings that beat the lowest latency, but not clearly; None: none did."""
        ranked = [
            (level(trial.figures.faster)[0], trial)
            for trial in self.trials
            if trial.figures and self._is_lone_call(trial.settings)
        ]
        _, first = max(ranked, key=lambda pair: pair[0], default=(0.0, None))
        return None if first is None or first.settings == self.best["latency"] else first

    def run(self) -> None:
        """Run the search; `best` always contains the best settings so far."""
        self._try(self.start)
        self.best = dict.fromkeys(GOALS, self.start)
        before: dict[str, RunConfig] = {}
        while self.best != before:
            before = dict(self.best)
            for change, goal in itertools.product(itertools.chain(*self.coordinates), GOALS):
                best = self.best[goal]
                settings = self._changed(best, change)
                if not self._makes_sense(goal, settings):
                    continue
                longest = max(trial.seconds for trial in self.trials)
                if settings not in self._trials and longest > self._left:
                    return
                if self._is_better(goal, self._try(settings), self._trials[best]):
                    self.best[goal] = settings
        self.complete = True

    def _changed(self, settings: RunConfig, change: Mapping[str, Any]) -> RunConfig:
        """Return changed settings; another engine starts from the first variables."""
        plain = {name: value for name, value in change.items() if name not in ("env", "without")}
        env = dict((self.start if "engine" in change else settings).env) | change.get("env", {})
        env = {name: value for name, value in env.items() if name not in change.get("without", ())}
        result = replace(settings, **plain, env=env)
        return replace(result, env=result.in_engine.env)

    def _is_lone_call(self, settings: RunConfig) -> bool:
        shape = (self.start.batch, self.start.concurrency)
        return (settings.batch, settings.concurrency) == shape

    def _makes_sense(self, goal: str, settings: RunConfig) -> bool:
        several = 1 if settings.engine else settings.concurrency  # other engines have streams
        would_wait = settings.threads is not None and settings.threads[1] < several
        if settings.in_engine != settings or would_wait:
            return False
        return goal == "throughput" or self._is_lone_call(settings)

    def _try(self, settings: RunConfig) -> SettingsTrial:
        if settings in self._trials:
            return self._trials[settings]
        count, spent = len(self._trials), sum(trial.seconds for trial in self.trials)
        more = int(max(0.0, self._left) * count / spent) if spent else 0
        self.advance(str(settings), count + 1 + more)  # as many as at the speed so far
        began, figures, failure = self.clock(), None, ""
        try:
            figures = self.trial(settings)
        except Error as error:
            if settings == self.start:
                raise
            failure = str(error)
        trial = SettingsTrial(settings, figures, failure, self.clock() - began)
        self._trials[settings] = trial
        self.keep(self.trials)
        return trial

    @property
    def _left(self) -> float:
        return self.left(self.finalists) - sum(trial.seconds for trial in self.done)

    def _is_better(self, goal: str, new: SettingsTrial, old: SettingsTrial) -> bool:
        a, b, limit = new.figures, old.figures, self.latency_limit
        if a is None or b is None:
            return False
        meets = goal == "throughput"
        if meets and limit is not None:
            meets = a.p99_ms <= limit
            if meets != (b.p99_ms <= limit):
                return meets
        # Settings beyond the limit are compared by latency, on the way to meeting it.
        (new_level, error), (old_level, old_error) = (
            level(item.more if meets else item.faster) for item in (a, b)
        )
        noise = NOISE * math.hypot(error, old_error)
        return new_level - old_level > max(math.log1p(CLEARLY), noise)


def level(gains: Sequence[float]) -> tuple[float, float]:
    """Return the median logarithm of gains per round, and its standard error."""
    logs = [math.log(gain) for gain in gains]
    middle = statistics.median(logs)
    scatter = 1.4826 * statistics.median(abs(log - middle) for log in logs)
    return middle, 1.2533 * scatter / math.sqrt(len(logs))


TURNS = 16
TURN_SECONDS = 0.03  # many short rounds scatter less than few long ones under load
FEWEST = 6  # rounds before a clearly slower trial stops
WARM_UP_SECONDS = 0.25
ENOUGH_SECONDS = 5.0  # total of all rounds; a slow model gets fewer rounds

_Run = Callable[[float], Outcome]
"""Runs a session for some seconds."""


class Trials:
    """A session with the default settings, and another with the settings last tried.

    Each has a process. Outputs of another engine are compared with TensorFlow's before it is tried.
    """

    def __init__(
        self, job: Callable[[RunConfig], Job], default: RunConfig, model: OpenedModel
    ) -> None:
        """Start the process of the default settings; `job` returns the job for settings."""
        self._job, self._default, self._model = job, default, model
        self._compared: dict[object, Error | None] = {}
        self._check_answers(default)
        self.left: Callable[[], float] = lambda: limits.seconds
        """Returns the seconds after which a hanging trial is stopped."""
        began = time.monotonic()
        self._reference = started(job(default))
        self._worker: Worker | None = None
        self._process: object = None
        try:
            self._usual = _warmed_up(self._reference, job(default))
            self.onednn: bool = self._reference.ask("facts", 0).get("onednn", False)
            """Whether TensorFlow uses oneDNN by default."""
        except BaseException:
            self._reference.close()
            raise
        self.start_seconds = time.monotonic() - began

    def __call__(self, settings: RunConfig) -> Figures:
        """Run with these settings. Error: TensorFlow refuses them, dies or hangs."""
        self._check_answers(settings)
        seconds = min(limits.seconds, max(self.left(), 1.0))
        try:
            with ResourceLimits(seconds, limits.memory, limits.show_log):
                turn = self._usual if settings == self._default else self._opened(settings)
                return self._figures(turn, settings)
        except Error:
            self._stop()  # it may be dead
            raise

    def close(self) -> None:
        """End both processes."""
        self._reference.close()
        self._stop()

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None

    def _check_answers(self, settings: RunConfig) -> None:
        """Compare the engine's outputs with TensorFlow's, once per batch size."""
        key = settings.engine, settings.precision, settings.batch
        if key not in self._compared:
            self._compared[key] = None
            try:
                check_answers([self._job(settings)], self._model.graph, self._model.source)
            except Error as error:
                self._compared[key] = error
        if (result := self._compared[key]) is not None:
            raise result

    def _opened(self, settings: RunConfig) -> _Run:
        """Open a session with these settings, in the last process if both can share one."""
        job = self._job(settings)
        if self._worker is None or job.process != self._process:
            self._stop()
            self._worker, self._process = started(job), job.process
        return _warmed_up(self._worker, job)

    def _figures(self, turn: _Run, settings: RunConfig) -> Figures:
        items, usual_items = (
            samples_in(self._job(item).batches[0]) for item in (settings, self._default)
        )
        latencies_ns: list[int] = []
        total, faster, more = 0, [], []
        end = time.monotonic() + ENOUGH_SECONDS
        for _ in range(TURNS):
            usual, usual_time, *_ = outcome = self._usual(TURN_SECONDS)
            calls, used, *_ = outcome if turn is self._usual else turn(TURN_SECONDS)
            latencies_ns += calls
            total += used
            faster.append(statistics.median(usual) / statistics.median(calls))
            more.append(items * len(calls) / used / (usual_items * len(usual) / usual_time))
            losses = (middle + NOISE * error < 0 for middle, error in map(level, (faster, more)))
            if (len(faster) >= FEWEST and all(losses)) or time.monotonic() > end:
                break
        return Figures(
            p50_ms=statistics.median(latencies_ns) / 1e6,
            p99_ms=sorted(latencies_ns)[-(-99 * len(latencies_ns) // 100) - 1] / 1e6,
            items_per_second=items * len(latencies_ns) / (total / 1e9),
            faster=tuple(faster),
            more=tuple(more),
        )


def _warmed_up(worker: Worker, job: Job) -> _Run:
    """Warm up the only session of a process for a job, and return what runs it."""
    turn = functools.partial(worker.ask, "turn", worker.ask("renew", job))
    turn(0, 1)
    turn(WARM_UP_SECONDS)
    return turn
