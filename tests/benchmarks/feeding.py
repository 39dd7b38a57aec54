"""One model behind several inputs, measured in turn: the articles' comparison, as a page too.

Each input has a process of its own. What computes is the model itself, or a wait of 20 ms: an
accelerator that takes no CPU.
"""

import contextlib
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from deploykit.data.input_speed.bottleneck import Rates
from deploykit.data.input_speed.input_runner import InputJob, started
from deploykit.system.machine import usable_cores
from tests.benchmarks.figures import Figure

ROUNDS = 5
WAIT_MS = 20.0
EVER = 600.0  # seconds
AHEAD = 20  # steps that what lies ready may flatter

# Time, as a part of what feeding takes. tf.data reads CSV too, of which nothing is asked.
FASTER = {"queue, CSV": 0.50, "tf.data, TFRecord": 0.30}
AT_THE_CEILING = {"queue": 0.93, "tfdata": 0.97}

# What the articles saw on their GPU.
USED = {"feed": 30, "queue": 43, "tfdata": 61}  # % of the GPU
SAVED = {"feed": "", "queue": "-33 %", "tfdata": "-50 %"}  # of the time of training


@dataclass(frozen=True)
class Turn:
    """One turn of an input: its rates, and the seconds that all steps took."""

    rates: Rates
    seconds: float

    @property
    def busy(self) -> float:
        """For which part of the time, in percent, the model is busy."""
        return 100 * self.rates.both / self.rates.compute


def in_turn(jobs: Mapping[str, InputJob], steps: int) -> dict[str, list[Turn]]:
    """Run so many steps of each job in every round, A B B A."""
    found: dict[str, list[Turn]] = {name: [] for name in jobs}
    cores = usable_cores()
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(contextlib.closing(started(job)))
            for name, job in jobs.items()
        }
        for worker in workers.values():
            worker.ask("run", "both", EVER, AHEAD)
        for number in range(ROUNDS):
            for name in list(jobs)[:: -1 if number % 2 else 1]:
                worker = workers[name]
                compute = worker.ask("run", "compute", EVER, steps)
                worker.ask("run", "input", EVER, AHEAD)  # what lies ready does not count
                alone = worker.ask("run", "input", EVER, steps)
                both = worker.ask("run", "both", EVER, steps)
                rates = [each.items / each.seconds for each in (both, compute, alone)]
                used = both.cpu_seconds / both.seconds
                found[name].append(Turn(Rates(*rates, used, cores), both.seconds))
    return found


@dataclass(frozen=True)
class Experiment:
    """A model behind several inputs by name; feeding comes first."""

    what: str
    jobs: Mapping[str, InputJob]
    steps: int
    asked: bool = True

    def measured(self) -> tuple[list[Figure], list[str]]:
        """Measure with the model itself and with a wait; return figures, and lines of the page."""
        real = in_turn(self.jobs, self.steps)
        waiting = {name: replace(job, wait_ms=WAIT_MS) for name, job in self.jobs.items()}
        waited = in_turn(waiting, -(-self.steps // 2))  # which say as much in less time
        times = {name: [turn.seconds for turn in turns] for name, turns in real.items()}
        figures = [
            figure for name in self.jobs for figure in self._figures(name, times, waited[name])
        ]
        return figures, self._section(times, real, waited)

    def _figures(
        self, name: str, times: Mapping[str, list[float]], waited: list[Turn]
    ) -> list[Figure]:
        style = self.jobs[name].style
        what = f"{self.what}: {self.steps} steps, {name}"
        if style == "feed":
            found = [Figure(what, "s", times[name])]
        else:
            (fed, *_) = times.values()
            bar = FASTER.get(name) if self.asked else None
            what = f"{what} (articles: {SAVED[style]})"
            found = [Figure(what, "s", times[name], fed, at_most_ratio=bar)]
        bar = AT_THE_CEILING.get(style) if self.asked else None
        what = f"{self.what}: {WAIT_MS:g} ms accelerator, {name}"
        shares = [turn.rates.share for turn in waited]
        busy = [turn.busy for turn in waited]
        return [
            *found,
            Figure(f"{what}, of the ceiling", "", shares, at_least=bar),
            Figure(f"{what}, busy (articles: {USED[style]} %)", "%", busy),
        ]

    def _section(
        self,
        times: Mapping[str, list[float]],
        real: Mapping[str, list[Turn]],
        waited: Mapping[str, list[Turn]],
    ) -> list[str]:
        (fed, *_) = times.values()
        (first, *_) = self.jobs.values()
        lines = [f"## {self.what}", "",
                 f"{self.steps} steps, {first.pipeline.batch} records each.", "",
                 "| | s | relative to feed | articles | input only, records/s | "
                 "accelerator utilization | articles |", "|---|---|---|---|---|---|---|",
                 ]  # fmt: skip
        for name, job in self.jobs.items():
            ratio = _median(a / b for a, b in zip(times[name], fed, strict=True))
            cells = (
                name,
                f"{_median(times[name]):.2f}",
                "" if job.style == "feed" else f"{100 * (ratio - 1):+.0f} %",
                SAVED[job.style],
                f"{_median(turn.rates.input for turn in real[name]):,.0f}",
                f"{_median(turn.busy for turn in waited[name]):.0f} %",
                f"{USED[job.style]} %",
            )
            lines.append(f"| {' | '.join(cells)} |")
        return [*lines, ""]


def _median(figures: Iterable[float]) -> float:
    return statistics.median(figures)
