"""What became faster between two benchmarks."""

import os

from deploykit.benchmarking.comparison.comparing import Speedups, find_speedups
from deploykit.benchmarking.comparison.history import History
from deploykit.benchmarking.results import BenchmarkResult, load_result
from deploykit.benchmarking.settings import CONFIDENCE
from deploykit.transforms.core.errors import GraphError


def compare(
    a: BenchmarkResult | str | os.PathLike[str],
    b: BenchmarkResult | str | os.PathLike[str] | None = None,
    *,
    baseline: str | os.PathLike[str] | None = None,
    confidence: float = CONFIDENCE,
    fail_below: float | None = None,
) -> Speedups:
    """Say how much faster b is than a, for each measurement that has a partner.

    The speed is the median latency of a / that of b: above 1, b is faster. Partners have the same
    name and settings, or are the only ones of their results, or the only ones with their settings.
    It is faster where the wall clock says so by more than a machine changes from one hour to the
    next (10 %), and slower where that or the CPU time of a call says so.

    Args:
        a, b: results of `deploykit.benchmark`, or the JSON files that its command writes.
        baseline: a file of earlier results, in place of b: `a` is compared with those of the same
            machine, and then added to them. It is made where there is none.
        confidence: of the intervals, from 0.5 to 0.9999.
        fail_below: what is slower than this for sure is not added to the baseline.

    `check(0.95)` of what is returned raises VerificationError where b is slower than that for sure,
    or nothing was compared; the first result of a new baseline passes.
    FileError: a file cannot be read or written. GraphError: it is no result, or nothing has a
    partner.

    Example:
        >>> result = deploykit.benchmark("fashion.keras", runs=100)
        >>> [pair.ratio.value for pair in deploykit.compare(result, result).pairs]
        [1.0]
    """
    if not 0 < confidence < 1:
        raise GraphError(
            "out-of-range", name="the confidence", expected="between 0 and 1", got=confidence
        )
    if (b is None) == (baseline is None):
        raise GraphError("compare-two-results")
    names = tuple("ab"[i] if isinstance(each, BenchmarkResult) or each is None else os.fspath(each)
                  for i, each in enumerate((a, b)))  # fmt: skip
    first = _read(a)
    if b is not None:
        return find_speedups(first, _read(b), confidence, (names[0], names[1]))
    assert baseline is not None
    history = History.read(baseline)
    earlier = history.like(first)
    if earlier is not None:
        found = find_speedups(earlier, first, confidence, (history.path, names[0]))
    else:
        only = tuple(each.name for each in first.measurements)
        is_new = not history.documents
        said = f"{history.path} had no result of this machine, so {names[0]} is its first"
        warnings = () if is_new else (said,)
        found = Speedups(history.path, names[0], confidence, (), (), only, warnings, is_new)
    if fail_below is None or not found.slower_than(fail_below):
        history.add(first)
    return found


def _read(result: BenchmarkResult | str | os.PathLike[str]) -> BenchmarkResult:
    return result if isinstance(result, BenchmarkResult) else load_result(result)
