"""Results of `ship`: outcomes of stages, and the shipped folder with its metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from deploykit.rendering.formatters.shipped import lines
from deploykit.storage.ship_report import KIND
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, head, written

FOLDER = ".stages"
"""Name of the folder with stage results within a shipped folder."""
NAMES = ("check", "optimize", "calibrate", "quantize", "verify", "accuracy", "placement", "tune",
         "benchmark", "export", "serve")  # fmt: skip
"""The stages in their order."""
DONE, LEFT_OUT, UNDECIDED = OUTCOMES = ("done", "left out", "undecided")
RUN, KEPT = "run", "kept"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stage."""

    document: Mapping[str, Any] | None = None
    """The `document()` of the command that the stage runs, as plain data."""
    files: tuple[str, ...] = ()
    """Paths of the files that it wrote, relative to the folder."""
    kind: str = DONE
    """One of `OUTCOMES`."""
    why: str = ""
    """A sentence with the reason why it was skipped or is inconclusive."""
    used: tuple[str, ...] = ()
    """Names of further options that its result turned out to depend on."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Metrics of the stage for the report by name, such as `accuracy` or `p50`, as plain data."""


def _of_outcome(outcome: Outcome) -> dict[str, Any]:
    return {"outcome": outcome.kind, "why": outcome.why, "document": outcome.document}


@dataclass(frozen=True)
class StageResult:
    """The result of a stage in this run."""

    stage: str
    outcome: Annotated[Outcome, Written(flat=True, by=_of_outcome)]
    seconds: Annotated[float, Written(digits=2)]
    kept: bool = False
    """Whether the result is from an earlier run."""
    files: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """SHA-256 of each file that it wrote, by relative path."""
    key: Hidden[str] = ""
    """Digest of everything that it depends on."""


@dataclass(frozen=True)
class PlannedStage:
    """A stage in the plan of a run."""

    stage: str
    act: str
    """`run`, `kept` or `left out`."""
    seconds: Annotated[float, Written(digits=1)]
    """Estimated duration; 0 if it does not run."""
    why: str = ""


@dataclass(frozen=True)
class Shipped(AsHtml):
    """A shipped folder or, after `dry_run`, the plan for it."""

    HEAD: ClassVar = head(KIND)

    folder: Hidden[Path]
    name: str
    plan: Hidden[tuple[PlannedStage, ...]]
    stages: Hidden[tuple[StageResult, ...]] = ()
    """Results of the stages; empty if this is a plan."""
    facts: Hidden[Mapping[str, Any]] = field(default_factory=dict)
    """Metrics, verdict, commands, model, options and machine, as plain data."""

    @property
    @written(flat=True)
    def _outcome(self) -> dict[str, Any]:
        return {**self.facts, "stages": self.stages} if self.stages else {"plan": self.plan}

    @property
    def figures(self) -> Mapping[str, Any]:
        """The metrics accuracy, size, p50, rate and cpu: each before, after, ratio and verdict."""
        results: Mapping[str, Any] = self.facts.get("figures", {})
        return results

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return str(self.facts.get("verdict", ""))

    @property
    def seconds(self) -> float:
        """Total seconds of the stages in this run, without reused results."""
        return sum(stage.seconds for stage in self.stages if not stage.kept)

    def __str__(self) -> str:
        """Return the table as the command prints it."""
        from deploykit.rendering.tables import drawn

        return "\n".join(drawn(lines(self.document())))
