"""The figure of a scenario, and whether it is valid."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True)
class ScenarioResult:
    """The figure of a scenario, and what it is worth."""

    name: Annotated[str, Meta(pattern=r"\A(single|offline|server)\Z")]
    """single, offline or server."""
    figure: str
    """What the value is: p90 latency, throughput or p99 latency."""
    value: float | None
    """None: it is not known, as calls were left that nobody waited for."""
    unit: str
    at_most: float | None
    """Of a latency, what it is at most (99 %, MLPerf's early-stopping estimate); None: it is not
    known."""
    valid: bool
    why: tuple[str, ...]
    """Why it is not valid, a reason each."""
    seconds: float
    """For how long calls were made."""
    calls: int
    """That were answered."""
    left: int
    """Calls that were due and not begun in time."""
    rate_asked: float | None
    """Calls that arrive in a second; None in the other scenarios."""
    rate_reached: float
    """Calls that were answered in a second."""
    latency_limit: float | None
    """In milliseconds."""

    @property
    def verdict(self) -> str:
        """Whether it is valid, in words."""
        return "valid" if self.valid else f"invalid: {'; '.join(self.why)}"
