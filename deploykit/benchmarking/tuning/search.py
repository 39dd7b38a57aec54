"""Coordinate search of settings for the lowest latency and the highest throughput."""

import math
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from deploykit.benchmarking.engines.engine_choice import check_answers, started
from deploykit.benchmarking.inputs import samples_in
from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.run_config import RunConfig
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
    seconds: float
    """Time limit from the start of the search, including `last` for the final measurement."""
    latency_limit: float | None = None
    """Limit on p99 of the throughput choice, in milliseconds."""
    done: Iterable[SettingsTrial] = ()
    """Trials of an earlier search, whose time counts."""
    keep: Callable[[Sequence[SettingsTrial]], None] = lambda trials: None
    """Stores all trials, after each trial."""
    advance: Callable[[str, int], None] = lambda name, count: None
    last: Callable[[Sequence[SettingsTrial]], float] = lambda best: 0.0
    """Seconds that the final measurement takes, if the best settings do not change."""
    clock: Callable[[], float] = time.monotonic
    best: dict[str, RunConfig] = field(default_factory=dict)
    complete: bool = False
    """Whether the search finished before its time limit."""

    def __post_init__(self) -> None:
        self._trials = {item.settings: item for item in self.done}
        self._began = self.clock() - sum(trial.seconds for trial in self._trials.values())

    @property
    def finalists(self) -> tuple[SettingsTrial, ...]:
        """The start, and the best settings so far."""
        chosen = dict.fromkeys([self.start, *self.best.values()])
        return tuple(self._trials[item] for item in chosen if item in self._trials)

    @property
    def runner_up(self) -> SettingsTrial | None:
        """Settings that beat the lowest latency, but not clearly; None: none did."""
        shape = (self.start.batch, self.start.concurrency)
        levels = {
            trial.settings: level(trial.figures.faster)[0]
            for trial in self.trials
            if trial.figures and (trial.settings.batch, trial.settings.concurrency) == shape
        }
        first = max(levels, key=lambda item: levels[item], default=None)
        return None if first is None or first == self.best["latency"] else self._trials[first]

    @property
    def trials(self) -> tuple[SettingsTrial, ...]:
        """All trials in the order in which they ran."""
        return tuple(self._trials.values())

    def run(self) -> None:
        """Run the search; `best` always contains the best settings so far."""
        self._try(self.start)
        self.best = dict.fromkeys(GOALS, self.start)
        improved = True
        while improved:
            improved = False
            for change in (change for coordinate in self.coordinates for change in coordinate):
                for goal in GOALS:
                    settings = self._changed(self.best[goal], change)
                    if not self._makes_sense(goal, settings):
                        continue
                    if settings not in self._trials and not self._has_time():
                        return
                    if self._is_better(goal, self._try(settings), self._trials[self.best[goal]]):
                        self.best[goal] = settings
                        improved = True
        self.complete = True

    def _changed(self, settings: RunConfig, change: Mapping[str, Any]) -> RunConfig:
        """Return changed settings; another engine starts from the first variables."""
        plain = {name: value for name, value in change.items() if name not in ("env", "without")}
        env = dict((self.start if "engine" in change else settings).env) | change.get("env", {})
        env = {name: value for name, value in env.items() if name not in change.get("without", ())}
        result = replace(settings, **plain, env=env)
        return replace(result, env=result.in_engine.env)

    def _makes_sense(self, goal: str, settings: RunConfig) -> bool:
        if settings.in_engine != settings:
            return False
        several = 1 if settings.engine else settings.concurrency  # other engines have streams
        if settings.threads is not None and settings.threads[1] < several:
            return False  # calls would wait for each other
        shape = (settings.batch, settings.concurrency)
        return goal == "throughput" or shape == (self.start.batch, self.start.concurrency)

    def _try(self, settings: RunConfig) -> SettingsTrial:
        if settings in self._trials:
            return self._trials[settings]
        self.advance(str(settings), self._expected())
        began = self.clock()
        figures, failure = None, ""
        try:
            figures = self.trial(settings)
        except Error as error:
            if settings == self.start:
                raise
            failure = str(error)
        settings_trial = SettingsTrial(settings, figures, failure, self.clock() - began)
        self._trials[settings] = settings_trial
        self.keep(self.trials)
        return settings_trial

    def _is_better(self, goal: str, new: SettingsTrial, old: SettingsTrial) -> bool:
        a, b, limit = new.figures, old.figures, self.latency_limit
        if a is None or b is None:
            return False
        if goal == "throughput" and limit is not None:
            meets = a.p99_ms <= limit
            if meets != (b.p99_ms <= limit):
                return meets
        else:
            meets = goal == "throughput"
        # Settings beyond the limit are compared by latency, on the way to meeting it.
        return _clearly(a.more, b.more) if meets else _clearly(a.faster, b.faster)

    def _has_time(self) -> bool:
        longest = max(trial.seconds for trial in self._trials.values())
        spent = self.clock() - self._began
        return spent + longest + self.last(self.finalists) <= self.seconds

    def _expected(self) -> int:
        """Return the expected number of trials, at the speed of those so far."""
        spent, count = self.clock() - self._began, len(self._trials)
        left = max(0.0, self.seconds - spent - self.last(self.finalists))
        return count + 1 + (int(left * count / spent) if spent else 0)


def _clearly(new: Sequence[float], old: Sequence[float]) -> bool:
    """Return whether gains are larger than others, beyond the scatter of their rounds."""
    (a, error_a), (b, error_b) = level(new), level(old)
    return a - b > max(math.log1p(CLEARLY), NOISE * math.hypot(error_a, error_b))


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


class Trials:
    """One process with the default settings, and another with the settings last tried.

    Outputs of another engine are compared with TensorFlow's before it is tried.
    """

    def __init__(
        self, job: Callable[[RunConfig], Job], default: RunConfig, model: OpenedModel
    ) -> None:
        """Start the process of the default settings; `job` returns the job for settings."""
        self._job, self._default, self._model = job, default, model
        self._compared: dict[object, Error | None] = {}
        self._check_answers(default)
        self.until = float("inf")
        """Deadline (time.monotonic) after which a hanging trial is stopped."""
        began = time.monotonic()
        self._reference = started(job(default))
        self._worker: Worker | None = None
        self._process: RunConfig | None = None
        try:
            self.onednn: bool = self._reference.ask("facts").get("onednn", False)
            """Whether TensorFlow uses oneDNN by default."""
            self._reference.ask("run", 0, 1)
            self._reference.ask("run", WARM_UP_SECONDS)
        except BaseException:
            self._reference.close()
            raise
        self.start_seconds = time.monotonic() - began

    def __call__(self, settings: RunConfig) -> Figures:
        """Run with these settings. Error: TensorFlow refuses them, dies or hangs."""
        self._check_answers(settings)
        left = max(self.until - time.monotonic(), 1.0)
        try:
            with ResourceLimits(min(limits.seconds, left), limits.memory, limits.show_log):
                worker = self._reference
                if settings != self._default:
                    worker = self._ready(settings)
                    worker.ask("run", 0, 1)
                    worker.ask("run", WARM_UP_SECONDS)
                return self._figures(worker, settings)
        except Error:
            self._stop()  # it may be dead
            raise

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

    def close(self) -> None:
        """End both processes."""
        self._reference.close()
        self._stop()

    def _ready(self, settings: RunConfig) -> Worker:
        """Return a process with these settings; reuse the last one if only its inputs change."""
        process = replace(settings, batch=None, concurrency=1)
        if self._worker is not None and process == self._process:
            self._worker.ask("go_on_with", self._job(settings))
            return self._worker
        self._stop()
        self._worker, self._process = started(self._job(settings)), process
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = self._process = None

    def _figures(self, worker: Worker, settings: RunConfig) -> Figures:
        items, usual_items = (
            samples_in(self._job(item).batches[0]) for item in (settings, self._default)
        )
        latencies_ns: list[int] = []
        total, faster, more = 0, [], []
        end = time.monotonic() + ENOUGH_SECONDS
        for _ in range(TURNS):
            calls, used = usual, usual_time = self._reference.ask("run", TURN_SECONDS)
            if worker is not self._reference:
                calls, used = worker.ask("run", TURN_SECONDS)
            latencies_ns += calls
            total += used
            faster.append(statistics.median(usual) / statistics.median(calls))
            more.append(items * len(calls) / used / (usual_items * len(usual) / usual_time))
            is_slower = len(faster) >= FEWEST and _are_losses(faster) and _are_losses(more)
            if is_slower or time.monotonic() > end:
                break
        return Figures(
            p50_ms=statistics.median(latencies_ns) / 1e6,
            p99_ms=sorted(latencies_ns)[-(-99 * len(latencies_ns) // 100) - 1] / 1e6,
            items_per_second=items * len(latencies_ns) / (total / 1e9),
            faster=tuple(faster),
            more=tuple(more),
        )


def _are_losses(gains: Sequence[float]) -> bool:
    """Return whether gains are below 1, beyond the scatter of their rounds."""
    middle, error = level(gains)
    return middle + NOISE * error < 0
