"""Recommended settings for each goal, and their use in a server."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from deploykit.benchmarking import process_variables
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.speed_verdict import (
    FASTER,
    Figure,
    SpeedVerdict,
    judge,
    latency,
    seconds_an_item,
)
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.tuning.search import GOALS, SettingsTrial
from deploykit.importers.open_model import OpenedModel
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, document, head, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import TENSORFLOW

WORTH = 1.05
"""Minimum speedup of a change, besides being significant. Smaller gains are not reproducible from
day to day."""


@dataclass(frozen=True)
class Recommendation(AsHtml):
    """The result of `tune`. Its metrics come only from the final measurement."""

    HEAD: ClassVar = head("tuned")

    model: Hidden[OpenedModel]
    goal: str
    """`latency` or `throughput`: the goal of the recommended settings."""
    latency_limit: Annotated[float | None, Written("latency_limit_ms")]
    """Limit on p99 of the throughput choice, in milliseconds."""
    final: Hidden[BenchmarkResult]
    """Interleaved measurement of the default settings, which are first, and of the best
    candidates."""
    trials: Sequence[SettingsTrial]
    kept: Annotated[Mapping[str, Sequence[str]], Written("not_searched")]
    """Settings that were not searched, with the user's environment variables that define them."""
    complete: bool
    """Whether the search finished within its budget."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of the files for each input, in words."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Engines that could not be tried, and why they are not available."""

    @property
    @written(flat=True)
    def _about(self) -> dict[str, Any]:
        return {
            "model": self.model.source,
            "model_sha256": self.model.sha256,
            "started": self.final.started,
            "machine": self.final.machine,
            "engine": self.settings.engine or TENSORFLOW,
            **{goal: self._choice(getattr(self, goal)) for goal in ("default", *GOALS)},
        }

    @property
    def default(self) -> Measurement:
        """Measurement of the default settings, in the engine in which the search started."""
        return self.final.measurements[0]

    @property
    def latency(self) -> Measurement:
        """The fastest with the default batch and no concurrency; the default if none is faster."""
        shape = self.default.settings.batch, 1
        alone = [item for item in self.final.measurements
                 if (item.settings.batch, item.settings.concurrency) == shape]  # fmt: skip
        return self._best(alone, latency) or self.default

    @property
    def throughput(self) -> Measurement | None:
        """The highest throughput within the latency limit; None: no candidate meets it."""
        limit = math.inf if self.latency_limit is None else self.latency_limit
        fit = [item for item in self.final.measurements if summary(item).p99 <= limit]
        return self._best(fit, seconds_an_item)

    def _best(self, candidates: Sequence[Measurement], figure: Figure) -> Measurement | None:
        """Return the candidate with the fewest changes that no other beats by WORTH, significantly.

        A candidate must be significantly faster than the default. So two searches recommend the
        same, unless their measurements contradict each other.
        """
        default = self.default
        faster = [
            item
            for item in candidates
            if item is default
            or default not in candidates
            or judge(default, item, figure=figure).kind == FASTER
        ]
        faster.sort(key=lambda item: _extent(default.settings, item.settings))
        for item in faster:
            verdicts = (judge(item, other, figure=figure) for other in faster)
            if not any(v.kind == FASTER and v.wall.value > WORTH for v in verdicts):
                return item
        return faster[0] if faster else None

    @property
    @written("settings")
    def stored(self) -> RunConfig:
        """The settings without variables that may load code, which no file sets."""
        return replace(self.settings, env=process_variables.stored(self.settings.env))

    @property
    @written(if_set=True)
    def not_stored(self) -> Mapping[str, str | None]:
        """Variables of the settings that the user must set in the environment."""
        return {n: v for n, v in dict(self.settings.env).items() if n not in dict(self.stored.env)}

    @property
    def settings(self) -> RunConfig:
        """Settings for the goal; if none meets the limit, those with the lowest latency."""
        result = self.throughput if self.goal == "throughput" else None
        return (result or self.latency).settings

    def _choice(self, chosen: Measurement | None) -> dict[str, Any] | None:
        if chosen is None:
            return None
        figures = summary(chosen)
        return {
            "settings": chosen.settings,
            "environment": chosen.settings.environment,
            "p50_ms": figures.p50,
            "p99_ms": figures.p99,
            "items_per_second": figures.items_per_second,
            "verdict": figures.verdict,
            "cpu_ms": figures.cpu_ms,
            "core_seconds_per_1000": figures.core_seconds_per_1000,
            "times_faster": _document(self.faster(chosen)),
            "times_the_items": _document(self.more(chosen)) | {"at_most": self.at_most(chosen)},
        }

    @property
    @written()
    def undecided(self) -> list[str]:
        """Settings of the final measurement that are not recommended but may be faster."""
        chosen = (self.default, self.latency, self.throughput)
        return [
            f"{item.settings} ({verdict.wall.in_words()} the items)"
            for item in self.final.measurements
            if item not in chosen
            and not (verdict := self.more(item)).is_decided
            and verdict.wall.value > 1
        ]

    def faster(self, chosen: Measurement) -> SpeedVerdict:
        """Return the speed of a choice relative to the default settings, by latency."""
        return judge(self.default, chosen, figure=latency, busy=self.final.busy)

    def more(self, chosen: Measurement) -> SpeedVerdict:
        """Return the throughput of a choice relative to the default settings."""
        return judge(self.default, chosen, figure=seconds_an_item, busy=self.final.busy)

    def at_most(self, chosen: Measurement) -> float | None:
        """Return the largest gain in throughput that the cores allow; None: CPU times are unknown.

        It assumes that a choice uses all cores, and the default settings one. A larger measured
        gain means that something else slowed the default down.
        """
        default, other = (summary(item).core_seconds_per_1000 for item in (self.default, chosen))
        if not default or not other:
            return None
        return usable_cores() * default / other

    @property
    @written()
    def impossible(self) -> str:
        """A warning if a measured gain exceeds what the cores allow; empty: none does."""
        for chosen in (self.latency, self.throughput):
            if chosen is None or chosen is self.default:
                continue
            gain, most = self.more(chosen).wall, self.at_most(chosen)
            if most is not None and gain.value > most:
                return (
                    f"{chosen.settings}: {gain.value:.2f} times the items is more than the cores "
                    f"allow ({most:.2f} times): other load slowed the default settings down, "
                    "so measure again on an idle machine"
                )
        return ""


def _extent(default: RunConfig, settings: RunConfig) -> tuple[int, int]:
    """Return the number of settings that differ from the default's, and the negated thread count.

    As a sort key, it makes two searches choose the same among equally fast settings.
    """
    count = len(default.changes(settings)) + len(default.changed_variables(settings))
    return count, -sum(settings.threads or ())


def without_one(default: RunConfig, settings: RunConfig) -> Iterator[RunConfig]:
    """Yield settings with one of their changes reverted at a time, if there are several.

    A change is not worthwhile if reverting it costs nothing. Threads and concurrency count as one
    change, as the threads serve the concurrent calls.
    """
    names, variables = default.changes(settings), default.changed_variables(settings)
    together = [n for n in names if n in ("threads", "concurrency")]
    parts = [[n] for n in names if n not in together] + ([together] if together else [])
    if len(parts) + len(variables) == 1:
        return
    for part in parts:
        yield replace(settings, **{name: getattr(default, name) for name in part})
    before = dict(default.env)
    for variable in variables:
        others = {name: value for name, value in dict(settings.env).items() if name != variable}
        former = {variable: before[variable]} if variable in before else {}
        yield replace(settings, env=others | former)


def _document(speed_verdict: SpeedVerdict) -> dict[str, Any]:
    plain = document(speed_verdict)
    return {**plain["ratio"], "cpu_ratio": plain["cpu_ratio"], "verdict": plain["verdict"]}


_NO_GPU = ("", "-1")
_ONE_GPU = ("gpu", "gpu:0")


def check_served(
    settings: RunConfig, name: str, gpu: bool = True, engines: Collection[str] = ()
) -> None:
    """Raise GraphError for a setting that no server supports; `name` is its source.

    `gpu` allows settings for the first GPU; `engines` are those that it has besides TensorFlow.
    """
    device = settings.device == "cpu" or (gpu and settings.device in _ONE_GPU)
    plain = settings.precision is None or (settings.precision, settings.device) == ("fp32", "cpu")
    is_served = {"precision": plain, "input": settings.input == "feed", "device": device,
                 "engine": settings.engine in (None, *engines)}  # fmt: skip
    for field_, served in is_served.items():
        if not served:
            got = getattr(settings, field_)
            raise GraphError("tuned-setting-not-served", name=name, field=field_, got=got)


def to_set(settings: RunConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to add for settings that these variables do not define."""
    added: dict[str, str] = {}
    for part in settings.parts():
        if not part.given_by(variables):
            added |= {name: value for name, value in part.environment.items() if value is not None}
    return added


def unlike(settings: RunConfig, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield, in words, the recommended settings that these variables contradict or lack."""
    for part in settings.parts():
        expected, on_gpu = part.environment, part.device != "cpu"
        held = {n: v for n, v in part.given_by(variables).items()
                if (v in _NO_GPU if on_gpu else v != expected.get(n))}  # fmt: skip
        unset = [f"{n}={v}" for n, v in expected.items() if v not in (None, variables.get(n))]
        if held:
            text = " and ".join(f"{n}={v}" for n, v in held.items())
            yield f"{part}; {text} {'is' if len(held) == 1 else 'are'} set and not changed"
        elif unset:
            yield f"{part}; this process started without {' '.join(unset)}, and cannot change that"
