"""What was measured of one model with one set of settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deploykit.benchmarking.settings import Settings


@dataclass(frozen=True)
class Measurement:
    """One model with one set of settings. Latencies are in milliseconds, one a call."""

    name: str
    """What tells it from the others of its result: the model, and settings where they differ."""
    model: str
    sha256: str
    """Of the model's file, or of the frozen graph where the model is another thing than a file."""
    settings: Settings
    samples: int
    """In each call."""
    load_ms: float
    first_run_ms: float
    warm_up_ms: tuple[float, ...]
    """The calls before the steady state."""
    settled: bool
    """Whether a steady state was seen within the time for it."""
    rounds_ms: tuple[tuple[float, ...], ...]
    """The calls of each round; between two rounds, the other measurements had theirs."""
    rounds_seconds: tuple[float, ...]
    """How long each round took; with several calls in flight this is less than their sum."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Of the process: versions, threads, environment, memory."""

    @property
    def latencies_ms(self) -> tuple[float, ...]:
        """All calls in the steady state."""
        return tuple(latency for each in self.rounds_ms for latency in each)

    @property
    def items_per_second(self) -> float:
        """Samples a second, in the steady state."""
        return self.samples * len(self.latencies_ms) / sum(self.rounds_seconds)
