"""What tuning recommends: settings for each goal, as measured beside the defaults."""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import Result
from deploykit.benchmarking.settings import Settings
from deploykit.benchmarking.statistics import Ratio, ratio, summary
from deploykit.benchmarking.tuning.searching import GOALS, Trial
from deploykit.storage.documents import FORMAT

if TYPE_CHECKING:
    from deploykit.text.tables import Table

_WORDS = {
    "onednn": "oneDNN",
    "caller_thread": "the caller's thread",
    "keep_memory": "the C library's memory",
    "threads": "threads",
}


@dataclass(frozen=True)
class Recommendation:
    """The outcome of `tune`. Its figures come from the final measurement alone."""

    model: str
    sha256: str
    goal: str
    """`latency` or `throughput`: which settings are recommended."""
    latency_limit: float | None
    """What p99 of the throughput choice may take, in milliseconds."""
    final: Result
    """The default settings first, then those that did best, in turn."""
    trials: Sequence[Trial]
    kept: Mapping[str, Sequence[str]]
    """Settings that were not searched, and the variables of the user that hold them."""
    complete: bool
    """Whether the search ended by itself and not by its budget."""

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
            "model": self.model,
            "model_sha256": self.sha256,
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
            "times_faster": _document(self._faster(chosen)),
            "times_the_items": _document(self._more(chosen)),
        }

    def _faster(self, chosen: Measurement) -> Ratio:
        return ratio(self.default.rounds_ms, chosen.rounds_ms, paired=True)

    def _more(self, chosen: Measurement) -> Ratio:
        return ratio(seconds_an_item(self.default), seconds_an_item(chosen), paired=True)

    def lines(self, tuned: str) -> "Iterator[str | Table]":
        """Yield what a person wants to know; `tuned` is the file that holds it."""
        yield self._table()
        if self.throughput is None:
            lowest = min(summary(each).p99 for each in self.final.measurements)
            yield (
                f"no settings keep p99 within {self.latency_limit:g} ms; the lowest here is "
                f"{lowest:.3g} ms"
            )
        for goal in GOALS:
            chosen = getattr(self, goal)
            if chosen is not None and chosen is not self.default:
                yield f"{_TITLES[goal]}:"
                yield from self._to_copy(chosen.settings)
        yield f"{tuned} recommends: {self.settings}"
        for name, held in self.kept.items():
            yield f"not searched: {_WORDS[name]} ({', '.join(held)} is set)"
        failed = [each for each in self.trials if each.failure]
        for each in failed:
            yield f"failed: {each.settings}: {each.failure}"
        if not self.complete:
            yield (
                f"the search ended with its time, after {len(self.trials)} trials; --budget gives "
                "it more"
            )

    def _to_copy(self, settings: Settings) -> Iterator[str]:
        if environment := settings.environment:
            yield f"  environment  {_assignments(environment)}"
        if settings.threads is not None:
            intra, inter = settings.threads
            yield f"  ConfigProto  intra_op_parallelism_threads={intra}"
            yield f"               inter_op_parallelism_threads={inter}"
        yield f"  or           deploykit benchmark {shlex.quote(self.model)} {options(settings)}"

    def _table(self) -> "Table":
        from deploykit.text.tables import new_table

        table = new_table("tune", "p50 ms", "p99 ms", "items/s", "against the defaults", "settings")
        table.columns[-1].justify = "left"
        for goal in ("default", *GOALS):
            chosen: Measurement | None = getattr(self, goal)
            if chosen is None:
                continue
            figures, gain = summary(chosen), ""
            if goal != "default" and chosen is self.default:
                gain = "nothing is better"
            elif goal == "latency":
                gain = f"{_shown(self._faster(chosen))} as fast"
            elif goal == "throughput":
                gain = f"{_shown(self._more(chosen))} the items"
            cells = (figures.p50, figures.p99, figures.items_per_second)
            shown = [f"{each:.4g}" for each in cells]
            table.add_row(_TITLES[goal], *shown, gain, str(chosen.settings))
        return table


_TITLES = {
    "default": "default",
    "latency": "lowest latency",
    "throughput": "highest throughput",
}


def options(settings: Settings) -> str:
    """Return settings as options of `deploykit benchmark`."""
    words = []
    if settings.batch is not None:
        words.append(f"--batch {settings.batch}")
    if settings.threads is not None:
        words.append("--threads {}x{}".format(*settings.threads))
    for name in ("onednn", "caller_thread", "keep_memory"):
        if (value := getattr(settings, name)) is not None:
            words.append(f"--{name.replace('_', '-')} {'on' if value else 'off'}")
    if settings.concurrency > 1:
        words.append(f"--concurrency {settings.concurrency}")
    return " ".join(words)


def _assignments(environment: Mapping[str, str | None]) -> str:
    return " ".join(f"{name}={value}" for name, value in environment.items() if value is not None)


def seconds_an_item(measured: Measurement) -> list[list[float]]:
    """Return one figure for each round."""
    pairs = zip(measured.rounds_seconds, measured.rounds_ms, strict=True)
    return [[seconds / (measured.samples * len(calls))] for seconds, calls in pairs]


def _shown(found: Ratio) -> str:
    text = f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}] x"
    return text if found.significant else f"{text} (not significant)"


def _document(found: Ratio) -> dict[str, Any]:
    return {k: v if math.isfinite(v) else None for k, v in asdict(found).items()}
