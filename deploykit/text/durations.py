"""Times as a clock shows them."""

import math
from datetime import datetime

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December")  # fmt: skip
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


def date(started: str) -> str:
    """Return a time in ISO format as people write it, `25 November 2026, 19:04 UTC`.

    A text that is not such a time is returned as it is.
    """
    try:
        found = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{found.day} {MONTHS[found.month - 1]} {found.year}, {found:%H:%M %Z}".rstrip()
