"""What a stage came to, and what became of it in a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from deploykit.transforms.core.display.documents import Hidden, Written

FOLDER = ".stages"
"""Where results lie within a folder that is shipped."""
DONE, LEFT_OUT, UNDECIDED = OUTCOMES = ("done", "left out", "undecided")


@dataclass(frozen=True)
class Outcome:
    """What a stage came to."""

    document: Mapping[str, Any] | None = None
    """What the act's `document()` gives, as plain data."""
    files: tuple[str, ...] = ()
    """What it wrote, by its path within the folder."""
    kind: str = DONE
    """One of OUTCOMES."""
    why: str = ""
    """Why it was left out, or what is undecided, in a sentence."""
    used: tuple[str, ...] = ()
    """Further inputs of the run that it depends on: those that it turned out to need."""


def _of_outcome(found: Outcome) -> dict[str, Any]:
    return {"outcome": found.kind, "why": found.why, "document": found.document}


@dataclass(frozen=True)
class StageResult:
    """What became of a stage in this run."""

    stage: str
    outcome: Annotated[Outcome, Written(flat=True, by=_of_outcome)]
    seconds: Annotated[float, Written(digits=2)]
    kept: bool = False
    """Whether it is of an earlier run."""
    files: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """SHA-256 of what it wrote."""
