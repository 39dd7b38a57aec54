"""What a benchmark found, as a value with a file format."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from deploykit.benchmarking.conditions import Conditions
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.settings import RunConfig, renamed
from deploykit.storage.documents import load_document
from deploykit.transforms.core.display.as_html import AsHtml
from deploykit.transforms.core.display.documents import Hidden, converted, document, head, written
from deploykit.transforms.core.errors import GraphError, MismatchError

if TYPE_CHECKING:
    from deploykit.benchmarking.comparison.speed_verdict import SpeedVerdict
    from deploykit.benchmarking.profiling.profile import Profile
    from deploykit.freezing.open_model import OpenedModel

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class BenchmarkResult(AsHtml):
    """Measurements that were taken in turn on one machine."""

    HEAD: ClassVar = head("benchmark")

    measurements: Hidden[tuple[Measurement, ...]]
    machine: Mapping[str, Any]
    started: str
    """Local time, ISO 8601."""
    interrupted: bool = False
    """Whether the user ended it early."""
    profiles: Hidden[Mapping[str, "Profile"]] = field(default_factory=dict)
    """By the name of a measurement, where profiles were asked for; they are not read again."""
    models: Hidden[Mapping[str, "OpenedModel"]] = field(default_factory=dict)
    """What was measured, by the model's name in a measurement; they are not read again."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""
    conditions: Conditions | None = None
    """What else the machine did meanwhile; None: it is not known, in results of old."""

    @property
    def is_scenario(self) -> bool:
        """Whether models had a scenario one after another, instead of turns."""
        return any(each.scenario for each in self.measurements)

    @property
    @written()
    def left_out(self) -> str | None:
        """Which turns are left out, in words; None: none are, in a scenario."""
        from deploykit.benchmarking.comparison.speed_verdict import RULE

        return None if self.is_scenario else RULE

    @property
    @written("measurements")
    def _measurements(self) -> list[dict[str, Any]]:
        from deploykit.benchmarking.statistics import summary

        found = [document(each) | {"summary": document(summary(each))}
                 for each in self.measurements]  # fmt: skip
        for each in found:
            if each["name"] in self.profiles:
                each["profile"] = document(self.profiles[each["name"]])
        return found

    @property
    @written("comparisons")
    def _comparisons(self) -> list[dict[str, Any]]:
        from deploykit.benchmarking.comparison.speed_verdict import partners

        pairs = zip(partners(self.measurements), self.measurements, self.judgements(), strict=True)
        return [
            {"a": first.name, "b": each.name, **document(judgement)}
            for first, each, judgement in pairs
            if first is not None and judgement is not None
        ]

    def judgements(self) -> "list[SpeedVerdict | None]":
        """Return how fast each is beside the first with as many samples and calls in flight.

        None: it is that first one, or was measured in a scenario.
        """
        from deploykit.benchmarking.comparison.speed_verdict import judge, partners

        busy = self.conditions.busy if self.conditions else ""
        pairs = zip(partners(self.measurements), self.measurements, strict=True)
        return [None if first is None else judge(first, each, busy=busy) for first, each in pairs]


def load_result(path: str | os.PathLike[str]) -> BenchmarkResult:
    """Read a result from its JSON file.

    FileError: it cannot be read. GraphError: it is no result, or of another format.

    Example:
        >>> result = deploykit.load_result("before.json")
        >>> [each.name for each in result.measurements]
        ['fashion.pb']
    """
    return result_of(load_document(path, "benchmark"), path)


@dataclass(frozen=True)
class _StoredResult:
    """What is read of a result that was written."""

    measurements: tuple[Measurement, ...]
    machine: dict[str, Any]
    started: str
    interrupted: bool = False
    conditions: Conditions | None = None


def result_of(plain: Mapping[str, Any], path: str | os.PathLike[str]) -> BenchmarkResult:
    """Read the document of a result, from a file. GraphError: it is something else."""
    try:
        found = converted({**plain, "measurements": _renamed(plain)}, _StoredResult)
        for each in found.measurements:
            each.check()
    except GraphError as error:
        raise GraphError(
            "not-a", source=path, what="a result of deploykit benchmark", reason=str(error)
        ) from None
    return BenchmarkResult(**vars(found))


def _renamed(plain: Mapping[str, Any]) -> Any:
    """Return measurements with what older files call otherwise in their settings."""
    found = plain.get("measurements")
    if not isinstance(found, list):
        return found
    return [
        {**each, "settings": renamed(each["settings"])}
        if isinstance(each, dict) and isinstance(each.get("settings"), dict) else each
        for each in found
    ]  # fmt: skip


def load_tuned(path: str | os.PathLike[str], models: Mapping[str, str] | None = None) -> RunConfig:
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
        return RunConfig.of(settings)
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
