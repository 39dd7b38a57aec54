"""What a number of calls tells of a percentile: MLPerf's rule of early stopping.

Source: MLPerf Inference Rules, appendix on early stopping. So many of the highest latencies are
discarded that, if the percentile were above what is left, no more than so few calls above it would
have been seen in one of a hundred runs; the highest one left is what the percentile is at most.
The fewest calls are those of which one can be discarded: 64 for a 90th percentile, 662 for a 99th.
It takes calls to be independent of each other; those in one queue are less than that.
"""

import math
from collections.abc import Sequence

CONFIDENCE = 0.99


def discarded(calls: int, percentile: float) -> int:
    """Return how many of the highest latencies can be discarded; 0: there are too few calls."""
    above = 1 - percentile / 100
    found, seen = 0, 0.0
    for count in range(calls):
        seen += math.exp(
            math.lgamma(calls + 1) - math.lgamma(count + 1) - math.lgamma(calls - count + 1)
            + count * math.log(above) + (calls - count) * math.log1p(-above)
        )  # fmt: skip
        if seen > 1 - CONFIDENCE:
            break
        found = count
    return found


def fewest_calls(percentile: float) -> int:
    """Return from how many calls on something is known of a percentile."""
    calls = 1
    while not discarded(calls, percentile):
        calls += 1
    return calls


def at_most(latencies: Sequence[float], percentile: float) -> float | None:
    """Return what a percentile is at most, at 99 %; None: there are too few calls to tell."""
    count = discarded(len(latencies), percentile)
    return sorted(latencies)[-1 - count] if count else None
