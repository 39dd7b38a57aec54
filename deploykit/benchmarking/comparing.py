"""Two benchmark results compared, and the history of earlier results on a machine."""

import json
import os
import statistics
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.benchmarking.run_config import CONFIDENCE
from deploykit.benchmarking.speed_verdict import SpeedVerdict, compare_apart
from deploykit.benchmarking.statistics import Ratio, summary
from deploykit.storage.files import load_document, write
from deploykit.transforms.common.documents import FORMAT, AsHtml, Flat, Hidden, Written, written
from deploykit.transforms.common.errors import GraphError, VerificationError

MACHINE = ("platform", "cpu", "cores", "cpus", "affinity", "flags", "governor", "cpu_limit")
"""Machine properties that change the measured speed; load and free memory always vary."""


def _name_of(measurement: Measurement) -> str:
    return measurement.name


@dataclass(frozen=True)
class Speedup:
    """A measurement of result a, its partner in result b, and the verdict on them."""

    a: Annotated[Measurement, Written(by=_name_of)]
    b: Annotated[Measurement, Written(by=_name_of)]
    judgement: Flat[SpeedVerdict]

    @property
    @written(flat=True)
    def _figures(self) -> dict[str, float | None]:
        return {
            f"{name}_{side}": getattr(summary(item), name)
            for name in ("p50", "cpu_ms", "core_seconds_per_1000")
            for side, item in (("a", self.a), ("b", self.b))
        }

    @property
    def ratio(self) -> Ratio:
        """Speed of b relative to a, by wall time."""
        return self.judgement.wall

    @property
    def name(self) -> str:
        """The name of the pair, or both names where they differ."""
        return self.a.name if self.a.name == self.b.name else f"{self.a.name} -> {self.b.name}"


@dataclass(frozen=True)
class Speedups(AsHtml):
    """The measurements that two results share, those without a partner, and warnings."""

    a: Hidden[str]
    """Name of the first result, whose speed counts as 1."""
    b: Hidden[str]
    confidence: float
    """Confidence level of the intervals."""
    pairs: Annotated[tuple[Speedup, ...], Written("comparisons")]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, ...]
    """Warnings, one sentence each."""
    is_first: bool = False
    """Whether the result starts a new baseline, so that nothing was compared."""

    def slower_than(self, speed: float) -> list[Speedup]:
        """Return the pairs whose speed is significantly below this one."""
        return [pair for pair in self.pairs if pair.judgement.is_below(speed)]

    def check(self, fail_below: float) -> None:
        """Raise VerificationError if a pair is significantly slower, or if nothing was compared.

        A pair is significantly slower if the whole interval of its CPU time is below `fail_below`.
        For wall time, the interval must also be below by more than the drift of the machine. The
        first result of a new baseline passes.
        """
        if self.is_first:
            return
        if not self.pairs:
            raise VerificationError("nothing-compared", warnings=self.warnings)
        if slow := self.slower_than(fail_below):
            worst = min(slow, key=lambda pair: pair.ratio.value)
            raise VerificationError(
                "slower-than-allowed",
                name=self.b,
                baseline=self.a,
                worst=worst.name,
                verdict=worst.judgement.verdict,
                least=fail_below,
            )


def find_speedups(
    a: BenchmarkResult,
    b: BenchmarkResult,
    confidence: float = CONFIDENCE,
    names: tuple[str, str] = ("a", "b"),
) -> Speedups:
    """Return how much faster b is than a, for each measurement that has a partner.

    Partners have the same name and settings, or are the only measurement of their result, or the
    only one with their settings. They never have different engines. GraphError: no pair was found.

    Example:
        >>> before = deploykit.load_result("before.json")
        >>> found = deploykit.compare(before, deploykit.load_result("after.json"))
        >>> [(round(pair.ratio.value, 1), pair.judgement.kind) for pair in found.pairs]
        [(1.5, 'faster')]
    """
    only_a, only_b = ([m for m in item.measurements if not m.scenario] for item in (a, b))
    result = _matched(only_a, only_b, lambda element: (element.name, element.settings))
    if len(a.measurements) == len(b.measurements) == 1:
        result += _matched(only_a, only_b, lambda item: item.settings.engine)
    result += _matched(only_a, only_b, lambda entry: entry.settings)
    if not result:
        scenarios = [m for item in (a, b) for m in item.measurements if m.scenario]
        hint = "; those of a scenario of version 0.1 are not compared" * bool(scenarios)
        raise GraphError(
            "no-measurement-pairs",
            name=names[0],
            other=names[1],
            measurements=[item.name for item in only_a],
            other_measurements=[item.name for item in only_b],
            hint=hint + _engines_apart(only_a, only_b),
        )
    slower, busy = 1.0, ""
    if a.conditions is not None and b.conditions is not None:
        slower = b.conditions.reference_ms / a.conditions.reference_ms
        busy = a.conditions.busy or b.conditions.busy
    pairs = tuple(
        Speedup(x, y, compare_apart(x, y, slower=slower, confidence=confidence, busy=busy))
        for x, y in sorted(result, key=lambda pair: a.measurements.index(pair[0]))
    )
    left_a, left_b = (tuple(item.name for item in side) for side in (only_a, only_b))
    return Speedups(*names, confidence, pairs, left_a, left_b, tuple(_warnings(a, b, pairs)))


def _engines_apart(a: Sequence[Measurement], b: Sequence[Measurement]) -> str:
    """Return a hint on comparing engines if the results have no engine in common."""
    first, second = ({item.settings.engine for item in side} for side in (a, b))
    if not first or not second or first & second:
        return ""
    return "; to compare engines, measure them in one run (deploykit benchmark --engine " \
           "tensorflow,openvino)"  # fmt: skip


def different(a: BenchmarkResult, b: BenchmarkResult, names: Sequence[str]) -> list[str]:
    """Return the machine properties of this list that differ between two results, in words."""
    return [
        f"{name} {a.machine.get(name)} and {b.machine.get(name)}"
        for name in names
        if a.machine.get(name) != b.machine.get(name)
    ]


def _matched(
    only_a: list[Measurement],
    only_b: list[Measurement],
    key: Callable[[Measurement], Hashable],
) -> list[tuple[Measurement, Measurement]]:
    """Remove the items whose key is unique in both lists, and return them as pairs."""
    sides = []
    for side in (only_a, only_b):
        by_key: dict[Hashable, list[Measurement]] = {}
        for item in side:
            by_key.setdefault(key(item), []).append(item)
        sides.append({k: group[0] for k, group in by_key.items() if len(group) == 1})
    pairs = [(item, sides[1][k]) for k, item in sides[0].items() if k in sides[1]]
    for x, y in pairs:
        only_a.remove(x)
        only_b.remove(y)
    return pairs


def _warnings(a: BenchmarkResult, b: BenchmarkResult, pairs: Sequence[Speedup]) -> list[str]:
    """Return what else may explain a ratio, one sentence each."""
    results = [
        f"{measurement.name} was measured in a load scenario of version 0.1, which is not compared"
        for result in (a, b)
        for measurement in result.measurements
        if measurement.scenario
    ]
    if changes := different(a, b, MACHINE):
        results.append(f"the machines differ: {', '.join(changes)}")
    for result, side in ((a, "a"), (b, "b")):
        match result.machine:
            case {"load": [float(load), *_], "cpus": int(cpus)} if load > cpus:
                results.append(f"{side} was measured under load: average {load:g}, {cpus} CPUs")
    for pair in pairs:
        for fact, word in (("tensorflow", "TensorFlow"), ("inputs", "inputs")):
            values = [item.facts.get(fact) for item in (pair.a, pair.b)]
            if values[0] != values[1]:
                results.append(f"{pair.name}: {word} differ: {values[0]} and {values[1]}")
        if pair.a.settings != pair.b.settings:
            results.append(f"{pair.name}: settings differ: {pair.a.settings} and {pair.b.settings}")
        for entry, side in ((pair.a, "a"), (pair.b, "b")):
            if (verdict := summary(entry).verdict) != "stable":
                results.append(f"{pair.name}: {side} is {verdict}")
    return results


KEPT = 10
"""Number of results stored per machine; older ones are dropped."""


@dataclass(frozen=True)
class History:
    """A baseline file: its results, oldest first."""

    path: str
    documents: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "History":
        """Read a baseline file; a missing file is empty. FileError, GraphError: not a baseline."""
        name = os.fspath(path)
        if not os.path.lexists(name):
            return cls(name)
        value = load_document(name, "history").get("results")
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise GraphError("history-empty", source=name)
        return cls(name, tuple(value))

    def like(self, result: BenchmarkResult) -> BenchmarkResult | None:
        """Return the stored results of the same machine, joined into one, or None without any."""
        results = [result_of(document, self.path) for document in self.documents]
        same = [item for item in results if not different(item, result, MACHINE)]
        return _joined(same) if same else None

    def add(self, result: BenchmarkResult) -> None:
        """Add a result to the file and write it. FileError: the file cannot be written."""
        like = [document for document in self.documents
                if not different(result_of(document, self.path), result, MACHINE)]  # fmt: skip
        others = [document for document in self.documents if document not in like]
        results = [*others, *like[-KEPT + 1 :], result.document()]
        text = json.dumps({"kind": "history", "format": FORMAT, "results": results})
        write(self.path, [f"{text}\n".encode()], force=True)


def _joined(results: Sequence[BenchmarkResult]) -> BenchmarkResult:
    """Return results as one, with distinct process and session numbers for each."""
    by_key: dict[Any, Measurement] = {}
    for number, result in enumerate(results):
        for measurement in result.measurements:
            key = (measurement.name, measurement.settings, bool(measurement.scenario))
            moved = _moved(measurement, number)
            before = by_key.get(key)
            by_key[key] = moved if before is None else _longer(before, moved)
    conditions = [result.conditions for result in results if result.conditions is not None]
    last = None
    if len(conditions) == len(results):
        reference = statistics.median(condition.reference_ms for condition in conditions)
        last = replace(conditions[-1], reference_ms=reference)
    return replace(results[-1], measurements=tuple(by_key.values()), conditions=last)


def _moved(measurement: Measurement, number: int) -> Measurement:
    """Return a measurement with numbers (block, process, session) shifted by the result's index."""
    far = 1_000_000 * number
    turns = tuple(
        replace(turn, block=turn.block + far, process=turn.process + far,
                session=turn.session + far)
        for turn in measurement.turns
    )  # fmt: skip
    return replace(measurement, turns=turns)


def _longer(a: Measurement, b: Measurement) -> Measurement:
    turns = (*a.turns, *b.turns) if a.turns and b.turns else ()
    return replace(
        b,
        rounds_ms=(*a.rounds_ms, *b.rounds_ms),
        rounds_seconds=(*a.rounds_seconds, *b.rounds_seconds),
        turns=turns,
    )
