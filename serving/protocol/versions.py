"""Version numbers and states of versions, and limits on names."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deploykit.serving.protocol.errors import ServingError, refused

_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(1 << 63), 1 << 63)


def number_of(name: str) -> int | None:
    """Return the version number of a folder's name; None: it is not an int64."""
    if not _NUMBER.fullmatch(name) or len(name) > 1000:  # int() limits the number of digits
        return None
    number = int(name)
    return number if number in _INT64 else None


START, LOADING, AVAILABLE, UNLOADING, END = "START", "LOADING", "AVAILABLE", "UNLOADING", "END"
"""The states in the only order of transitions; a version may skip some."""


@dataclass(frozen=True)
class NamedVersion:
    """The status of a version, on servers whose versions may have names.

    A code other than OK is the error of the last attempt to load it.
    """

    version: int | str
    state: str
    code: str = "OK"
    message: str = ""


@dataclass(frozen=True)
class VersionStatus(NamedVersion):
    """The status of a version with a number."""

    version: int


MAX_NAME_BYTES = 256


def check_name(what: str, name: str) -> None:
    """Raise ServingError for a name that is too long to look up, count or repeat."""
    # A character has at least one byte, so most names need not be encoded.
    if len(name) > MAX_NAME_BYTES or (
        not name.isascii() and len(name.encode(errors="replace")) > MAX_NAME_BYTES
    ):
        raise too_long(what)


def check_names(what: str, names: Iterable[str]) -> None:
    """Raise ServingError like `check_name` for each name."""
    for name in names:
        check_name(what, name)


def too_long(what: str) -> ServingError:
    """Return the error for a name, which it does not repeat."""
    return refused("name-too-long", what=what, most=MAX_NAME_BYTES)
