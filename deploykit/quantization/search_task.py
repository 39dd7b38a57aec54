"""The task of an int8 search: graph, samples, results so far, and the time budget."""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from deploykit.benchmarking.inputs import batches
from deploykit.quantization.quantize_options import DEFAULT, PREFERENCES, QuantizeOptions
from deploykit.rendering.progress import Work, unseen
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.system.machine import environment, machine
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Dataset, Split
from deploykit.verification.tolerance import QUANTIZED_BAR_DB

GRAPHS = 3  # minimum to compare: int8, float32, and float32 in another configuration
ENDINGS = 2.0  # seconds to build and write the result
RUNS = 2  # starts of TensorFlow to compare the written file with the model
OBSERVED = 3.0  # time of a run with observers, relative to a plain run
MARGIN = 1.3  # benchmarks took up to twice the estimate on a loaded machine


@dataclass(frozen=True)
class Depth:
    """How thoroughly graphs are benchmarked: measurement and warm-up seconds per graph."""

    seconds: float
    warm_up: float

    def cost(self, start: float, call: float) -> float:
        """Return the seconds to measure a graph, from the seconds of a start and of a call.

        Each graph runs in two processes, and some of the time is for further sessions.
        """
        return 2 * start + self.warm_up + 1.4 * self.seconds + 6 * call


DEPTHS: tuple[Depth, ...] = (Depth(6.0, 2.0), Depth(3.0, 1.0), Depth(1.5, 0.5), Depth(0.6, 0.25))


@dataclass
class Budget:
    """The time limit of a whole command, and the measured times to distribute it."""

    minutes: float
    now: Callable[[], float] = time.monotonic
    start: float = 0.0
    """Seconds to start TensorFlow with a graph."""
    sample: float = 0.0
    """Seconds per sample in the float32 graph."""
    trial: float = 0.0
    """Seconds to build an int8 graph and to run it on the held-out samples."""
    held_out: int = 0
    calibrating: int = 0
    batch: int = 1
    began: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self.began = self.now()

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self.began + 60 * self.minutes - self.now()

    def measured(self, started: float, ran: float) -> None:
        """Set the times from the start of a child and the first run on the held-out samples."""
        self.start, self.sample = started, ran / max(self.held_out, 1)
        self.trial = 1.0 + 1.5 * ran

    def tried(self, seconds: float) -> None:
        """Update the time of a trial."""
        self.trial = max(seconds, self.trial / 2)

    @property
    def call(self) -> float:
        """Seconds of a call with the batch size to optimize for."""
        return self.sample * self.batch

    def to_calibrate(self, samples: int, passes: int = 2) -> float:
        """Return the seconds to calibrate with a number of samples, before and after shifting.

        `passes` is 1 if the ranges before shifting are known.
        """
        return passes * (self.start + OBSERVED * self.sample * samples)

    def to_compare(self, depth: Depth, graphs: int = GRAPHS) -> float:
        """Return the seconds to benchmark a number of graphs."""
        return MARGIN * graphs * depth.cost(self.start, self.call)

    def to_time(self, rounds: int) -> float:
        """Return the seconds to time layers: parallel starts, then traced calls of three graphs."""
        return 2 * self.start + 3 * self.call * (6 + 5 * rounds)

    @property
    def end(self) -> float:
        """The minimum seconds for the steps after the trials."""
        return self.to_compare(DEPTHS[-1]) + self.last

    @property
    def last(self) -> float:
        """The seconds for the steps after the benchmark: the file is written and run."""
        return ENDINGS + RUNS * self.start

    @property
    def for_trials(self) -> float:
        """The minimum seconds for the steps after ranking: one trial, and `end`."""
        return self.trial + self.end

    def calibrating_samples(self, least: int, passes: int = 2) -> int:
        """Return the number of calibration samples: all, or what half of the spare time allows."""
        spare = (self.left - self.for_trials) / 2
        if self.to_calibrate(self.calibrating, passes) <= spare:
            return self.calibrating
        item = OBSERVED * self.sample
        most = int((spare / passes - self.start) / item) if item else self.calibrating
        return min(max(most, least), self.calibrating)

    def ranking_until(self) -> float:
        """Return the clock time at which ranking must end: after half of the spare time."""
        return self.now() + max(self.left - self.for_trials, 0) / 2

    def ranking_samples(self, layers: int, most: int) -> int:
        """Return the number of samples to rank each layer with, so that there is time for all."""
        share, samples = max(self.left - self.for_trials, 0) / 2, most
        while samples > 4 and self.start + layers * (0.5 + 1.5 * self.sample * samples) > share:
            samples //= 2
        return samples

    @property
    def is_over(self) -> bool:
        """Whether the time left is too short for another trial."""
        return self.left < self.for_trials

    def timing_rounds(self, most: int) -> int:
        """Return the number of rounds to time layers; 0: the time left is too short."""
        spare = self.left - self.end
        return next((n for n in (most, 6, 3, 2) if self.to_time(n) <= spare), 0)

    def has_time_to_compare(self, graphs: int) -> bool:
        """Return whether there is time to benchmark a number of graphs."""
        return self.to_compare(DEPTHS[-1], graphs) <= self.left - self.last

    def comparing(self, graphs: int) -> Depth:
        """Return how thoroughly to benchmark a number of graphs."""
        spare = self.left - self.last
        fits = (depth for depth in DEPTHS if self.to_compare(depth, graphs) <= spare)
        return next(fits, DEPTHS[-1])

    def shortfall(self, least: int) -> str:
        """Return the minimum time and why it is needed, in words; empty: the budget is enough."""
        needed = 60 * self.minutes - self.left + self.to_calibrate(min(least, self.calibrating))
        needed += self.for_trials
        if needed <= 60 * self.minutes:
            return ""
        return (
            f"this needs about {math.ceil(needed / 6) / 10:g} minutes, because TensorFlow starts "
            f"{2 + 2 * GRAPHS + RUNS} more times, {self.start:.1f} seconds each with this model, "
            f"and a sample takes {1e3 * self.sample:.0f} ms: few layers are ranked and timed"
        )


PREPARATION = 3  # version of the steps before int8; a change invalidates stored states
STEPS = ("engine", "calibrate", "round", "judge", "rank", "time", "compare", "judge the result")


@dataclass(frozen=True)
class SearchTask:
    """The inputs and the state of a search."""

    graph: Graph
    how: QuantizeOptions
    samples: Split
    timed_with: Dataset
    evaluation: Dataset | None
    state: State
    work: Work
    ranges: str
    """The path of the ranges file."""
    notes: list[str]
    budget: Budget
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of each step in seconds."""

    @property
    def bar(self) -> float:
        """The minimum SQNR of the outputs, in dB."""
        if self.how.min_sqnr is not None:
            return self.how.min_sqnr
        return QUANTIZED_BAR_DB if self.evaluation is not None else PREFERENCES[self.how.prefer]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Work]:
        """Begin a step, or continue it for another engine, and record its duration."""
        start = time.monotonic()
        yield self.work if name in self.seconds else self.work.begin(name)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


def task_of(
    graph: Graph,
    samples: Dataset,
    how: QuantizeOptions,
    evaluation: Dataset | None,
    state: str | os.PathLike[str] | None,
    work: Work | None,
    ranges: str,
    budget: Budget,
) -> SearchTask:
    """Return the task of a search. GraphError: the graph cannot run with the batch of `how`."""
    split = samples.split()
    timed_with = split.held_out.at_least(how.batch or 1)
    batches(graph, how.batch, data=timed_with)  # raises if the graph cannot run
    here = machine()
    belongs_to = {
        "graph": digest(graph.serialized()),
        "data": digest(pieces(samples.arrays)),
        "isa": how.isa,
        "preparation": PREPARATION,
        "keep_float": tuple(how.keep_float),
        "environment": environment(),
        "cpu": here["cpu"],
        "flags": here["flags"],
    }
    if split.held_out.related is not None:  # which samples calibrate affects all that is stored
        belongs_to["order"] = digest([repr(split.order).encode()])
    retained = State(state, "quantizing", belongs_to)
    notes = [split.note] if split.note else []
    if how.prefer != DEFAULT.prefer:
        notes.append(f"--prefer {how.prefer}: the minimum SQNR is {PREFERENCES[how.prefer]:g} dB")
    work = work or unseen("quantize", *STEPS)
    budget.held_out, budget.calibrating = split.held_out.count, split.calibrating.count
    budget.batch = how.batch or 1
    return SearchTask(
        graph, how, split, timed_with, evaluation, retained, work, ranges, notes, budget
    )
