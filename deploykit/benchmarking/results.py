"""What a benchmark found, as a value with a file format."""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from deploykit.benchmarking.conditions import Conditions
from deploykit.benchmarking.measurement import Measurement, Turn
from deploykit.benchmarking.scenarios.scenario_result import ScenarioResult
from deploykit.benchmarking.settings import Settings
from deploykit.storage.documents import FORMAT, load_document
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.engines.engines import MOST_BATCH
from deploykit.transforms.core.errors import GraphError, MismatchError

if TYPE_CHECKING:
    from deploykit.benchmarking.comparison.speed_verdict import SpeedVerdict
    from deploykit.benchmarking.profiling.profile import Profile
    from deploykit.freezing.open_model import OpenedModel

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class BenchmarkResult(AsHtml):
    """Measurements that were taken in turn on one machine."""

    measurements: tuple[Measurement, ...]
    machine: Mapping[str, Any]
    started: str
    """Local time, ISO 8601."""
    interrupted: bool = False
    """Whether the user ended it early."""
    profiles: Mapping[str, "Profile"] = field(default_factory=dict)
    """By the name of a measurement, where profiles were asked for; they are not read again."""
    models: Mapping[str, "OpenedModel"] = field(default_factory=dict)
    """What was measured, by the model's name in a measurement; they are not read again."""
    fed: Mapping[str, str] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    conditions: Conditions | None = None
    """What else the machine did meanwhile; None: it is not known, in results of old."""

    @property
    def is_scenario(self) -> bool:
        """Whether models had a scenario one after another, instead of turns."""
        return any(each.scenario for each in self.measurements)

    def judgements(self) -> "list[SpeedVerdict | None]":
        """Return how fast each is beside the first with as many samples and calls in flight.

        None: it is that first one, or was measured in a scenario.
        """
        from deploykit.benchmarking.comparison.speed_verdict import judge, partners

        busy = self.conditions.busy if self.conditions else ""
        pairs = zip(partners(self.measurements), self.measurements, strict=True)
        return [None if first is None else judge(first, each, busy=busy) for first, each in pairs]

    def document(self) -> dict[str, Any]:
        """Return it as plain data, with the statistics that a reader would compute first."""
        from deploykit.benchmarking.comparison.speed_verdict import RULE, partners
        from deploykit.benchmarking.statistics import summary

        found = []
        firsts = partners(self.measurements)
        comparisons = [
            {"a": first.name, "b": each.name} | judgement.document()
            for first, each, judgement in zip(
                firsts, self.measurements, self.judgements(), strict=True
            )
            if first is not None and judgement is not None
        ]
        for each in self.measurements:
            settings = {"settings": each.settings.document()}
            found.append(asdict(each) | settings | {"summary": asdict(summary(each))})
            if each.scenario is None:
                del found[-1]["scenario"]
            if each.name in self.profiles:
                from deploykit.benchmarking.profiling.profile import document

                found[-1]["profile"] = document(self.profiles[each.name])
        return {
            "format": FORMAT,
            "kind": "benchmark",
            "started": self.started,
            "interrupted": self.interrupted,
            "machine": dict(self.machine),
            "conditions": self.conditions and self.conditions.document(),
            "left_out": None if self.is_scenario else RULE,
            "measurements": found,
            "comparisons": comparisons,
        }


def load_result(path: str | os.PathLike[str]) -> BenchmarkResult:
    """Read a result from its JSON file.

    FileError: it cannot be read. GraphError: it is no result, or of another format.

    Example:
        >>> result = deploykit.load_result("before.json")
        >>> [each.name for each in result.measurements]
        ['fashion.pb']
    """
    return result_of(load_document(path, "benchmark"), path)


def result_of(document: Mapping[str, Any], path: str | os.PathLike[str]) -> BenchmarkResult:
    """Read what `BenchmarkResult.document` gave, from a file. GraphError: it is something else."""
    try:
        found = tuple(_measurement(each) for each in document["measurements"])
        machine, started = dict(document["machine"]), str(document["started"])
        conditions = document.get("conditions") and Conditions.of(document["conditions"])
        interrupted = bool(document.get("interrupted"))
        return BenchmarkResult(found, machine, started, interrupted, conditions=conditions)
    except GraphError as error:
        raise error.within(path) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise GraphError(
            "not-a", source=path, what="a result of deploykit benchmark", reason=repr(error)
        ) from None


def load_tuned(path: str | os.PathLike[str], models: Mapping[str, str] | None = None) -> Settings:
    """Read the recommended settings from a file of `deploykit tune`.

    Args:
        path: the file.
        models: the SHA-256 of each model that the settings are for, by its path; default: the
            model is not compared.

    FileError: it cannot be read. GraphError: it is no such file, or of another format, or a number
    is out of bounds. MismatchError: it was measured on another model.
    """
    if models:
        check_tuned(path, models)
    settings = load_document(path, "tuned").get("settings")
    if not isinstance(settings, dict):
        raise GraphError("tune-file-empty", source=path)
    try:
        return Settings.of(settings)
    except GraphError as error:
        raise error.within(path) from None


def check_tuned(path: str | os.PathLike[str], models: Mapping[str, str]) -> None:
    """Raise MismatchError where a file of `tune` was measured on none of these models.

    `models` are SHA-256 by path. It warns of a file that holds no SHA-256.
    """
    found = load_document(path, "tuned").get("model_sha256")
    names = ", ".join(dict.fromkeys(models))
    if not isinstance(found, str) or not found:
        logger.warning("%s holds no SHA-256 of a model, so it may be of another one than %s; run "
                       "deploykit tune again", path, names)  # fmt: skip
    elif found not in models.values():
        raise MismatchError("measured-on-other-model", file=path, model=names)


def _measurement(document: Mapping[str, Any]) -> Measurement:
    rounds = tuple(tuple(map(float, each)) for each in document["rounds_ms"])
    seconds = tuple(map(float, document["rounds_seconds"]))
    if len(seconds) != len(rounds) or not (rounds and all(rounds)):
        raise ValueError("a measurement lacks calls")
    if not all(0 < each < math.inf for times in (seconds, *rounds) for each in times):
        raise ValueError("a time is not above zero")
    turns = tuple(Turn(**each) for each in document.get("turns", ()))
    if len(turns) not in (0, len(rounds)) or any(each.cpu_ms < 0 for each in turns):
        raise ValueError("a round lacks its turn")
    samples = int(document["samples"])
    if not 1 <= samples <= MOST_BATCH:
        raise ValueError(f"samples is {samples}, expected 1 to {MOST_BATCH}")
    scenario = document.get("scenario")
    return Measurement(
        name=str(document["name"]),
        model=str(document["model"]),
        sha256=str(document["sha256"]),
        settings=Settings.of(document["settings"]),
        samples=samples,
        load_ms=float(document["load_ms"]),
        first_run_ms=float(document["first_run_ms"]),
        warm_up_ms=tuple(map(float, document["warm_up_ms"])),
        settled=bool(document["settled"]),
        rounds_ms=rounds,
        rounds_seconds=seconds,
        turns=turns,
        facts=dict(document.get("facts", {})),
        scenario=None if scenario is None else ScenarioResult.of(scenario),
    )
