"""What one transform of a string did."""

from dataclasses import dataclass
from typing import Annotated

from deploykit.transforms.core.display.documents import Written


@dataclass(frozen=True)
class StepReport:
    """What one transform did: seconds, nodes left, what it left alone and why."""

    transform: str
    seconds: Annotated[float, Written(digits=4)]
    nodes: int
    skipped: tuple[str, ...]
