"""A measurement of one model with one RunConfig: the job of the child process, the precision,
and the latencies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.documents import ABOVE_ZERO, NOT_NEGATIVE, IfSet
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import MOST_BATCH
from deploykit.transforms.ir.tensors import Array


@dataclass(frozen=True)
class ScenarioResult:
    """The figure of a scenario, and what it is worth."""

    name: Annotated[str, Meta(pattern=r"\A(single|offline|server)\Z")]
    """single, offline or server."""
    figure: str
    """What the value is: p90 latency, throughput or p99 latency."""
    value: float | None
    """None: it is not known, as calls were left that nobody waited for."""
    unit: str
    at_most: float | None
    """Of a latency, what it is at most (99 %, MLPerf's early-stopping estimate); None: it is not
    known."""
    valid: bool
    why: tuple[str, ...]
    """Why it is not valid, a reason each."""
    seconds: float
    """For how long calls were made."""
    calls: int
    """That were answered."""
    left: int
    """Calls that were due and not begun in time."""
    rate_asked: float | None
    """Calls that arrive in a second; None in the other scenarios."""
    rate_reached: float
    """Calls that were answered in a second."""
    latency_limit: float | None
    """In milliseconds."""

    @property
    def verdict(self) -> str:
        """Whether it is valid, in words."""
        return "valid" if self.valid else f"invalid: {'; '.join(self.why)}"


@dataclass(frozen=True)
class Turn:
    """Who took a round, and what it cost besides time."""

    block: int
    """In each block, every session has one turn, in random order."""
    process: int
    session: int
    """The number of the session in its measurement."""
    cpu_ms: Annotated[float, NOT_NEGATIVE]
    """Time of the process on all CPUs, of all its threads, user and system."""
    voluntary: int
    """How often a thread waited for something, and another took its CPU."""
    involuntary: int
    """How often another took the CPU although the thread could have gone on."""


_Calls = Annotated[tuple[Annotated[float, ABOVE_ZERO], ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Measurement:
    """One model with one set of settings. Latencies are in milliseconds, one a call."""

    name: str
    """What tells it from the others of its result: the model, and settings where they differ."""
    model: str
    sha256: str
    """Of the model's file, or of the frozen graph where the model is another thing than a file."""
    settings: RunConfig
    samples: Annotated[int, Meta(ge=1, le=MOST_BATCH)]
    """In each call."""
    load_ms: float
    first_run_ms: float
    warm_up_ms: tuple[float, ...]
    """The calls before the steady state."""
    settled: bool
    """Whether a steady state was seen within the time for it."""
    rounds_ms: Annotated[tuple[_Calls, ...], Meta(min_length=1)]
    """The calls of each round, which is a turn of one session."""
    rounds_seconds: tuple[Annotated[float, ABOVE_ZERO], ...]
    """How long each round took; with several calls in flight this is less than their sum."""
    turns: tuple[Turn, ...] = ()
    """One for each round; empty where it is not known, in results of old."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the process: versions, threads, environment, memory."""
    scenario: IfSet[ScenarioResult | None] = None
    """What the scenario found; None: sessions took turns instead."""

    def check(self) -> None:
        """Raise GraphError where parts of a measurement that was read do not fit each other."""
        rounds = len(self.rounds_ms)
        if len(self.rounds_seconds) != rounds or len(self.turns) not in (0, rounds):
            raise GraphError("measurement-incomplete", source=self.name)
        if self.scenario is not None and self.scenario.valid == bool(self.scenario.why):
            raise GraphError("scenario-contradicts", source=self.name)

    @property
    def latencies_ms(self) -> tuple[float, ...]:
        """All calls in the steady state."""
        return tuple(latency for item in self.rounds_ms for latency in item)

    @property
    def cpu_ms(self) -> float | None:
        """CPU time of a call, of all threads, in milliseconds; None: it is not known."""
        if not self.turns:
            return None
        calls = [len(item) for item in self.rounds_ms]
        return float(np.median([t.cpu_ms / n for t, n in zip(self.turns, calls, strict=True)]))

    @property
    def items_per_second(self) -> float:
        """Samples a second, in the steady state."""
        return self.samples * len(self.latencies_ms) / sum(self.rounds_seconds)


@dataclass(frozen=True)
class Job:
    """What is run: a GraphDef file, what is fed and fetched, and arrays to feed, batch by batch."""

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batches: tuple[tuple[Array, ...], ...]
    settings: RunConfig
    devices: tuple[str, ...] = ()
    """TensorFlow's names of what it runs on, a tower each; default: what the settings ask for.
    From /CPU:1 on they are emulated."""
