"""Counts of latencies, to 0.1 %: what a long load leaves in little memory, and what adds up.

A latency below 1024 us is counted as it is, a longer one by its first 10 bits, as in an HDR
histogram (http://hdrhistogram.org).
"""

from collections import Counter
from collections.abc import Iterable, Sequence

_BITS = 10


def step_of(latency_us: float) -> int:
    """Return the whole number of microseconds that stands for a latency."""
    whole = max(1, round(latency_us))
    shift = max(0, whole.bit_length() - _BITS)
    return (whole >> shift << shift) + (1 << shift >> 1)  # the middle of the step


def summary_ms(counts: Iterable[Counter[int]], percentiles: Sequence[float]) -> dict[str, float]:
    """Return percentiles (nearest rank), mean and largest latency in ms; {} of no latencies.

    All are right to 0.1 %.

    Args:
        counts: how often each step was taken, by `step_of`.
        percentiles: such as 50 and 99.9, named `p50` and `p99.9`.
    """
    together = sum(counts, Counter[int]())
    total, steps = together.total(), sorted(together)
    if not total:
        return {}
    found, passed, last = {}, 0, iter(steps)
    step = 0
    for each in sorted(percentiles):
        while passed < total * each / 100:
            step = next(last)
            passed += together[step]
        found[f"p{each:g}"] = step / 1e3
    mean = sum(step * count for step, count in together.items()) / total
    given = {f"p{each:g}": found[f"p{each:g}"] for each in percentiles}
    return {**given, "mean": round(mean / 1e3, 3), "max": steps[-1] / 1e3}
