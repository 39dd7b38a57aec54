"""What is sought, among which settings, and how long that may take."""

from collections.abc import Sequence
from dataclasses import dataclass

from deploykit.benchmarking.tuning.searching import GOALS
from deploykit.transforms.core.engines.engines import (
    AUTO,
    ENGINES,
    TENSORFLOW,
    check_engine,
    lacking,
)
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
    engine: str | None = None
    """`tensorflow`, `openvino`, or `auto` for whichever is faster for sure, where both are
    installed. Default: the engine that the model was written for, else TensorFlow."""
    budget: float = 2.8  # with the start of the command itself, under three
    """Minutes that all may take, as far as starts of TensorFlow allow."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches to try."""
        return (self.batch,) if isinstance(self.batch, int) else tuple(self.batch)

    def check(self) -> None:
        """Raise GraphError for what cannot be sought."""
        if self.goal not in GOALS:
            raise GraphError("not-one-of", what="the goal", known=GOALS, got=self.goal)
        if self.engine not in (None, AUTO):
            check_engine(self.engine)

    def engines(self, own: str) -> tuple[str, ...]:
        """Return those to search in, the one to start from first; `own` is that of the model."""
        if self.engine == AUTO:
            return tuple(each for each in ENGINES if not lacking(each))
        return (self.engine or (TENSORFLOW if lacking(own) else own),)
