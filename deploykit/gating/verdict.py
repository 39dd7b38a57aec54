"""A check of the gate: a measured change with its interval, its limit and the verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from deploykit.benchmarking.statistics import Ratio
from deploykit.rendering.templates import number, size
from deploykit.transforms.common.documents import OrNull, Written, written

PASS, FAIL, INCONCLUSIVE, NO_LIMIT = "pass", "fail", "inconclusive", "no limit"
COMPATIBLE = "compatible"
UNKNOWN = (-math.inf, math.inf)
"""The interval of a change of which nothing is known."""
Interval = tuple[float, float]


_TIME = ("slower", "faster")
_WORDS = {"ms": _TIME, "ms CPU": _TIME, "s": _TIME, "bytes": ("larger", "smaller"),
          "samples/s": ("lower", "higher")}  # fmt: skip
"""What a worse and a better value is called, by unit."""


def verdict_of(interval: Interval, limit: float | None) -> str:
    """Return PASS if the whole interval is within the limit, FAIL if all of it is beyond.

    Otherwise return INCONCLUSIVE, or NO_LIMIT without a limit.
    """
    if limit is None:
        return NO_LIMIT
    low, high = interval
    if high <= limit:
        return PASS
    return FAIL if low > limit else INCONCLUSIVE


def increase(ratio: Ratio) -> tuple[float, Interval]:
    """Return the increase of a time, and its interval, for the ratio of speeds."""
    low = 1 / ratio.high - 1 if math.isfinite(ratio.high) else -math.inf
    high = 1 / ratio.low - 1 if ratio.low > 0 else math.inf
    return 1 / ratio.value - 1, (low, high)


@dataclass(frozen=True)
class Check:
    """One property of both models, how much worse the candidate is, and the verdict."""

    name: str
    baseline: float | None
    """Value of the baseline; None: not measured."""
    candidate: float | None
    unit: str
    """ms, s, bytes, samples/s, %, or empty: a share from 0 to 1."""
    change: float
    """How much worse the candidate is: a share of the baseline, or for accuracy a difference of
    shares. Negative: it is better."""
    interval: Annotated[Interval, Written(by=lambda ends: [_finite(end) for end in ends])]
    """Confidence interval of the change; null: unknown."""
    limit: float | None
    """Largest change allowed; None: the check is only reported."""
    verdict: str
    """pass, fail, inconclusive or no limit."""
    decided_by: str
    """What the verdict rests on, such as wall time or CPU time."""
    note: OrNull[str] = ""
    """What else to know about the result."""

    @classmethod
    def of(
        cls,
        name: str,
        values: Sequence[float | None],
        unit: str,
        change: float,
        interval: Interval,
        limit: float | None,
        decided_by: str,
        note: str = "",
    ) -> "Check":
        """Return a check with the verdict that follows from its interval."""
        verdict = verdict_of(interval, limit)
        first, second = values
        return cls(name, first, second, unit, change, interval, limit, verdict, decided_by, note)

    @property
    @written()
    def detectable(self) -> float | None:
        """The smallest difference from the limit that this measurement can detect: the longer side
        of the interval. None: unknown.
        """
        low, high = self.interval
        return _finite(max(high - self.change, self.change - low))

    @property
    def values(self) -> tuple[str, str]:
        """The values of both models as text."""
        return self._text(self.baseline), self._text(self.candidate)

    def _text(self, value: float | None) -> str:
        if value is None:
            return "-"
        if self.unit == "bytes":
            return size(round(value))
        if not self.unit:
            return f"{100 * value:.2f} %"
        return f"{number(value)} {self.unit}"

    @property
    def is_known(self) -> bool:
        """Whether at least one end of the interval is known."""
        return any(map(math.isfinite, self.interval))

    @property
    def change_text(self) -> str:
        """The change with its interval, such as `1.08x, slower (+6.10 to +9.30 %)`.

        It says whether this is better or worse only if the interval excludes no change.
        """
        if math.isnan(self.change):
            return "-"
        if not math.isfinite(self.change):
            return "infinitely worse"
        falls = self.unit == "samples/s" or self.name.startswith("accuracy")  # if it gets worse
        changes = [-item if falls else item for item in (self.change, *self.interval)]
        change, low, high = changes[0], *sorted(changes[1:])
        text = f"{1 + change:.3g}x" if self.unit else f"{100 * change + 0.0:+.2f} points"
        if not self.is_known:
            return text
        if not low <= 0 <= high:
            text += f", {_WORDS.get(self.unit, ('worse', 'better'))[self.change < 0]}"
        if low == high:
            return f"{text} ({percent(low)})" if self.unit else text
        ends = (percent(end)[:-2] if math.isfinite(end) else "unknown" for end in (low, high))
        return f"{text} ({' to '.join(ends)}{' %' * bool(self.unit)})"

    @property
    def limit_text(self) -> str:
        """The limit as text."""
        return "-" if self.limit is None else f"{100 * self.limit:.3g} %"

    @property
    def sentence(self) -> str:
        """The result in words, with the smallest detectable difference if inconclusive."""
        text = self.note or "not comparable"
        if not math.isnan(self.change):
            by = f", by {self.decided_by}" if "time" in self.decided_by else ""
            limit = f", limit {self.limit_text}" if self.limit is not None else ""
            note = f"; {self.note}" if self.note else ""
            text = f"{self.change_text}{limit}{by}{note}"
        if self.verdict == INCONCLUSIVE:
            known = "unknown" if self.detectable is None else f"{100 * self.detectable:.2g} %"
            text += f"; smallest detectable difference: {known}"
        return f"{self.name}: {text}"


def percent(share: float) -> str:
    """Return a signed share in percent, such as `+1.2 %`."""
    points = 100 * share
    digits = 0 if abs(points) >= 99.95 else 1 if abs(points) >= 9.995 else 2
    return f"{round(points, digits) + 0.0:+.{digits}f} %"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
