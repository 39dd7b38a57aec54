"""What is sought, among which settings, and how long that may take."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.benchmarking.tuning.searching import GOALS
from deploykit.transforms.core.errors import GraphError


@dataclass(frozen=True)
class TuneOptions:
    """How `deploykit.tune` searches."""

    batch: Sequence[int] | int = ()
    """Samples at once to try; the lowest latency is sought for the smallest. Default: 1, 8 and 32
    where the model leaves it open."""
    goal: str = "latency"
    """`latency` or `throughput`: which settings are recommended."""
    latency_limit: float | None = None
    """Milliseconds that 99 % of the calls must keep to at the highest throughput."""
    budget: float = 2.8  # with the start of the command itself, under three
    """Minutes that all may take, as far as starts of TensorFlow allow."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches to try."""
        return (self.batch,) if isinstance(self.batch, int) else tuple(self.batch)

    def check(self) -> None:
        """Raise GraphError for what cannot be sought."""
        if self.goal not in GOALS:
            raise GraphError(f"the goal '{self.goal}' is neither {' nor '.join(GOALS)}")
