"""The states of a version, and how one fares."""

from dataclasses import dataclass

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
