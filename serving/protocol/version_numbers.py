"""Which names of folders are numbers of versions."""

import re

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(1 << 63), 1 << 63)


def number_of(name: str) -> int | None:
    """Return the version that a folder's name stands for; None: it is no int64."""
    if not _NUMBER.fullmatch(name) or len(name) > 1000:  # Python refuses to read longer ones
        return None
    number = int(name)
    return number if number in _INT64 else None
