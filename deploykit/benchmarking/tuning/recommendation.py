"""Recommended settings for each goal, and their form for a server."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar

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
from deploykit.system import allocators
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.documents import AsHtml, Hidden, Written, document, head, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.engines.engines import TENSORFLOW

WORTH = 1.05
"""How much faster a change has to be than the same without it, besides being so for sure: what is
worth less is found on one day and not on another."""


@dataclass(frozen=True)
class Recommendation(AsHtml):
    """The outcome of `tune`. Its figures come from the final measurement alone."""

    HEAD: ClassVar = head("tuned")

    model: Hidden[OpenedModel]
    goal: str
    """`latency` or `throughput`: which settings are recommended."""
    latency_limit: Annotated[float | None, Written("latency_limit_ms")]
    """What p99 of the throughput choice may take, in milliseconds."""
    final: Hidden[BenchmarkResult]
    """The default settings first, then those that did best, in turn."""
    trials: Sequence[SettingsTrial]
    kept: Annotated[Mapping[str, Sequence[str]], Written("not_searched")]
    """Settings that were not searched, and the variables of the user that hold them."""
    complete: bool
    """Whether the search ended by itself and not by its budget."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Allocators and engines that could not be tried, and why this machine does not have them."""

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
        """The default settings of the engine that the search began in."""
        return self.final.measurements[0]

    @property
    def latency(self) -> Measurement:
        """What is faster than the default, alone and with as many samples; else the default."""
        shape = self.default.settings.batch, 1
        alone = [e for e in self.final.measurements
                 if (e.settings.batch, e.settings.concurrency) == shape]  # fmt: skip
        return self._best(alone, latency) or self.default

    @property
    def throughput(self) -> Measurement | None:
        """What has more items a second and keeps to the limit; None: nothing keeps to it."""
        limit = math.inf if self.latency_limit is None else self.latency_limit
        fit = [
            measurement
            for measurement in self.final.measurements
            if summary(measurement).p99 <= limit
        ]
        return self._best(fit, seconds_an_item)

    def _best(self, candidates: Sequence[Measurement], figure: Figure) -> Measurement | None:
        """Return the one with the fewest changes that no other beats for sure, by what is WORTH it.

        What is not faster than the default for sure is no candidate, so that two searches
        recommend the same unless their measurements contradict each other.
        """
        default = self.default
        results = [
            candidate
            for candidate in candidates
            if candidate is default
            or default not in candidates
            or judge(default, candidate, figure=figure).kind == FASTER
        ]
        results.sort(key=lambda item: _extent(default.settings, item.settings))

        def is_beaten(measurement: Measurement) -> bool:
            verdicts = (judge(measurement, other, figure=figure) for other in results)
            return any(v.kind == FASTER and v.wall.value > WORTH for v in verdicts)

        unbeaten = (result for result in results if not is_beaten(result))
        return next(unbeaten, results[0] if results else None)

    @property
    @written()
    def settings(self) -> RunConfig:
        """Those for the goal; where none keeps to the limit, those of the lowest latency."""
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
        """Say of what was measured in the end and is not recommended where it may be faster yet."""
        chosen = (self.default, self.latency, self.throughput)
        return [
            f"{measurement.settings} "
            f"({verdict.wall.low:.2f} to {verdict.wall.high:.2f} times the items)"
            for measurement in self.final.measurements
            if measurement not in chosen
            and not (verdict := self.more(measurement)).is_decided
            and verdict.wall.value > 1
        ]

    def faster(self, chosen: Measurement) -> SpeedVerdict:
        """Return how often a choice runs while the default settings run once."""
        return self._judged(chosen, latency)

    def more(self, chosen: Measurement) -> SpeedVerdict:
        """Return how many items a choice does in the time of one by the default settings."""
        return self._judged(chosen, seconds_an_item)

    def _judged(self, chosen: Measurement, figure: Figure) -> SpeedVerdict:
        busy = self.final.conditions.busy if self.final.conditions else ""
        return judge(self.default, chosen, figure=figure, busy=busy)

    def at_most(self, chosen: Measurement) -> float | None:
        """Return how many times the items the cores allow; None: CPU times are not known.

        That is all cores busy with a choice, and one alone with the default settings. What was
        measured beyond is what something else held up.
        """
        default, other = (summary(item).core_seconds_per_1000 for item in (self.default, chosen))
        if not default or not other:
            return None
        return usable_cores() * default / other

    @property
    @written()
    def impossible(self) -> str:
        """Say where more was measured than the cores allow; empty: nowhere."""
        for chosen in (self.latency, self.throughput):
            if chosen is None or chosen is self.default:
                continue
            gain, most = self.more(chosen).wall, self.at_most(chosen)
            if most is not None and gain.value > most:
                return (
                    f"{chosen.settings}: {gain.value:.2f} times the items is more than the cores "
                    f"allow ({most:.2f} times): the default settings were held up by something "
                    "else, so measure again on a quieter machine"
                )
        return ""


def changes(default: RunConfig, settings: RunConfig) -> list[str]:
    """Return the names of the settings that are others than the default's."""
    return [
        field_.name
        for field_ in fields(RunConfig)
        if getattr(default, field_.name) != getattr(settings, field_.name)
    ]


def _extent(default: RunConfig, settings: RunConfig) -> tuple[int, int]:
    """Return how many settings are others than the default's, and how few threads are asked for.

    So of settings that do as well, two searches take the same.
    """
    return len(changes(default, settings)), -sum(settings.threads or ())


def without_one(default: RunConfig, settings: RunConfig) -> Iterator[RunConfig]:
    """Yield settings with each change of theirs taken back, if there are several.

    A change that does not show when it is taken back is not worth making. Threads and calls in
    flight are one, as the threads are there for the calls.
    """
    names = changes(default, settings)
    together = [n for n in names if n in ("threads", "concurrency")]
    parts = [[n] for n in names if n not in together] + ([together] if together else [])
    for part in parts if len(parts) > 1 else ():
        yield replace(settings, **{name: getattr(default, name) for name in part})


def _document(speed_verdict: SpeedVerdict) -> dict[str, Any]:
    plain = document(speed_verdict)
    return {**plain["ratio"], "cpu_ratio": plain["cpu_ratio"], "verdict": plain["verdict"]}


_NO_GPU = ("", "-1")
_ONE_GPU = ("gpu", "gpu:0")


def check_served(
    settings: RunConfig, name: str, gpu: bool = True, engines: Collection[str] = ()
) -> None:
    """Raise GraphError for a setting that no server has; `name` is where it comes from.

    `gpu` says whether it may be one that runs on the first GPU, `engines` are those that it has
    besides TensorFlow.
    """
    device = settings.device == "cpu" or (gpu and settings.device in _ONE_GPU)
    plain = settings.precision is None or (settings.precision, settings.device) == ("fp32", "cpu")
    refused = {"precision": not plain, "input": settings.input != "feed", "device": not device,
               "engine": settings.engine not in (None, *engines)}  # fmt: skip
    for setting, is_refused in refused.items():
        if is_refused:
            raise GraphError(
                "tuned-setting-not-served", name=name, field=setting, got=getattr(settings, setting)
            )


def to_set(settings: RunConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set beside those that are set: of no setting that these hold."""
    added: dict[str, str] = {}
    for part in _parts(settings):
        if not _held(part, variables) and not _lacking(part):
            added |= {name: value for name, value in part.environment.items() if value is not None}
    return added


def unlike(settings: RunConfig, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield in words what is recommended, and otherwise in these variables."""
    for part in _parts(settings):
        expected = part.environment
        held = {n: v for n, v in _held(part, variables).items() if v != expected.get(n)}
        if part.device != "cpu":
            held = {n: v for n, v in _held(part, variables).items() if v in _NO_GPU}
        unset = [f"{n}={v}" for n, v in expected.items() if v not in (None, variables.get(n))]
        if held:
            said = " and ".join(f"{n}={v}" for n, v in held.items())
            yield f"{part}; {said} {'is set, and stays' if len(held) == 1 else 'are set, and stay'}"
        elif unset and (why := _lacking(part)):
            yield f"{part}, which cannot be had here: {why}"
        elif unset:
            yield f"{part}; this process began without {' '.join(unset)}, and cannot change that"


def _parts(settings: RunConfig) -> Iterator[RunConfig]:
    """Yield what is set by variables, one setting at a time."""
    for setting in fields(RunConfig):
        part = replace(RunConfig(), **{setting.name: getattr(settings, setting.name)})
        if part.environment and setting.name != "engine":  # a server sees to its own
            yield part


def _held(part: RunConfig, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set already and hold a setting."""
    if part.allocator is not None:
        return {name: variables[name] for name in allocators.held(variables)}
    results = {name: variables[name] for name in part.environment if name in variables}
    if part.keep_memory is not None and allocators.is_tuned(variables):
        results[allocators.TUNABLES] = variables[allocators.TUNABLES]
    return results


def _lacking(part: RunConfig) -> str:
    """Say why this machine does not have an allocator; empty: it has, or none is asked for."""
    return "" if part.allocator is None else allocators.lacking(part.allocator)
