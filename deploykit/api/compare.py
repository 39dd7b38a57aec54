"""What became faster between two benchmarks."""

import os

from deploykit.benchmarking.comparing import Speedups, find_speedups
from deploykit.benchmarking.results import BenchmarkResult, load_result
from deploykit.benchmarking.settings import CONFIDENCE
from deploykit.transforms.core.errors import GraphError


def compare(
    a: BenchmarkResult | str | os.PathLike[str],
    b: BenchmarkResult | str | os.PathLike[str],
    *,
    confidence: float = CONFIDENCE,
) -> Speedups:
    """Say how much faster b is than a, for each measurement that has a partner.

    The speed is the median latency of a / that of b: above 1, b is faster. Partners have the same
    name and settings, or are the only ones of their results, or the only ones with their settings.
    A ratio is significant where its whole interval lies more than 10 % from 1, because a machine
    itself differs by as much from one hour to another.

    Args:
        a, b: results of `deploykit.benchmark`, or the JSON files that its command writes.
        confidence: of the intervals, from 0.5 to 0.9999.

    `check(0.95)` of what is returned raises VerificationError where b is slower than that for sure.
    FileError: a file cannot be read. GraphError: it is no result, or nothing has a partner.

    Example:
        >>> result = deploykit.benchmark("fashion.keras", runs=100)
        >>> [pair.ratio.value for pair in deploykit.compare(result, result).pairs]
        [1.0]
    """
    if not 0 < confidence < 1:
        raise GraphError(f"a confidence of {confidence} is not between 0 and 1")
    first, second = (
        each if isinstance(each, BenchmarkResult) else load_result(each) for each in (a, b)
    )
    names = ("a" if isinstance(a, BenchmarkResult) else os.fspath(a),
             "b" if isinstance(b, BenchmarkResult) else os.fspath(b))  # fmt: skip
    return find_speedups(first, second, confidence, names)
