"""Whether a graph is faster in 8 bits, and in which engine: all are measured in turn."""

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
from deploykit.benchmarking.worker_sessions import Contestant
from deploykit.quantization.search_task import DEPTHS, Depth
from deploykit.rendering.templates import listed
from deploykit.transforms.common.documents import Hidden, Written, document, written
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Data

INCONCLUSIVE = "inconclusive"
INT8, FEWER, PLAIN = "8 bits", "8 bits in fewer layers", "float"
WITHOUT_ONEDNN = "float with TF_ENABLE_ONEDNN_OPTS=0"
ON_ONEDNN_KERNELS = "float after use_onednn_kernels"


@dataclass(frozen=True)
class Entrants:
    """What is compared of an engine: the float graph in each way to run it, and 8-bit graphs."""

    graphs: Mapping[str, tuple[Graph, RunConfig]]
    """PLAIN and other ways to run the float graph; where there is one, the 8-bit graph as INT8; and
    where there is one, that with fewer layers as FEWER."""
    where: str = ""
    """What is added to their names, such as ` in OpenVINO`."""

    def full(self, name: str) -> str:
        """Return what one is called among those of all engines."""
        return f"{name}{self.where}"


@dataclass(frozen=True)
class Gain:
    """How fast the 8-bit graph is, beside the faster of two ways to run the float graph."""

    judgement: Hidden[SpeedVerdict]
    """Of the float graph beside the 8-bit graph."""
    rival: Annotated[str, Written("against")]
    """The faster float one: PLAIN, WITHOUT_ONEDNN or ON_ONEDNN_KERNELS."""
    name: Hidden[str] = INT8
    """The 8-bit graph that is meant: INT8, or FEWER where that is faster."""
    fewer: Hidden[SpeedVerdict | None] = None
    """Of INT8 beside FEWER, where there is one."""
    measured: Hidden[Sequence[Measurement]] = ()
    """Of these graphs."""

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
        """How often the 8-bit graph runs while the float graph runs once."""
        return self.judgement.wall

    @property
    def is_kept(self) -> bool:
        """Whether the int8 graph is kept: it is not significantly slower."""
        return self.judgement.kind != SLOWER

    @property
    def is_decided(self) -> bool:
        """Whether more time would not tell more that matters."""
        fewer = self.fewer
        return self.judgement.is_decided and (fewer is None or fewer.is_decided)

    def __str__(self) -> str:
        """Return it as one sentence, with what would make an inconclusive comparison conclusive."""
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
    """What was measured of an engine's graphs."""

    gain: Gain | None
    """None: none was in 8 bits."""
    measured: tuple[Measurement, ...]
    """By the names of `Entrants.graphs`."""
    confidence: float = CONFIDENCE
    busy: str = ""
    """What else the machine did."""

    @property
    def is_int8(self) -> bool:
        """Whether the int8 graph is kept."""
        return self.gain is not None and self.gain.is_kept

    @property
    def kept(self) -> list[Measurement]:
        """Those of the graph to be kept: the one in 8 bits, or each way to run the float one."""
        if self.gain is not None and self.is_int8:
            return [item for item in self.measured if item.name == self.gain.name]
        return [item for item in self.measured if item.name not in (INT8, FEWER)]

    def beside(self, other: "Standing") -> SpeedVerdict:
        """Return how fast what is kept is, beside what is kept of another engine.

        Of several ways to run either, the fastest counts.
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
    """Measure 8-bit graphs in turn with the float graph, in one engine or in several.

    Args:
        graph: the float graph.
        entrants: what is compared, engine by engine, for one batch.
        data: as in `benchmark`.
        depth: how thoroughly.
        advance: as in `benchmark`.

    Errors are those of `benchmark`. KeyboardInterrupt: it was interrupted.
    """
    result = measured_in_turn(
        graph,
        {entrant.full(name): one for entrant in entrants for name, one in entrant.graphs.items()},
        data=data,
        depth=depth,
        advance=advance,
        decided=lambda used: _are_decided(standings(entrants, used, LOOK_CONFIDENCE)),
    )
    busy = result.conditions.busy if result.conditions else ""
    value = standings(entrants, result.measurements, busy=busy)
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
    """Measure graphs in turn, on the inputs of one, in the batch of the first settings.

    Errors are those of `benchmark`. KeyboardInterrupt: it was interrupted.
    """
    batch = next(iter(named.values()))[1].batch
    feeds = batches(graph, batch, data=data)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        contestants = list[Contestant]()
        for name, (run, how) in named.items():
            path = Path(folder, f"{len(contestants)}.pb")
            sha256 = spill(run, path)
            job = Job(str(path), run.inputs, run.outputs, feeds, how)
            contestants.append(Contestant(name, name, sha256, job))
        result = measure(
            contestants,
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
    """Return what measurements tell of each engine's graphs."""
    by_name = {measurement.name: measurement for measurement in measurements}
    results = []
    for entrant in entrants:
        own = tuple(replace(by_name[entrant.full(name)], name=name) for name in entrant.graphs)
        of_it = gain(own, confidence, busy) if INT8 in entrant.graphs else None
        results.append(Standing(of_it, own, confidence, busy))
    return results


def _are_decided(result: Sequence[Standing]) -> bool:
    between = [result[-1].beside(item) for item in result[:-1]]
    return all(e.gain is None or e.gain.is_decided for e in result) and all(
        item.is_decided for item in between
    )


def gain(
    measurements: Sequence[Measurement], confidence: float = CONFIDENCE, busy: str = ""
) -> Gain:
    """Return what measurements of 8-bit and of float graphs tell, which were taken in turn.

    Times of single layers are uncertain: a graph with fewer int8 layers has to be significantly
    faster.
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
    """Return a note on the int8 layers for which float32 may be faster: nothing clear was measured.

    Args:
        gain: what was measured end to end.
        slow: layers that are faster in float by their times.
        unclear: layers that may be, as far as their times tell.
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
