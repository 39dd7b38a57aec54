"""compare: speed ratios of two benchmark results."""

import os
from typing import Annotated

from deploykit.api.public import Command, public
from deploykit.benchmarking.comparing import History, Speedups, find_speedups
from deploykit.benchmarking.results import BenchmarkResult, load_result
from deploykit.benchmarking.run_config import CONFIDENCE
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.flag import Flag


@public(Command(heading="Comparison", requires=(), has_limits=False))
def compare(
    a: Annotated[BenchmarkResult | str | os.PathLike[str], Flag(metavar="A.json")],
    b: Annotated[BenchmarkResult | str | os.PathLike[str] | None, Flag(metavar="[B.json]")] = None,
    *,
    baseline: Annotated[str | os.PathLike[str] | None, Flag(metavar="FILE.json")] = None,
    confidence: Annotated[float, Flag(metavar="P", at_least=0.5, at_most=0.9999)] = CONFIDENCE,
    fail_below: Annotated[float | None, Flag(metavar="RATIO", above=0)] = None,
) -> Speedups:
    """Compare the results of two benchmarks, or one with a baseline.

    The ratio is the median latency of A divided by that of B. Above 1, B is faster. With
    `baseline`, it is the median latency of the baseline divided by that of A: above 1, A is faster.
    Measurements with the same name and settings are paired. If the names differ, each file must
    have a single measurement with these settings, or a single measurement in all.

    The verdict is shown below the table. "slower": B takes more CPU time per run, or over 10 % more
    wall time. "faster": B is over 10 % faster in wall time. The margin is 10 % because the speed of
    a machine varies that much from hour to hour. Models that are interleaved in one `deploykit
    benchmark` need no margin.

    `fail_below` 0.95 fails only if the whole confidence interval is below 0.95. A ratio of 0.9 with
    the interval 0.8 to 1.0 passes; with 0.86 to 0.94 it fails. With `baseline`, a result that fails
    is not added.

    Args:
        a: a result of `deploykit.benchmark`, or the JSON file that its command writes.
        b: a second result or file, as for `a`.
        baseline: Compare A with the earlier results of this machine in this file, and add A to it.
            The first result creates the file.
        confidence: Confidence of the intervals, from 0.5 to 0.9999.
        fail_below: Exit with 5 if the ratio is significantly below this, or if nothing was compared
            [default: exit with 0]. The first result of a new `baseline` passes.

    `check(0.95)` of the returned value raises VerificationError if the ratio is significantly below
    0.95, or if nothing was compared. The first result of a new baseline passes.
    FileError: a file cannot be read or written. GraphError: a file is not a benchmark result, or no
    measurements can be paired.

    Commands:
        deploykit compare before.json after.json --fail-below 0.95
        deploykit compare today.json --baseline baseline.json

    Example:
        >>> result = deploykit.benchmark("fashion.keras", runs=100)
        >>> [pair.ratio.value for pair in deploykit.compare(result, result).pairs]
        [1.0]
    """
    if (b is None) == (baseline is None):
        raise GraphError("compare-two-results")
    names = tuple("ab"[i] if isinstance(item, BenchmarkResult) or item is None else os.fspath(item)
                  for i, item in enumerate((a, b)))  # fmt: skip
    first = _read(a)
    if b is not None:
        return find_speedups(first, _read(b), confidence, (names[0], names[1]))
    assert baseline is not None
    history = History.read(baseline)
    earlier = history.like(first)
    if earlier is not None:
        speedups = find_speedups(earlier, first, confidence, (history.path, names[0]))
    else:
        only = tuple(measurement.name for measurement in first.measurements)
        is_new = not history.documents
        text = f"{history.path} had no result from this machine; {names[0]} is now the first one"
        warnings = () if is_new else (text,)
        speedups = Speedups(history.path, names[0], confidence, (), (), only, warnings, is_new)
    if fail_below is None or not speedups.slower_than(fail_below):
        history.add(first)
    return speedups


def _read(result: BenchmarkResult | str | os.PathLike[str]) -> BenchmarkResult:
    return result if isinstance(result, BenchmarkResult) else load_result(result)
