"""What computes in 8 bits because it is faster so, and whether the whole graph is."""

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.comparison.speed_verdict import (
    DECIDED,
    FASTER,
    LOOK_CONFIDENCE,
    UNDECIDED,
    SpeedVerdict,
    judge,
)
from deploykit.benchmarking.inputs import batches
from deploykit.benchmarking.job import Job
from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.measuring import Advance, measure, spill
from deploykit.benchmarking.results import BenchmarkResult
from deploykit.benchmarking.seating import Contestant
from deploykit.benchmarking.settings import CONFIDENCE, Settings
from deploykit.benchmarking.statistics import Ratio, summary
from deploykit.quantization.budget import DEPTHS, Depth
from deploykit.quantization.timing.layer_times import LayerTimes, Times, with_onednn_kernels
from deploykit.quantization.timing.min_cut import FLOAT, NEVER, Border, Costs, Part
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.plan import Plan
from deploykit.verification.samples import Data

INT8, FEWER, PLAIN = "8 bits", "8 bits in fewer layers", "float"
WITHOUT_ONEDNN = "float with TF_ENABLE_ONEDNN_OPTS=0"
ON_ONEDNN_KERNELS = "float after use_onednn_kernels"
CLEAR = 1.05
"""So many times as long counts what would be new, so that no layer changes for next to nothing."""


@dataclass(frozen=True)
class Int8Choice:
    """Which layers are to compute in 8 bits, and what all planned parts would take then."""

    int8: frozenset[str]
    stay_float: frozenset[str]
    """Layers that could be in 8 bits, but are not to be."""
    undecided: frozenset[str]
    """Layers in 8 bits that may be faster in float, as far as their times tell."""
    ns: int
    """In the median, like all times here."""
    float_ns: int
    """If none were in 8 bits."""
    int8_ns: int
    """If all layers were that may be."""


@dataclass(frozen=True)
class Gain:
    """How fast the 8-bit graph is, beside the faster of two ways to run the float graph."""

    judgement: SpeedVerdict
    """Of the float graph beside the 8-bit graph."""
    rival: str
    """The faster float one: PLAIN, WITHOUT_ONEDNN or ON_ONEDNN_KERNELS."""
    name: str = INT8
    """The 8-bit graph that is meant: INT8, or FEWER where that is faster."""
    fewer: SpeedVerdict | None = None
    """Of INT8 beside FEWER, where there is one."""
    result: BenchmarkResult | None = None

    @property
    def ratio(self) -> Ratio:
        """How often the 8-bit graph runs while the float graph runs once."""
        return self.judgement.wall

    @property
    def is_kept(self) -> bool:
        """Whether the 8-bit graph is worth keeping: it is faster for sure, or else less work."""
        return self.judgement.kind == FASTER or self.is_less_work

    @property
    def is_less_work(self) -> bool:
        """Whether it is less CPU time for sure, where the wall clock is unsure, though for it too.

        So it is where others are busy: they make the wall clock scatter, and hardly the CPU time.
        """
        found, cpu = self.judgement, self.judgement.cpu
        is_less = cpu is not None and cpu.low > 1
        return found.kind == UNDECIDED and is_less and self.ratio.value > 1

    @property
    def is_decided(self) -> bool:
        """Whether more time would not tell more that matters."""
        fewer = self.fewer
        return self.judgement.is_decided and (fewer is None or fewer.is_decided)

    def __str__(self) -> str:
        """Return it as one sentence, and what would decide it where it is not."""
        found, kept = self.judgement, f"so the {'8-bit' if self.is_kept else 'float'} graph is kept"
        if found.significant:
            low, high = self.ratio.low, self.ratio.high
            between = f"{self.ratio.value:.2f} times ({low:.2f} to {high:.2f})"
            return f"8 bits run {between} as fast as {self.rival}, {kept}"
        if self.is_less_work:
            kept += " as less work"
        if not found.is_decided:
            kept += "; more minutes (--budget) or a quieter machine would decide it"
        return f"8 bits beside {self.rival}: {found.verdict}, {kept}"

    def document(self) -> dict[str, Any]:
        """Return it as plain data."""
        found = self.judgement.document()
        ratio = found.pop("ratio")
        every = self.result.measurements if self.result else ()
        cpu = {each.name: each.cpu_ms for each in every}
        cost = {each.name: summary(each).core_seconds_per_1000 for each in every}
        return {
            "times_as_fast": ratio["value"],
            "low": ratio["low"],
            "high": ratio["high"],
            "against": self.rival,
            "cpu_ms": cpu.get(self.name),
            "cpu_ms_against": cpu.get(self.rival),
            "core_seconds_per_1000": cost.get(self.name),
            "core_seconds_per_1000_against": cost.get(self.rival),
            **found,
        }


def choose(
    graph: Graph, plan: Plan, times: LayerTimes, stay_float: Collection[str] = ()
) -> Int8Choice:
    """Return the layers that compute in 8 bits: all that may, but for those faster in float.

    Load adds to times, to those of one layer more than to those of another. So 8 bits count at
    their least, and what would take their place at its median and a little more: a layer is float
    only where even that is less, and by more in all than can be neglected. Where it is less by the
    medians alone, the layer is in 8 bits, and undecided.

    `stay_float`: layers that must be float, as accuracy has it.
    """
    usual, least = (_costs(graph, plan, each) for each in (times.usual, times.least))
    layers = plan.chains.keys()
    most = least.cheapest(stay_float, layers - set(stay_float))
    found, likely = (
        each.cheaper(most, stay_float, by=DECIDED)
        for each in (least.with_other_rest(usual, most, CLEAR), usual)
    )
    return Int8Choice(
        int8=found & layers,
        stay_float=frozenset(layers - found),
        undecided=(found - likely) & layers,
        ns=usual.total(found),
        float_ns=usual.total(()),
        int8_ns=usual.total(most),
    )


def _costs(graph: Graph, plan: Plan, times: Times) -> Costs:
    parts = {name: Part(times.float_ns(name), each.int8) for name, each in times.parts.items()}
    return Costs(parts, list(borders(graph, plan, times)))


def borders(graph: Graph, plan: Plan, times: Times) -> Iterator[Border]:
    """Yield the tensors that parts of a plan read in 8 bits or make in 8 bits."""
    producers = {chain.nodes[-1].name: layer for layer, chain in plan.chains.items()}
    producers |= {name: name for name in plan.passing}
    readers: dict[str, dict[str, str]] = {tensor: {} for tensor in plan.forms}
    for layer, chain in plan.chains.items():  # which part reads a tensor, and by which node
        readers.setdefault(graph[layer].data_inputs[0], {})[layer] = layer
        if chain.summand:
            for node in chain.nodes:
                if chain.summand in node.inputs:
                    readers.setdefault(chain.summand, {})[node.name] = layer
    for name in plan.passing:
        for tensor in graph[name].data_inputs:
            if tensor in plan.forms:
                readers[tensor][name] = name
    for tensor, by_node in readers.items():
        producer = producers.get(tensor, FLOAT) if tensor in plan.forms else FLOAT
        found = set(by_node.values())
        name = graph.producer(tensor).name
        if graph.is_output(name) or {node.name for node in graph.readers(name)} - by_node.keys():
            found.add(FLOAT)
        quantize, dequantize = times.quantize_ns(tensor), times.dequantize_ns(tensor)
        yield Border(producer, tuple(sorted(found)), quantize, dequantize)
        passing = tuple(sorted(found & plan.passing))
        if passing:  # these ops are in 8 bits only where what they read is
            yield Border(producer, passing, NEVER, 0)


def faster(
    graph: Graph,
    int8: Mapping[str, Graph],
    onednn_is_on: bool,
    settings: Settings,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    data: Data | None = None,
    depth: Depth = DEPTHS[0],
    advance: Advance = lambda name, count: None,
) -> Gain:
    """Measure 8-bit graphs in turn with the float graph, which is run with and without oneDNN.

    Args:
        graph: the float graph.
        int8: the 8-bit graph as INT8, and where there is one, that with fewer layers as FEWER.
        onednn_is_on: whether TensorFlow runs plain ops on oneDNN with these settings, as
            `layer_times` tells.
        settings: as in `layer_times`.
        shapes: as in `benchmark`.
        data: as in `benchmark`.
        depth: how thoroughly.
        advance: as in `benchmark`.

    Errors are those of `benchmark`. KeyboardInterrupt: it was interrupted.
    """
    graphs = {name: (each, settings) for name, each in ({PLAIN: graph} | dict(int8)).items()}
    if onednn_is_on:
        graphs[WITHOUT_ONEDNN] = graph, replace(settings, onednn=False)
    else:
        graphs[ON_ONEDNN_KERNELS] = with_onednn_kernels(graph), settings
    feeds = batches(graph, settings.batch, shapes or {}, data)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        contestants = []
        for number, (name, (each, how)) in enumerate(graphs.items()):
            path = Path(folder, f"{number}.pb")
            sha256 = spill(each, path)
            job = Job(str(path), each.inputs, each.outputs, feeds, how)
            contestants.append(Contestant(name, name, sha256, job))
        result = measure(
            contestants,
            seconds=depth.seconds,
            warm_up=depth.warm_up,
            advance=advance,
            decided=lambda found: gain(found, LOOK_CONFIDENCE).is_decided,
        )
    if result.interrupted:
        raise KeyboardInterrupt
    busy = result.conditions.busy if result.conditions else ""
    return replace(gain(result.measurements, busy=busy), result=result)


def gain(
    measurements: Sequence[Measurement], confidence: float = CONFIDENCE, busy: str = ""
) -> Gain:
    """Return what measurements of 8-bit and of float graphs tell, which were taken in turn.

    Times of single layers are uncertain, so fewer of them in 8 bits have to be faster for sure.
    """
    rivals = {each.name: each for each in measurements}
    own, fewer, name = rivals.pop(INT8), rivals.pop(FEWER, None), INT8
    beside = None if fewer is None else judge(own, fewer, confidence=confidence, busy=busy)
    if fewer is not None and beside is not None and beside.kind == FASTER:
        own, name = fewer, FEWER
    found = {
        rival: judge(each, own, confidence=confidence, busy=busy) for rival, each in rivals.items()
    }
    rival = min(found, key=lambda each: found[each].wall.value)
    return Gain(found[rival], rival, name, beside)


def undecided(gain: Gain, slow: Collection[str], unclear: Collection[str]) -> list[str]:
    """Say of which layers it is open whether they are faster in float than in 8 bits, as they are.

    Args:
        gain: what was measured end to end.
        slow: layers that are faster in float by their times.
        unclear: layers that may be, as far as their times tell.
    """
    found, fewer = [], gain.fewer
    decide = "so in 8 bits; more minutes (--budget) or a quieter machine would decide it"
    if slow and fewer is None:
        found.append(
            f"{_named(slow)} in float: {UNDECIDED}: there was no time to compare, {decide}"
        )
    elif slow and fewer is not None and not fewer.is_decided:
        found.append(f"{_named(slow)} in float: {fewer.verdict}, {decide}")
    if unclear:
        why = "faster by the medians of its times, but not beyond doubt"
        found.append(f"{_named(unclear)} in float: {UNDECIDED}: {why}, {decide}")
    return found


def _named(layers: Collection[str]) -> str:
    """Return some names, and how many more there are."""
    first = sorted(layers)[:3]
    more = len(layers) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")
