"""Benchmark results, their file format, and the scaling over threads and GPUs."""

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.profiling.profile import Profile
from deploykit.benchmarking.run_config import RunConfig, renamed
from deploykit.benchmarking.speed_verdict import NARROW, RULE, SpeedVerdict, judge, partners
from deploykit.benchmarking.statistics import summary
from deploykit.benchmarking.system_load import Conditions
from deploykit.importers.open_model import OpenedModel
from deploykit.storage.files import load_document
from deploykit.transforms.common.documents import AsHtml, Hidden, converted, document, head, written
from deploykit.transforms.common.errors import GraphError, MismatchError

logger = logging.getLogger("deploykit")


@dataclass(frozen=True)
class BenchmarkResult(AsHtml):
    """Interleaved measurements on one machine."""

    HEAD: ClassVar = head("benchmark")

    measurements: Hidden[tuple[Measurement, ...]]
    machine: Mapping[str, Any]
    started: str
    """Start in local time, ISO 8601."""
    interrupted: bool = False
    """Whether the user ended it early."""
    profiles: Hidden[Mapping[str, Profile]] = field(default_factory=dict)
    """Profiles by name of the measurement; not restored from a file."""
    models: Hidden[Mapping[str, OpenedModel]] = field(default_factory=dict)
    """The measured models by name; not restored from a file."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of the files for each input, in words."""
    conditions: Conditions | None = None
    """Load of the machine during the measurement, or None in older results."""

    @property
    @written()
    def left_out(self) -> str | None:
        """The rule for skipped rounds, in words."""
        return RULE  # null in some files of version 0.1, which the schema describes too

    @property
    @written("measurements")
    def _measurements(self) -> list[dict[str, Any]]:
        results = [document(measurement) | {"summary": document(summary(measurement))}
                 for measurement in self.measurements]  # fmt: skip
        for result in results:
            if result["name"] in self.profiles:
                result["profile"] = document(self.profiles[result["name"]])
        return results

    @property
    @written("comparisons")
    def _comparisons(self) -> list[dict[str, Any]]:
        pairs = zip(partners(self.measurements), self.measurements, self.judgements(), strict=True)
        return [
            {"a": first.name, "b": item.name, **document(judgement)}
            for first, item, judgement in pairs
            if first is not None and judgement is not None
        ]

    def judgements(self) -> list[SpeedVerdict | None]:
        """Return the speed of each relative to the first with the same batch and concurrency.

        None: it is that first one.
        """
        pairs = zip(partners(self.measurements), self.measurements, strict=True)
        return [
            None if first is None else judge(first, item, busy=self.busy) for first, item in pairs
        ]

    @property
    def busy(self) -> str:
        """What loaded the machine, in words; empty: it was idle, or that is unknown."""
        return self.conditions.busy if self.conditions else ""


def load_result(path: str | os.PathLike[str]) -> BenchmarkResult:
    """Load a result from its JSON file.

    FileError: the file cannot be read. GraphError: not a benchmark result, or another format.

    Example:
        >>> result = deploykit.load_result("before.json")
        >>> [each.name for each in result.measurements]
        ['fashion.pb']
    """
    result = result_of(load_document(path, "benchmark"), path)
    if any(measurement.scenario for measurement in result.measurements):
        logger.warning("%s was measured in a load scenario of version 0.1, which is ignored", path)
    return result


@dataclass(frozen=True)
class _StoredResult:
    """The fields of a result that are restored from a file."""

    measurements: tuple[Measurement, ...]
    machine: dict[str, Any]
    started: str
    interrupted: bool = False
    conditions: Conditions | None = None


def result_of(plain: Mapping[str, Any], path: str | os.PathLike[str]) -> BenchmarkResult:
    """Convert the document of a result from a file. GraphError: not a benchmark result."""
    try:
        result = converted({**plain, "measurements": _renamed(plain)}, _StoredResult)
        for measurement in result.measurements:
            measurement.check()
    except GraphError as error:
        raise GraphError(
            "not-a", source=path, what="a result of deploykit benchmark", reason=str(error)
        ) from None
    return BenchmarkResult(**vars(result))


def _renamed(plain: Mapping[str, Any]) -> Any:
    """Return measurements of older files with the current names and values."""
    value = plain.get("measurements")
    return [_current(item) for item in value] if isinstance(value, list) else value


def _current(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    result = {**item, "scenario": bool(item.get("scenario")) or None}
    if isinstance(item.get("settings"), dict):
        result["settings"] = renamed(item["settings"])
    return result


def load_tuned(path: str | os.PathLike[str], models: Mapping[str, str] | None = None) -> RunConfig:
    """Load the recommended settings from a file of `deploykit tune`.

    Args:
        path: the file.
        models: SHA-256 by path of each model that the settings are for; default: the model is not
            compared.

    FileError: the file cannot be read. GraphError: not a file of tune, or another format, or a
    number is out of bounds. MismatchError: the settings were measured on another model.
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
    """Raise MismatchError if a file of `tune` was measured on none of these models.

    `models` are SHA-256 by path. A file without a SHA-256 only causes a warning.
    """
    value = load_document(path, "tuned").get("model_sha256")
    names = ", ".join(dict.fromkeys(models))
    if not isinstance(value, str) or not value:
        logger.warning("%s contains no SHA-256 of a model, so it may not belong to %s; run "
                       "deploykit tune again", path, names)  # fmt: skip
    elif value not in models.values():
        raise MismatchError("measured-on-other-model", file=path, model=names)


def scaling_efficiency(measurement: Measurement, result: BenchmarkResult) -> float | None:
    """Return the rate of n replicas divided by n times the rate of one; 1 is ideal.

    None: the measurement is not on all GPUs, or the result lacks the same on `gpu:0`.
    """
    if measurement.settings.device != "all":
        return None
    alone = replace(measurement.settings, device="gpu:0")
    for item in result.measurements:
        if item.model == measurement.model and item.settings == alone:
            replicas = len(measurement.facts["towers"])
            return measurement.items_per_second / (replicas * item.items_per_second)
    return None


def thread_lines(result: BenchmarkResult) -> Iterator[str]:
    """Yield where more threads per op bring no significant speedup; nothing if inconclusive."""
    for one, more in _pairs(result):
        verdict = judge(one, more)
        if verdict.wall.high <= 1 + NARROW:  # includes what counts as no difference
            (few, _), (many, _) = (threads_of(item) for item in (one, more))
            ratio = verdict.wall
            way = ""
            if more.settings.concurrency == 1:
                way = (
                    "; to test them with concurrent calls, run --threads "
                    f"{few}x{many} --concurrency {many} too"
                )
            what = "are slower than" if ratio.high < 1 else "bring no speedup over"
            yield (
                f"{more.name}: {many} threads per op {what} {few} here ({ratio.in_words()}){way}"
            )


def threads_of(measurement: Measurement) -> tuple[int, int]:
    """Return threads per op and concurrent ops; TensorFlow's default is one per CPU for both."""
    every = len(measurement.facts.get("cpus", ())) or 1
    return measurement.settings.threads or (every, every)


def _pairs(result: BenchmarkResult) -> Iterator[tuple[Measurement, Measurement]]:
    """Yield each measurement with more threads, after its equal with the fewest.

    The second never has fewer concurrent ops, so that only threads per op can be the cause.
    """
    firsts: dict[object, Measurement] = {}
    for item in sorted(result.measurements, key=threads_of):
        if item.settings.device == "cpu":
            key = (item.model, item.samples, replace(item.settings, threads=None))
            one = firsts.setdefault(key, item)
            (few, ops), (many, more_ops) = threads_of(one), threads_of(item)
            if few < many and ops <= more_ops:
                yield one, item
