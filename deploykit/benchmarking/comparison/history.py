"""Results of earlier benchmarks in one file, which stand for what a machine usually gives."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.benchmarking.comparison.comparing import MACHINE, different
from deploykit.benchmarking.conditions import Conditions
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.results import BenchmarkResult, result_of
from deploykit.storage.documents import load_document
from deploykit.storage.files import write
from deploykit.transforms.core.display.documents import FORMAT
from deploykit.transforms.core.errors import GraphError

KEPT = 10
"""Results of each machine; older ones make place."""


@dataclass(frozen=True)
class History:
    """The file of a baseline: results, the oldest first."""

    path: str
    documents: tuple[dict[str, Any], ...] = ()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "History":
        """Read it; where there is no file, it is empty. FileError, GraphError: it is another."""
        name = os.fspath(path)
        if not os.path.lexists(name):
            return cls(name)
        found = load_document(name, "history").get("results")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise GraphError("history-empty", source=name)
        return cls(name, tuple(found))

    def like(self, result: BenchmarkResult) -> BenchmarkResult | None:
        """Return the results of the same machine as one, whose processes lie side by side.

        None: there is none.
        """
        found = [result_of(each, self.path) for each in self.documents]
        same = [each for each in found if not different(each, result, MACHINE)]
        return _joined(same) if same else None

    def add(self, result: BenchmarkResult) -> None:
        """Write the file with one more result. FileError: it cannot be written."""
        like = [each for each in self.documents
                if not different(result_of(each, self.path), result, MACHINE)]  # fmt: skip
        others = [each for each in self.documents if each not in like]
        results = [*others, *like[-KEPT + 1 :], result.document()]
        text = json.dumps({"kind": "history", "format": FORMAT, "results": results})
        write(self.path, [f"{text}\n".encode()], force=True)


def _joined(results: Sequence[BenchmarkResult]) -> BenchmarkResult:
    """Return results as one: the processes and sessions of each are others than of the rest."""
    by_key: dict[Any, Measurement] = {}
    for number, result in enumerate(results):
        for each in result.measurements:
            key = (each.name, each.settings)
            moved = _moved(each, number)
            before = by_key.get(key)
            by_key[key] = moved if before is None else _longer(before, moved)
    conditions = [each.conditions for each in results if each.conditions is not None]
    return replace(
        results[-1],
        measurements=tuple(by_key.values()),
        conditions=_usual(conditions) if len(conditions) == len(results) else None,
    )


def _moved(measurement: Measurement, number: int) -> Measurement:
    """Return a measurement of the result with this number, apart from those of all others."""
    far = 1_000_000 * number
    turns = tuple(
        replace(each, block=each.block + far, process=each.process + far,
                session=each.session + far)
        for each in measurement.turns
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


def _usual(conditions: Sequence[Conditions]) -> Conditions:
    """Return the conditions with the reference that was usual."""
    reference = statistics.median(each.reference_ms for each in conditions)
    return replace(conditions[-1], reference_ms=reference)
