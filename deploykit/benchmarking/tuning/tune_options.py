"""What is sought, among which settings, and how long that may take."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from deploykit.transforms.core.display.flag import Flag
from deploykit.transforms.core.engines.engines import (
    AUTO,
    ENGINES,
    MOST_BATCH,
    TENSORFLOW,
    check_engine,
    lacking,
)


@dataclass(frozen=True)
class TuneOptions:
    """How `deploykit.tune` searches."""

    HEADING: ClassVar = "Search"

    batch: Annotated[Sequence[int] | int, Flag(format="counts", at_most=MOST_BATCH)] = ()
    """Batch sizes to try; the smallest one is used for the lowest latency [default: 1,8,32 if the
    model has no fixed batch]."""
    goal: Literal["latency", "throughput"] = "latency"
    """Recommend settings for low latency or for high throughput."""
    latency_limit: Annotated[float | None, Flag(metavar="MS", above=0)] = None
    """Limit on p99 latency, also at the highest throughput."""
    engine: Literal["auto", "tensorflow", "openvino"] | None = None
    """Engine to search in; auto: the significantly faster one, if both are installed [default: the
    one that the model was written for, else tensorflow]."""
    budget: Annotated[float, Flag(metavar="MINUTES", above=0)] = 2.8
    """Time limit of the whole search."""

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches to try."""
        return (self.batch,) if isinstance(self.batch, int) else tuple(self.batch)

    def check(self) -> None:
        """Raise GraphError for an engine that is not here."""
        if self.engine not in (None, AUTO):
            check_engine(self.engine)

    def engines(self, own: str) -> tuple[str, ...]:
        """Return those to search in, the one to start from first; `own` is that of the model."""
        if self.engine == AUTO:
            return tuple(each for each in ENGINES if not lacking(each))
        return (self.engine or (TENSORFLOW if lacking(own) else own),)
