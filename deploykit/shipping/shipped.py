"""What a stage came to, and what was shipped: a folder, and five figures before and after."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from deploykit.rendering.formatters.shipped import lines
from deploykit.storage.ship_report import KIND
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, head, written

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


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome.kind, "why": outcome.why, "document": outcome.document}


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


@dataclass(frozen=True)
class PlannedStage:
    """What a stage would do."""

    stage: str
    act: str
    """`run`, `kept` or `left out`."""
    seconds: Annotated[float, Written(digits=1)]
    """About how long it takes; 0 where it does not run."""
    why: str = ""


@dataclass(frozen=True)
class Shipped(AsHtml):
    """A folder that was shipped, or, after `dry_run`, the plan of it."""

    HEAD: ClassVar = head(KIND)

    folder: Hidden[Path]
    name: str
    plan: Hidden[tuple[PlannedStage, ...]]
    stages: Hidden[tuple[StageResult, ...]] = ()
    """None: this is a plan."""
    facts: Hidden[Mapping[str, Any]] = field(default_factory=dict)
    """Figures, verdict, commands, the model, the options and the machine, as plain data."""

    @property
    @written(flat=True)
    def _outcome(self) -> dict[str, Any]:
        return {**self.facts, "stages": self.stages} if self.stages else {"plan": self.plan}

    @property
    def figures(self) -> Mapping[str, Any]:
        """The five figures: accuracy, size, p50, rate, cpu; each before, after, ratio, verdict."""
        results: Mapping[str, Any] = self.facts.get("figures", {})
        return results

    @property
    def verdict(self) -> str:
        """What came of it, in one sentence."""
        return str(self.facts.get("verdict", ""))

    @property
    def seconds(self) -> float:
        """That this run took in its stages."""
        return sum(stage.seconds for stage in self.stages if not stage.kept)

    def __str__(self) -> str:
        """Return the table as the command prints it."""
        from deploykit.rendering.tables import drawn

        return "\n".join(drawn(lines(self.document())))
