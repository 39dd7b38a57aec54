"""Benchmarks int8 against float32 graphs in each engine, interleaved, and states the verdict."""

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.measurement import Job, Measurement
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.rounds import Advance, measure, spill, together
from deploykit.benchmarking.run_config import CONFIDENCE, RunConfig
from deploykit.benchmarking.speed_verdict import (
    ALIKE,
    FASTER,
    LOOK_CONFIDENCE,
    SLOWER,
    SpeedVerdict,
    judge,
)
from deploykit.benchmarking.statistics import Ratio, summary
from deploykit.benchmarking.worker_sessions import BenchmarkCandidate
from deploykit.quantization.search_task import DEPTHS, Depth
from deploykit.rendering.templates import listed
from deploykit.transforms.common.documents import Hidden, Written, document, written
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Data

INCONCLUSIVE = "inconclusive"
INT8, FEWER, PLAIN = "int8", "int8 in fewer layers", "float"
WITHOUT_ONEDNN = "float with TF_ENABLE_ONEDNN_OPTS=0"
ON_ONEDNN_KERNELS = "float after use_onednn_kernels"


@dataclass(frozen=True)
class Entrants:
    """Candidates of one engine: the float32 graph in several configurations, and int8 graphs."""

    graphs: Mapping[str, tuple[Graph, RunConfig]]
    """Candidates by name: PLAIN and other configurations of the float32 graph; INT8, the int8
    graph, and FEWER, the one with fewer int8 layers, if they exist."""
    where: str = ""
    """A suffix to the names, such as ` in OpenVINO`."""

    def full(self, name: str) -> str:
        """Return the name of a candidate among those of all engines."""
        return f"{name}{self.where}"


@dataclass(frozen=True)
class Gain:
    """Speed of the int8 graph against the fastest configuration of the float32 graph."""

    judgement: Hidden[SpeedVerdict]
    """Verdict on the int8 graph against the float32 graph."""
    rival: Annotated[str, Written("against")]
    """The fastest float32 candidate: PLAIN, WITHOUT_ONEDNN or ON_ONEDNN_KERNELS."""
    name: Hidden[str] = INT8
    """The int8 graph: INT8, or FEWER if that is significantly faster."""
    fewer: Hidden[SpeedVerdict | None] = None
    """Verdict on FEWER against INT8; None: there is only INT8."""
    measured: Hidden[Sequence[Measurement]] = ()
    """Measurements of these graphs."""

    @property
    @written(flat=True)
    def _figures(self) -> dict[str, Any]:
        verdict, ratio = document(self.judgement), document(self.judgement.wall)
        del verdict["ratio"]
        results = {"times_as_fast": ratio["value"], "low": ratio["low"], "high": ratio["high"]}
        for end, name in (("", self.name), ("_against", self.rival)):
            first = next((item for item in self.measured if item.name == name), None)
            results[f"cpu_ms{end}"] = first and first.cpu_ms
            results[f"core_seconds_per_1000{end}"] = first and summary(first).core_seconds_per_1000
        return {**results, **verdict}

    @property
    def ratio(self) -> Ratio:
        """Speedup of the int8 graph over the float32 graph, by the wall clock."""
        return self.judgement.wall

    @property
    def is_kept(self) -> bool:
        """Whether the int8 graph is kept: it is not significantly slower."""
        return self.judgement.kind != SLOWER

    @property
    def is_decided(self) -> bool:
        """Whether the comparison is conclusive, so that it may stop."""
        fewer = self.fewer
        return self.judgement.is_decided and (fewer is None or fewer.is_decided)

    def __str__(self) -> str:
        """Return the verdict as a sentence, with advice if the comparison is inconclusive."""
        result, rival = self.judgement, f"float32{self.rival.removeprefix(PLAIN)}"
        mark = f", {result.busy}" if result.busy else ""
        if result.kind == FASTER:
            return f"int8 is {self.ratio.in_words()} as fast as {rival}{mark}"
        if result.kind == SLOWER and (result.cpu is None or self.ratio.high < 1):
            return f"int8 is significantly slower than {rival}: {self.ratio.in_words()}{mark}"
        if result.kind == SLOWER:
            assert result.cpu is not None
            return (
                f"int8 takes significantly more CPU time than {rival}: {result.cpu.in_words()}; by "
                f"the wall clock {self.ratio.in_words()}{mark}"
            )
        if result.kind == ALIKE:
            return f"int8 is as fast as {rival}: {self.ratio.in_words()}{mark}"
        return (
            f"{INCONCLUSIVE}: int8 is {self.ratio.in_words()} as fast as {rival}"
            f"{mark or ', high variance'}, so int8 is kept; a larger --budget or an idle machine "
            "would decide it"
        )


@dataclass(frozen=True)
class Standing:
    """The measurements of an engine's candidates."""

    gain: Gain | None
    """Speed of the int8 graph; None: no int8 graph was measured."""
    measured: tuple[Measurement, ...]
    """Measurements with the names of `Entrants.graphs`."""
    confidence: float = CONFIDENCE
    busy: str = ""
    """A note if the machine was loaded by other processes."""

    @property
    def is_int8(self) -> bool:
        """Whether the int8 graph is kept."""
        return self.gain is not None and self.gain.is_kept

    @property
    def kept(self) -> list[Measurement]:
        """The measurements of the kept graph: the int8 graph, or all of the float32 graph."""
        if self.gain is not None and self.is_int8:
            return [item for item in self.measured if item.name == self.gain.name]
        return [item for item in self.measured if item.name not in (INT8, FEWER)]

    def beside(self, other: "Standing") -> SpeedVerdict:
        """Compare the speed of the kept graph with the kept graph of another engine.

        Of several configurations of either, the fastest counts.
        """
        beside = [
            max(
                (
                    judge(theirs, own, confidence=self.confidence, busy=self.busy)
                    for own in self.kept
                ),
                key=lambda result: result.wall.value,
            )
            for theirs in other.kept
        ]
        return min(beside, key=lambda verdict: verdict.wall.value)


def faster(
    graph: Graph,
    entrants: Sequence[Entrants],
    *,
    data: Data | None = None,
    depth: Depth = DEPTHS[0],
    advance: Advance = lambda name, count: None,
) -> list[Standing]:
    """Benchmark int8 graphs and the float32 graph, interleaved, in one or several engines.

    Args:
        graph: the float32 graph.
        entrants: the candidates of each engine, for one batch size.
        data: as in `benchmark`.
        depth: the measurement time per graph.
        advance: as in `benchmark`.

    Errors are those of `benchmark`. KeyboardInterrupt: it was interrupted.
    """

    def decided(used: Sequence[Measurement]) -> bool:
        *others, last = standings(entrants, used, LOOK_CONFIDENCE)
        gains = [item.gain for item in (*others, last) if item.gain is not None]
        verdicts = [last.beside(item) for item in others]
        return all(e.is_decided for e in gains) and all(item.is_decided for item in verdicts)

    result = measured_in_turn(
        graph,
        {entrant.full(name): one for entrant in entrants for name, one in entrant.graphs.items()},
        data=data,
        depth=depth,
        advance=advance,
        decided=decided,
    )
    value = standings(entrants, result.measurements, busy=result.busy)
    return [replace(e, gain=e.gain and replace(e.gain, measured=e.measured)) for e in value]


def measured_in_turn(
    graph: Graph,
    named: Mapping[str, tuple[Graph, RunConfig]],
    *,
    data: Data | None,
    depth: Depth,
    advance: Advance,
    decided: Callable[[Sequence[Measurement]], bool],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> BenchmarkResult:
    """Benchmark graphs interleaved, on inputs of `graph`, in the batch of the first settings.

    Errors are those of `benchmark`. KeyboardInterrupt: it was interrupted.
    """
    batch = next(iter(named.values()))[1].batch
    feeds = batches(graph, batch, data=data)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        candidates = list[BenchmarkCandidate]()
        for name, (run, how) in named.items():
            path = Path(folder, f"{len(candidates)}.pb")
            sha256 = spill(run, path)
            job = Job(str(path), run.inputs, run.outputs, feeds, how)
            candidates.append(BenchmarkCandidate(name, name, sha256, job))
        result = measure(
            candidates,
            seconds=depth.seconds,
            warm_up=depth.warm_up,
            advance=advance,
            undecided=together(decided),
        )
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def standings(
    entrants: Sequence[Entrants],
    measurements: Sequence[Measurement],
    confidence: float = CONFIDENCE,
    busy: str = "",
) -> list[Standing]:
    """Return the standing of each engine, computed from the measurements of all."""
    by_name = {measurement.name: measurement for measurement in measurements}
    results = []
    for entrant in entrants:
        own = tuple(replace(by_name[entrant.full(name)], name=name) for name in entrant.graphs)
        of_it = gain(own, confidence, busy) if INT8 in entrant.graphs else None
        results.append(Standing(of_it, own, confidence, busy))
    return results


def gain(
    measurements: Sequence[Measurement], confidence: float = CONFIDENCE, busy: str = ""
) -> Gain:
    """Compare interleaved measurements of int8 and float32 graphs.

    FEWER must be significantly faster than INT8, because times of single layers are uncertain.
    """
    rivals = {measurement.name: measurement for measurement in measurements}
    own, fewer, name = rivals.pop(INT8), rivals.pop(FEWER, None), INT8
    beside = None if fewer is None else judge(own, fewer, confidence=confidence, busy=busy)
    if fewer is not None and beside is not None and beside.kind == FASTER:
        own, name = fewer, FEWER
    results = {
        rival: judge(item, own, confidence=confidence, busy=busy) for rival, item in rivals.items()
    }
    rival = min(results, key=lambda item: results[item].wall.value)
    return Gain(results[rival], rival, name, beside)


def undecided(gain: Gain, slow: Collection[str], unclear: Collection[str]) -> list[str]:
    """Return notes on int8 layers that may be faster in float32, if measurements are inconclusive.

    Args:
        gain: the end-to-end comparison.
        slow: layers that are faster in float32 by their own times.
        unclear: layers that may be faster in float32, but not significantly.
    """
    result, fewer = list[str](), gain.fewer

    def say(layers: Collection[str], why: str) -> None:
        result.append(
            f"{listed(sorted(layers), 3)} in float32: {INCONCLUSIVE}, {why}; kept in int8; a "
            "larger --budget or an idle machine would decide it"
        )

    if slow and fewer is None:
        say(slow, "no time to compare")
    elif slow and fewer is not None and not fewer.is_decided:
        say(slow, f"{fewer.wall.in_words()} as fast{f', {fewer.busy}' if fewer.busy else ''}")
    if unclear:
        say(unclear, "faster by its median times, but not significantly")
    return result
