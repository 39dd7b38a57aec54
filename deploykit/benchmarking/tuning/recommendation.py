"""What tuning recommends: settings for each goal, as measured beside the defaults."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import Ratio, ratio, summary
from deploykit.benchmarking.tuning.searching import GOALS, SettingsTrial
from deploykit.freezing.open_model import OpenedModel
from deploykit.storage.documents import FORMAT


@dataclass(frozen=True)
class Recommendation:
    """The outcome of `tune`. Its figures come from the final measurement alone."""

    model: OpenedModel
    goal: str
    """`latency` or `throughput`: which settings are recommended."""
    latency_limit: float | None
    """What p99 of the throughput choice may take, in milliseconds."""
    final: BenchmarkResult
    """The default settings first, then those that did best, in turn."""
    trials: Sequence[SettingsTrial]
    kept: Mapping[str, Sequence[str]]
    """Settings that were not searched, and the variables of the user that hold them."""
    complete: bool
    """Whether the search ended by itself and not by its budget."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    @property
    def default(self) -> Measurement:
        """TensorFlow's default settings."""
        return self.final.measurements[0]

    @property
    def latency(self) -> Measurement:
        """The lowest median of those that take as many samples at once as the default, alone."""
        batch = self.default.settings.batch
        alone = (
            each
            for each in self.final.measurements
            if (each.settings.batch, each.settings.concurrency) == (batch, 1)
        )
        return min(alone, key=lambda each: summary(each).p50)

    @property
    def throughput(self) -> Measurement | None:
        """The most items a second of those that keep to the limit; None: none does."""
        limit = math.inf if self.latency_limit is None else self.latency_limit
        fit = [each for each in self.final.measurements if summary(each).p99 <= limit]
        return max(fit, key=lambda each: each.items_per_second, default=None)

    @property
    def settings(self) -> Settings:
        """Those for the goal; where none keeps to the limit, those of the lowest latency."""
        found = self.throughput if self.goal == "throughput" else None
        return (found or self.latency).settings

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "format": FORMAT,
            "kind": "tuned",
            "model": self.model.source,
            "model_sha256": self.model.sha256,
            "started": self.final.started,
            "machine": dict(self.final.machine),
            "goal": self.goal,
            "latency_limit_ms": self.latency_limit,
            "settings": self.settings.document(),
            **{goal: self._choice(getattr(self, goal)) for goal in ("default", *GOALS)},
            "not_searched": {name: list(held) for name, held in self.kept.items()},
            "complete": self.complete,
            "trials": [each.document() for each in self.trials],
        }

    def _choice(self, chosen: Measurement | None) -> dict[str, Any] | None:
        if chosen is None:
            return None
        figures = summary(chosen)
        return {
            "settings": chosen.settings.document(),
            "environment": chosen.settings.environment,
            "p50_ms": figures.p50,
            "p99_ms": figures.p99,
            "items_per_second": figures.items_per_second,
            "verdict": figures.verdict,
            "times_faster": _document(self.faster(chosen)),
            "times_the_items": _document(self.more(chosen)),
        }

    def faster(self, chosen: Measurement) -> Ratio:
        """Return how often a choice runs while the default settings run once."""
        return ratio(self.default.rounds_ms, chosen.rounds_ms, paired=True)

    def more(self, chosen: Measurement) -> Ratio:
        """Return how many items a choice does in the time of one by the default settings."""
        return ratio(seconds_an_item(self.default), seconds_an_item(chosen), paired=True)


def seconds_an_item(measured: Measurement) -> list[list[float]]:
    """Return one figure for each round."""
    pairs = zip(measured.rounds_seconds, measured.rounds_ms, strict=True)
    return [[seconds / (measured.samples * len(calls))] for seconds, calls in pairs]


def _document(found: Ratio) -> dict[str, Any]:
    return {k: v if math.isfinite(v) else None for k, v in asdict(found).items()}
