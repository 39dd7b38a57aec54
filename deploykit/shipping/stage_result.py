"""What a stage came to, and what became of it in a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class StageResult:
    """What became of a stage in this run."""

    stage: str
    outcome: Outcome
    seconds: float
    kept: bool = False
    """Whether it is of an earlier run."""
    files: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of what it wrote."""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "stage": self.stage,
            "outcome": self.outcome.kind,
            "why": self.outcome.why,
            "seconds": round(self.seconds, 2),
            "kept": self.kept,
            "document": self.outcome.document,
        }
