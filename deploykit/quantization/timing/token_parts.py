"""Splits the tokens of an encoder into two parallel parts if a benchmark shows a speedup."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.benchmarking.measurement import Measurement
from deploykit.benchmarking.rounds import Advance
from deploykit.benchmarking.run_config import CONFIDENCE, RunConfig
from deploykit.benchmarking.speed_verdict import FASTER, LOOK_CONFIDENCE, SpeedVerdict, judge
from deploykit.pipelines.transform import run_steps
from deploykit.quantization.search_task import Budget
from deploykit.quantization.timing.speed import measured_in_turn
from deploykit.system.machine import usable_cores
from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.split_tokens import PRODUCTS
from deploykit.verification.samples import BATCH, Dataset
from deploykit.verification.verify import verify

WHOLE, PARTS = "tokens as a whole", "tokens in two parts"
_PRODUCTS = PRODUCTS | {"BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"}
_COMPARED = BATCH + 1
"""Samples to compare both graphs on: one batch, which shows mixed-up samples, and one more."""

Named = Mapping[str, tuple[Graph, RunConfig]]


@dataclass(frozen=True)
class TokenParts:
    """A graph that runs most of its matrix products separately for two parts of the tokens."""

    graph: Graph
    tensor: str
    """The input whose tokens are split."""


def in_parts(graph: Graph) -> TokenParts | None:
    """Return the graph split at the best input; None: no split covers most matrix products."""
    best, most = None, _products(graph) / 2
    for tensor in graph.inputs:
        with contextlib.suppress(Error):  # not of shape [batch, tokens, ...]
            result = run_steps(graph, f'split_tokens(tensor="{tensor}")')[0]
            if (more := _products(result) - _products(graph)) > most:
                best, most = TokenParts(result, tensor), more
    return best


def _products(graph: Graph) -> int:
    return sum(node.op in _PRODUCTS for node in graph)


def ways(whole: Graph, parts: Graph, settings: RunConfig) -> dict[str, tuple[Graph, RunConfig]]:
    """Return the configurations of both graphs to measure; empty: two parts cannot run in parallel.

    If the settings have no threads, TensorFlow's defaults and the likely fastest numbers are tried.
    """
    cores = usable_cores()
    if settings.threads is not None:
        tried = [settings] if min(settings.threads[1], cores) > 1 else []
        alone = list[RunConfig]()
    else:
        tried = [settings, replace(settings, threads=(1, cores))] if cores > 1 else []
        alone = [replace(settings, threads=(1, 1), executor="caller")] if tried else []
    results = {f"{WHOLE}, {how}": (whole, how) for how in (*tried, *alone)}
    return results | {f"{PARTS}, {how}": (parts, how) for how in tried}


def later(graph: Graph, settings: RunConfig) -> int:
    """Return the number of processes `choose_parts` will start for the int8 form of a graph."""
    result = in_parts(graph)
    named = {} if result is None else ways(graph, result.graph, settings)
    return len({how for _, how in named.values()})  # graphs with the same settings share one


@dataclass(frozen=True)
class PartsVerdict:
    """Speed of the split graph against the unsplit one, each in its fastest configuration."""

    beside: SpeedVerdict
    """The least favorable verdict on the fastest split configuration against unsplit ones."""
    settings: RunConfig
    """The fastest settings of the split graph."""
    is_slower_as_requested: bool
    """Whether the split graph is slower by the wall clock with the requested settings."""

    @property
    def is_kept(self) -> bool:
        """Whether the split graph is significantly faster, and not slower as requested."""
        return self.beside.kind == FASTER and not self.is_slower_as_requested

    def said(self, tensor: str) -> str:
        """Return the choice and its reason as a sentence."""
        if self.is_kept:
            threads = "x".join(map(str, self.settings.threads or ()))
            how = f" with threads {threads}" if threads else ""
            return (
                f"the tokens of {tensor} are computed in two parts at once, as that is{how} "
                f"{self.beside.verdict}"
            )
        why = self.beside.verdict
        if self.beside.kind == FASTER:
            why += ", but slower with TensorFlow's own threads"
        return f"the tokens of {tensor} are not computed in two parts, as that is {why}"


def judged(
    named: Named, measured: Sequence[Measurement], confidence: float = CONFIDENCE, busy: str = ""
) -> PartsVerdict:
    """Return the verdict on measurements of `ways`; the first unsplit one is the requested one."""
    by_name = {item.name: item for item in measured}
    wholes, parts = (
        [by_name[name] for name in named if name.startswith(kind)] for kind in (WHOLE, PARTS)
    )

    def beside(part: Measurement) -> SpeedVerdict:
        result = (judge(whole, part, confidence=confidence, busy=busy) for whole in wholes)
        return min(result, key=lambda item: item.wall.low)

    best = max(parts, key=lambda entry: beside(entry).wall.value)
    as_asked = judge(wholes[0], parts[0], confidence=confidence, busy=busy)
    return PartsVerdict(beside(best), best.settings, as_asked.wall.high < 1)


def choose_parts(
    graph: Graph,
    settings: RunConfig,
    *,
    data: Dataset,
    budget: Budget,
    advance: Advance = lambda name, count: None,
) -> tuple[Graph, str]:
    """Return a graph with its tokens in two parts if that is significantly faster, else unchanged.

    The second value states the choice and why; empty: no choice. The outputs of both graphs are
    compared first, on one sample and on several. Errors are those of `benchmark`.
    """
    named = dict[str, tuple[Graph, RunConfig]]()
    if (value := in_parts(graph)) is not None:
        named = ways(graph, value.graph, settings)
    if value is None or not named:
        return graph, ""
    budget.later, starts = 0, len({how for _, how in named.values()})
    if not budget.has_time_to_compare(starts):
        return graph, (
            f"whether the tokens of {value.tensor} are computed faster in two parts was not "
            "measured: a larger --budget measures it"
        )
    compared = verify(graph, value.graph, data=data.spread(_COMPARED))
    if not compared.passed:
        why = compared.reason or "the outputs differ"
        return graph, f"the tokens of {value.tensor} are not computed in two parts: {why}"
    result = measured_in_turn(
        graph,
        named,
        data=data,
        depth=budget.comparing(starts),
        advance=advance,
        decided=lambda used: judged(named, used, LOOK_CONFIDENCE).beside.is_decided,
    )
    busy = result.conditions.busy if result.conditions else ""
    verdict = judged(named, result.measurements, busy=busy)
    return value.graph if verdict.is_kept else graph, verdict.said(value.tensor)
