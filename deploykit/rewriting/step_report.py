"""What one transform of a string did."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepReport:
    """What one transform did: seconds, nodes left, what it left alone and why."""

    transform: str
    seconds: float
    nodes: int
    skipped: tuple[str, ...]
