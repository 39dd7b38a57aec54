"""Times as a clock shows them."""

import math

_STEPS = ((60, 5), (600, 10), (3600, 30), (math.inf, 60))


def clock_time(seconds: float) -> str:
    """Return whole seconds that passed, such as 0:07, 12:30 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def rounded_up(seconds: float) -> int:
    """Return the next more seconds that an estimate can claim to know: 5 of a minute, 10 of ten."""
    step = next(each for limit, each in _STEPS if seconds < limit)
    return (int(seconds) // step + 1) * step
