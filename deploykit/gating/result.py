"""The result of the gate: its checks and their verdict."""

from dataclasses import dataclass
from typing import ClassVar

from deploykit.gating.verdict import FAIL, INCONCLUSIVE, PASS, Check
from deploykit.transforms.common.documents import AsHtml, OrNull, head, written
from deploykit.transforms.common.errors import InconclusiveError, VerificationError


@dataclass(frozen=True)
class GateResult(AsHtml):
    """A candidate compared with its baseline, check by check."""

    HEAD: ClassVar = head("gate")

    baseline: str
    """Path or name of the baseline."""
    candidate: str
    checks: tuple[Check, ...]
    samples: int
    """Number of samples on which the predictions were compared; 0: they were not compared."""
    batch: int
    """Samples per request of the speed measurement; 0: it did not run."""
    quality_confidence: float
    """Confidence of the intervals of accuracy and predictions, such as 0.99."""
    started: str
    """Start in local time, ISO 8601."""
    seconds: float
    """Duration of the gate in seconds."""
    budget: float
    """Time limit for speed, memory and start-up in seconds."""
    machine: str
    """CPU and number of usable cores."""
    busy: OrNull[str] = ""
    """Note on other load of the machine during the measurement, in words."""
    notes: tuple[str, ...] = ()
    """What was not measured and why."""

    @property
    @written()
    def verdict(self) -> str:
        """pass, fail or inconclusive. A failed check outweighs all others."""
        verdicts = {check.verdict for check in self.checks}
        if FAIL in verdicts:
            return FAIL
        return PASS if PASS in verdicts and INCONCLUSIVE not in verdicts else INCONCLUSIVE

    @property
    def headline(self) -> str:
        """The verdict in words."""
        sentences = {
            PASS: "passes the gate",
            FAIL: "fails the gate",
            INCONCLUSIVE: "is neither within nor beyond its limits for certain",
        }
        return f"{self.verdict}: {self.candidate} {sentences[self.verdict]}"

    def with_verdict(self, verdict: str) -> tuple[Check, ...]:
        """Return the checks with this verdict."""
        return tuple(check for check in self.checks if check.verdict == verdict)

    def check(self) -> None:
        """Raise VerificationError if a check failed, InconclusiveError if one is inconclusive."""
        verdict = self.verdict
        if verdict == PASS:
            return
        reasons = [check.sentence for check in self.with_verdict(verdict)] or [
            "nothing was compared"
        ]
        if verdict == FAIL:
            raise VerificationError("gate-failed", source=self.candidate, checks=reasons)
        raise InconclusiveError("gate-inconclusive", source=self.candidate, checks=reasons)
