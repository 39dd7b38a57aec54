"""What is put in 8 bits, with which samples, in how much time, and where findings go."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from deploykit.benchmarking.inputs import batches
from deploykit.hardware.machine import environment, machine
from deploykit.quantization.budget import Budget
from deploykit.quantization.requested import DEFAULT, PREFERENCES, QuantizeOptions
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.text.progress import Work, unseen
from deploykit.transforms.core.graph import Graph
from deploykit.verification.bar import QUANTIZED_BAR_DB
from deploykit.verification.samples import Dataset, Split

PREPARATION = 3  # changes with what is done before layers are int8, so with what a state holds
STEPS = ("engine", "calibrate", "round", "judge", "rank", "time", "compare", "judge the result")


@dataclass(frozen=True)
class SearchTask:
    """All that a search goes by."""

    graph: Graph
    how: QuantizeOptions
    samples: Split
    timed_with: Dataset
    evaluation: Dataset | None
    state: State
    work: Work
    ranges: str
    """The path of the ranges' file."""
    notes: list[str]
    budget: Budget
    seconds: dict[str, float] = field(default_factory=dict)
    """By step."""

    @property
    def bar(self) -> float:
        """What the answers have to keep, in dB."""
        if self.how.min_sqnr is not None:
            return self.how.min_sqnr
        return QUANTIZED_BAR_DB if self.evaluation is not None else PREFERENCES[self.how.prefer]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Work]:
        """Begin a step, or go on with it for another engine, and take its time."""
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
    """Return what is to be done. GraphError: the graph cannot be run in the batch that is asked."""
    split = samples.split()
    timed_with = split.held_out.at_least(how.batch or 1)
    batches(graph, how.batch, data=timed_with)  # can it be run?
    belongs_to = {
        "graph": digest(graph.serialized()),
        "data": digest(pieces(samples.arrays)),
        "isa": how.isa,
        "preparation": PREPARATION,
        "keep_float": tuple(how.keep_float),
        "environment": environment(),
        **{name: machine()[name] for name in ("cpu", "flags")},
    }
    kept = State(state, "quantizing", belongs_to)
    notes = [split.note] if split.note else []
    if how.prefer != DEFAULT.prefer:
        notes.append(
            f"--prefer {how.prefer}: the answers are to keep {PREFERENCES[how.prefer]:g} dB"
        )
    work = work or unseen("quantize", *STEPS)
    budget.held_out, budget.calibrating = split.held_out.count, split.calibrating.count
    budget.batch = how.batch or 1
    return SearchTask(graph, how, split, timed_with, evaluation, kept, work, ranges, notes, budget)
