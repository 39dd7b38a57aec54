"""What was shipped: a folder, what each stage found, and five figures before and after."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploykit.shipping.stage_result import StageResult
from deploykit.storage.documents import FORMAT
from deploykit.storage.ship_report import KIND
from deploykit.text.results.shipped import lines
from deploykit.transforms.core.display.as_html import AsHtml


@dataclass(frozen=True)
class PlannedStage:
    """What a stage would do."""

    stage: str
    act: str
    """`run`, `kept` or `left out`."""
    seconds: float
    """About how long it takes; 0 where it does not run."""
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"stage": self.stage, "act": self.act, "seconds": round(self.seconds, 1),
                "why": self.why}  # fmt: skip


@dataclass(frozen=True)
class Shipped(AsHtml):
    """A folder that was shipped, or, after `dry_run`, the plan of it."""

    folder: Path
    name: str
    plan: tuple[PlannedStage, ...]
    stages: tuple[StageResult, ...] = ()
    """None: this is a plan."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Figures, verdict, commands, the model, the options and the machine, as plain data."""

    @property
    def figures(self) -> Mapping[str, Any]:
        """The five figures: accuracy, size, p50, rate, cpu; each before, after, ratio, verdict."""
        found: Mapping[str, Any] = self.facts.get("figures", {})
        return found

    @property
    def verdict(self) -> str:
        """What came of it, in one sentence."""
        return str(self.facts.get("verdict", ""))

    @property
    def seconds(self) -> float:
        """That this run took in its stages."""
        return sum(each.seconds for each in self.stages if not each.kept)

    def document(self) -> dict[str, Any]:
        """Return it as plain data, which `report.json` holds."""
        head = {"format": FORMAT, "kind": KIND, "name": self.name}
        if not self.stages:
            return {**head, "plan": [each.document() for each in self.plan]}
        stages = [each.document() for each in self.stages]
        return {**head, **self.facts, "stages": stages}

    def __str__(self) -> str:
        """Return the table as the command prints it."""
        from deploykit.text.tables import drawn

        return "\n".join(drawn(lines(self.document(), str(self.folder)), None))
