"""How well several GPUs do what one does."""

from dataclasses import replace

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult


def scaling_efficiency(measurement: Measurement, result: BenchmarkResult) -> float | None:
    """Return the rate of n towers over n times the rate of one tower, which is 1 at best.

    None: the measurement is not on all GPUs, or the result lacks the same on `gpu:0`.
    """
    if measurement.settings.device != "all":
        return None
    alone = replace(measurement.settings, device="gpu:0")
    for each in result.measurements:
        if each.model == measurement.model and each.settings == alone:
            towers = len(measurement.facts["towers"])
            return measurement.items_per_second / (towers * each.items_per_second)
    return None
