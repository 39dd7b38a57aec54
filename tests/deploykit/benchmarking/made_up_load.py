"""A queue that is made up: when calls arrive, what they take, and so how long they wait."""

import random
from collections.abc import Callable

from deploykit.benchmarking.scenario_load import Played
from deploykit.serving.client.load_generator import poisson


def played(
    rate: float,
    seconds: float,
    takes: Callable[[random.Random], float],
    *,
    threads: int = 1,
    seed: int = 0,
    late: float = 0.0,
    longest: float = 2.0,
) -> Played:
    """Return what a load would find whose calls take so many seconds, in the order of arrival.

    `late` is by how much each call is made too late although a thread is free.
    """
    rng, free_at = random.Random(seed), [0.0] * threads
    calls, left = [], 0
    for due in poisson(rate, seconds, seed):
        which = min(range(threads), key=free_at.__getitem__)
        free = free_at[which]
        if free > longest * seconds:
            left += 1
            continue
        start = max(due, free) + late
        free_at[which] = start + takes(rng)
        calls.append(tuple(int(1e9 * each) for each in (due, free, start, free_at[which])))
    return Played(True, len(calls), tuple(calls), left, max((c[3] for c in calls), default=0))


def steady(mean: float) -> Callable[[random.Random], float]:
    """Calls that take nearly the same."""
    return lambda rng: mean * rng.uniform(0.8, 1.2)


def scattered(mean: float) -> Callable[[random.Random], float]:
    """Calls of which some take much longer."""
    return lambda rng: mean * rng.expovariate(1)
