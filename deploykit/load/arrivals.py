"""When calls are due that arrive at random: at a rate, whether others are answered or not."""

import random
from collections.abc import Iterator

LATE_SECONDS = 0.01
"""A call that is sent later than this after it was due, though nothing else held it up, was held
back by what makes the load."""
MOST_LATE = 0.01
"""Of the calls; where more are late, what makes the load is its limit."""


def poisson(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield after how many seconds each call is due, `rate` a second in the mean.

    How long it is from one to the next has an exponential distribution: calls of many callers who
    know nothing of each other arrive so (a Poisson process). A seed gives the same each time.

    Example:
        >>> [round(each, 2) for each in poisson(2, 1.5, seed=3)]
        [0.14, 0.53, 0.76, 1.22]
    """
    gaps = random.Random(seed)
    due = gaps.expovariate(rate)
    while due < seconds:
        yield due
        due += gaps.expovariate(rate)
