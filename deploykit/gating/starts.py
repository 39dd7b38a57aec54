"""Checks of memory and start-up, from fresh processes that start interleaved."""

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.benchmarking.measurement import Job
from deploykit.benchmarking.statistics import Ratio, student
from deploykit.benchmarking.worker_sessions import started
from deploykit.gating.limits import GateLimits
from deploykit.gating.verdict import INCONCLUSIVE, Check, increase

FEWEST, MOST = 3, 12
"""Pairs of starts: an interval needs FEWEST, and more than MOST are not worthwhile."""
LOOKS = (FEWEST, 6)
"""Numbers of pairs after which the gate checks whether all checks are conclusive."""
SETTLING = 0.2  # seconds of calls before the memory is read
MEMORY_SPREAD, TIME_SPREAD = 0.004, 0.08
"""Standard deviation between starts of the same model, which counts as _KNOWN_DEGREES further
degrees of freedom, as few starts can be equal by chance. An assumption, not a measurement."""
_KNOWN_DEGREES = 4


@dataclass(frozen=True)
class Start:
    """A process that loaded a model and ran it."""

    seconds: float
    """Seconds to load the model and return the first result, without the import of TensorFlow."""
    bytes_peak: int
    """Peak resident memory of the process, with TensorFlow."""


def start(job: Job) -> Start:
    """Load and run a model in a new process. LimitError, CrashError: it did not survive that."""
    with contextlib.closing(started(job)) as worker:
        worker.ask("open", job)
        first, *_ = worker.ask("turn", 0, 0.0, 1)
        worker.ask("turn", 0, SETTLING)
        facts = worker.ask("facts", 0)
    return Start((facts["load_ns"] + max(first)) / 1e9, facts["bytes_peak"])


def measured_starts(
    jobs: Sequence[Job], limits: GateLimits, seconds: float, advance: Callable[[str, int], None]
) -> list[tuple[Start, Start]]:
    """Return pairs of starts of both models, in random order within each pair.

    It ends when all checks with a limit are conclusive, or before the pair that would exceed
    `seconds`. The first FEWEST pairs may take twice as long; there is at least one pair.
    """
    small = [replace(job, batches=job.batches[:1]) for job in jobs]
    order, pairs, began = random.Random(0), list[tuple[Start, Start]](), time.monotonic()
    while len(pairs) < MOST:
        advance(f"start {len(pairs) + 1}", MOST)
        found = {number: start(small[number]) for number in order.sample((0, 1), 2)}
        pairs.append((found[0], found[1]))
        passed = time.monotonic() - began
        allowed = seconds if len(pairs) >= FEWEST else 2 * seconds
        if passed * (len(pairs) + 1) / len(pairs) > allowed:
            break
        if len(pairs) in LOOKS:
            checks = start_checks(pairs, limits, limits.look_confidence)
            if not any(check.verdict == INCONCLUSIVE for check in checks):
                break
    return pairs


def start_checks(
    pairs: Sequence[tuple[Start, Start]], limits: GateLimits, confidence: float
) -> tuple[Check, ...]:
    """Return the checks of memory and start-up. With fewer than FEWEST pairs, nothing is sure."""
    by, checks = f"{len(pairs)} pairs of starts", []
    note = "" if len(pairs) >= FEWEST else f"only {len(pairs)} of at least {FEWEST} pairs of starts"
    for name, unit, spread, limit, values in (
        ("memory peak", "bytes", MEMORY_SPREAD, limits.max_memory_increase,
         [(float(a.bytes_peak), float(b.bytes_peak)) for a, b in pairs]),
        ("start-up", "s", TIME_SPREAD, limits.max_startup_increase,
         [(a.seconds, b.seconds) for a, b in pairs]),
    ):  # fmt: skip
        medians = [float(np.median(side)) for side in zip(*values, strict=True)]
        change, interval = increase(paired_ratio(values, spread, confidence))
        checks.append(Check.of(name, medians, unit, change, interval, limit, by, note))
    return tuple(checks)


def paired_ratio(pairs: Sequence[tuple[float, float]], spread: float, confidence: float) -> Ratio:
    """Return the ratio first / second of interleaved pairs, with an interval by a moderated t.

    `spread` is the known standard deviation of one value, as a share.
    """
    differences = np.log([first / second for first, second in pairs])
    centre, count = float(differences.mean()), len(differences)
    degrees = count - 1 + _KNOWN_DEGREES
    known = 2 * spread**2  # variance of a difference of two values
    squares = float(np.sum((differences - centre) ** 2))
    variance = (squares + _KNOWN_DEGREES * known) / degrees
    reach = student(confidence, degrees) * math.sqrt(variance / count)
    return Ratio.around(centre, reach if count >= FEWEST else math.inf, confidence)
