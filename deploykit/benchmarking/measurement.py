"""A measurement of one model with one RunConfig, and the job of the child process."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.documents import ABOVE_ZERO, NOT_NEGATIVE, IfSet
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import MAX_BATCH, OPENVINO
from deploykit.transforms.ir.tensors import Array


@dataclass(frozen=True)
class Turn:
    """The session of a measurement round, and its CPU time and context switches."""

    block: int
    """Number of the block; in each block, every session runs once, in random order."""
    process: int
    session: int
    """Number of the session in its measurement."""
    cpu_ms: Annotated[float, NOT_NEGATIVE]
    """CPU time of the process in milliseconds: all threads, user and system."""
    voluntary: int
    """Voluntary context switches: a thread waited and gave up its CPU."""
    involuntary: int
    """Involuntary context switches: a runnable thread lost its CPU."""


_Calls = Annotated[tuple[Annotated[float, ABOVE_ZERO], ...], Meta(min_length=1)]


@dataclass(frozen=True)
class Measurement:
    """One model measured with one RunConfig. Latencies are in milliseconds, one per call."""

    name: str
    """Unique name in its result: the model, and the settings where they differ."""
    model: str
    sha256: str
    """SHA-256 of the model file, or of the frozen graph if the model is not a single file."""
    settings: RunConfig
    samples: Annotated[int, Meta(ge=1, le=MAX_BATCH)]
    """Number of samples per call."""
    load_ms: float
    first_run_ms: float
    warm_up_ms: tuple[float, ...]
    """Latencies of the calls before the steady state."""
    settled: bool
    """Whether latencies became steady within the warm-up time."""
    rounds_ms: Annotated[tuple[_Calls, ...], Meta(min_length=1)]
    """Latencies of each measurement round; a round runs one session."""
    rounds_seconds: tuple[Annotated[float, ABOVE_ZERO], ...]
    """Duration of each round; with concurrent calls it is less than the sum of their latencies."""
    turns: tuple[Turn, ...] = ()
    """Metadata of each round; empty in older results."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the process: versions, threads, environment, memory."""
    scenario: IfSet[bool | None] = None
    """True: version 0.1 measured it in a load scenario, so it is not comparable with others."""

    def check(self) -> None:
        """Raise GraphError if the fields of a loaded measurement contradict each other."""
        rounds = len(self.rounds_ms)
        if len(self.rounds_seconds) != rounds or len(self.turns) not in (0, rounds):
            raise GraphError("measurement-incomplete", source=self.name)

    @property
    def latencies_ms(self) -> tuple[float, ...]:
        """Latencies of all calls in the steady state."""
        return tuple(latency for item in self.rounds_ms for latency in item)

    @property
    def cpu_ms(self) -> float | None:
        """CPU time of a call over all threads in milliseconds, or None if unknown."""
        if not self.turns:
            return None
        calls = [len(item) for item in self.rounds_ms]
        return float(np.median([t.cpu_ms / n for t, n in zip(self.turns, calls, strict=True)]))

    @property
    def items_per_second(self) -> float:
        """Samples per second in the steady state."""
        return self.samples * len(self.latencies_ms) / sum(self.rounds_seconds)


@dataclass(frozen=True)
class Job:
    """What a worker runs: a GraphDef file, the names of its inputs and outputs, and the arrays to
    feed.
    """

    model: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batches: tuple[tuple[Array, ...], ...]
    settings: RunConfig
    devices: tuple[str, ...] = ()
    """TensorFlow device names, one replica each. Default: the device of the settings. Devices from
    /CPU:1 on are emulated."""

    @property
    def process(self) -> tuple[RunConfig, tuple[str, ...]]:
        """Key that is equal for jobs that share a process."""
        alone = replace(self.settings, batch=None, concurrency=1, executor=None)
        if alone.engine == OPENVINO:  # each graph is compiled for its own threads
            alone = replace(alone, threads=None, precision=None)
        return alone, self.devices
