"""What latencies tell: percentiles, intervals, where the warm-up ends, and whether two differ."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deploykit.benchmarking.results import Measurement


@dataclass(frozen=True)
class Summary:
    """Of the calls in the steady state, in milliseconds."""

    calls: int
    p50: float


def summary(measurement: "Measurement") -> Summary:
    """Return the figures of a measurement."""
    import numpy as np

    latencies = measurement.latencies_ms
    return Summary(len(latencies), float(np.median(latencies)))
