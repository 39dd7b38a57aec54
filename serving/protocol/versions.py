"""Version numbers and states of versions, and limits on names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deploykit.serving.protocol.errors import ServingError, refused

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(1 << 63), 1 << 63)


def number_of(name: str) -> int | None:
    """Return the version that a folder's name stands for; None: it is no int64."""
    if not _NUMBER.fullmatch(name) or len(name) > 1000:  # Python refuses to read longer ones
        return None
    number = int(name)
    return number if number in _INT64 else None


START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"
"""The states, in the only order in which a version goes through them; it may skip some."""


@dataclass(frozen=True)
class NamedVersion:
    """How a version fares, on servers whose versions may have names.

    A code other than OK says what went wrong when it was last loaded.
    """

    version: int | str
    state: str
    code: str = "OK"
    message: str = ""


@dataclass(frozen=True)
class VersionStatus(NamedVersion):
    """How a version with a number fares."""

    version: int


MAX_NAME_BYTES = 256


def check_name(what: str, name: str) -> None:
    """Raise ServingError for a name that nobody looks up, counts or repeats: it is too long."""
    # A letter has a byte at least, so most names need not be encoded to be judged.
    if len(name) > MAX_NAME_BYTES or (
        not name.isascii() and len(name.encode(errors="replace")) > MAX_NAME_BYTES
    ):
        raise too_long(what)


def check_names(what: str, names: Iterable[str]) -> None:
    """Raise ServingError as `check_name` for each of several."""
    for name in names:
        check_name(what, name)


def too_long(what: str) -> ServingError:
    """Return the error about a name, which does not repeat it."""
    return refused("name-too-long", what=what, most=MAX_NAME_BYTES)
