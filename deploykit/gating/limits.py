"""Limits of the release gate, and how much error each check may have."""

from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Annotated, ClassVar

from deploykit.benchmarking.speed_verdict import LOOKS
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag

ERROR = 0.005
"""Chance that a candidate exactly at its limits fails for its quality, and the same for its speed
and memory; also the chance that it passes."""
_LARGEST = 10.0


def _percent(most: float = _LARGEST) -> Flag:
    return Flag(metavar="PERCENT", format="percent", at_least=0, at_most=most)


@dataclass(frozen=True)
class GateLimits:
    """How much worse a candidate may be than its baseline; 0.05 is 5 %, None: no limit."""

    HEADING: ClassVar = "Limits of the gate"

    max_accuracy_drop: Annotated[float | None, _percent(1)] = 0.01
    """Largest drop of the metric, in percentage points; for mae, relative to the baseline. Without
    labels, the largest share of samples with another prediction. `off`: no limit."""
    min_agreement: Annotated[float | None, _percent(1)] = None
    """Smallest share of samples with the same top-1 prediction [default: no limit]."""
    max_latency_increase: Annotated[float | None, _percent()] = 0.05
    """Largest increase of the median latency. `off`: no limit."""
    max_p99_increase: Annotated[float | None, _percent()] = None
    """Largest increase of the p99 latency [default: no limit]."""
    max_size_increase: Annotated[float | None, _percent()] = 0.1
    """Largest increase of the size of the model files. `off`: no limit."""
    max_memory_increase: Annotated[float | None, _percent()] = 0.1
    """Largest increase of the peak memory of a process that loads and runs the model. `off`: no
    limit."""
    max_startup_increase: Annotated[float | None, _percent()] = None
    """Largest increase of the time to load the model and return its first result [default: no
    limit]."""
    allow_signature_change: bool = False
    """Report a signature that is not compatible with the baseline instead of failing."""

    def check(self) -> None:
        """Raise GraphError if nothing has a limit, so that nothing would be compared."""
        names = (item.name for item in fields(self) if item.name.startswith(("max_", "min_")))
        limits = [getattr(self, name) for name in names]
        if self.allow_signature_change and all(limit is None for limit in limits):
            raise GraphError("gate-without-limit")

    @property
    def quality_z(self) -> float:
        """The normal quantile of accuracy and agreement."""
        count = sum(item is not None for item in (self.max_accuracy_drop, self.min_agreement))
        return NormalDist().inv_cdf(1 - ERROR / max(count, 1))

    @property
    def quality_confidence(self) -> float:
        """The confidence of the intervals of accuracy and agreement."""
        return round(2 * NormalDist().cdf(self.quality_z) - 1, 6)

    @property
    def confidence(self) -> float:
        """The confidence of the intervals of speed and memory at the end of the measurement.

        All comparisons with a limit share ERROR, and so do all looks at the data: before the end,
        they have a sixth of it together. Latency counts twice: by wall time and by CPU time.
        """
        timed = (self.max_latency_increase, self.max_latency_increase, self.max_p99_increase,
                 self.max_memory_increase, self.max_startup_increase)  # fmt: skip
        count = sum(limit is not None for limit in timed)
        return 1 - 2 * (ERROR / max(count, 1)) / 1.2

    @property
    def look_confidence(self) -> float:
        """The confidence of these intervals at each look before the end."""
        return 1 - (1 - self.confidence) / (5 * len(LOOKS))
