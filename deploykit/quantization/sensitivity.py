"""Measures the noise of each layer, as the SQNR of the graph in which only this layer is int8."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.scoring import Judgement
from deploykit.rendering.progress import Work, unseen
from deploykit.transforms.common.documents import AsHtml, Hidden, OrNull, Written, document, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import Ranges, TensorRange, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Data, Dataset, samples_in

STEPS = ("calibrate", "rank")
JUDGED = 16  # samples to measure each layer with; more hardly change the order


@dataclass(frozen=True)
class Noise:
    """The noise in the outputs when only this layer is int8."""

    layer: str
    op: str
    sqnr_db: Annotated[float, Written(digits=3)]
    """SQNR of the outputs in dB; -inf: the engine cannot run the graph."""
    fault: OrNull[str] = ""
    """Why the engine cannot run the graph."""


def _sample_counts(samples: tuple[int, int]) -> dict[str, int]:
    return {"calibration": samples[0], "held_out": samples[1]}


@dataclass(frozen=True)
class Sensitivity(AsHtml):
    """The layers of a model ranked by noise, and those that cannot run in int8."""

    ranking: Hidden[tuple[Noise, ...]]
    together: Judgement | None
    """Comparison with all layers in int8; None: that graph cannot run."""
    reasons: Annotated[Mapping[str, str], Written("float")]
    """Why each other layer is kept in float32."""
    ranges: Hidden[Mapping[str, TensorRange]]
    """Output range of each layer, after bias and activation."""
    samples: Annotated[tuple[int, int], Written(by=_sample_counts)]
    """Number of calibration samples and of held-out samples."""
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """The model that was measured."""
    nodes: Hidden[int | None] = None
    """Number of nodes of the optimized graph."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""

    @property
    @written()
    def layers(self) -> list[dict[str, Any]]:
        """The layers, noisiest first, each with its output range."""
        results = []
        for noise in self.ranking:
            range_ = self.ranges.get(noise.layer)
            ends = {"min": range_ and range_.min, "max": range_ and range_.max}
            results.append(document(noise) | ends)
        return results


def measure_sensitivity(
    graph: Graph,
    data: Data,
    *,
    ranges: str | None = None,
    isa: str = "auto",
    work: Work | None = None,
) -> Sensitivity:
    """Shift and calibrate an optimized graph, unless `ranges` is given, and rank its layers.

    `ranges` is the path of a ranges file. GraphError: the data do not fit; or as in `calibrate` and
    `Evaluator`.
    """
    samples = Dataset.of(graph, data)
    with samples.named():
        calibrating, held_out, note, _ = samples.split()
        feeds, judged = calibrating.feeds(), held_out.spread(JUDGED).feeds()
    notes = [note] if note else []
    work = work or unseen("sensitivity", *STEPS)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        reference = graph
        if ranges is None:
            ranges = str(Path(folder, "ranges.json"))
            graph, result = prepare(graph, feeds, ranges, advance=work.begin("calibrate"))
            notes += result
        known = load_ranges(ranges)
        planned = plan(graph, known)
        ranking, together = list[Noise](), None
        if planned.chains:
            with Evaluator(reference, judged) as judge:
                try:
                    together = judge.judge(int8_graph(graph, ranges, isa))
                except GraphError as error:
                    notes.append(f"the graph with all layers in int8 cannot run: {error}")
                layers = planned.chains.keys()
                ranking = rank_alone(
                    {layer: graph[layer].op for layer in layers},
                    lambda layer: int8_graph(graph, ranges, isa, layers - {layer}),
                    judge.judge,
                    advance=work.begin("rank"),
                )
    return Sensitivity(
        tuple(ranking),
        together,
        planned.reasons,
        _of_results(planned, known),
        (known.samples, samples_in(judged)),
        tuple(notes),
    )


def _of_results(planned: Plan, ranges: Ranges) -> dict[str, TensorRange]:
    """Return the output range of each layer, after bias and activation."""
    last = {layer: chain.nodes[-1].name for layer, chain in planned.chains.items()}
    return {layer: ranges.tensors[name] for layer, name in last.items() if name in ranges.tensors}


def rank_alone(
    parts: Mapping[str, str],
    alone: Callable[[str], Graph],
    judge: Callable[[Graph], Judgement],
    *,
    known: Mapping[str, Noise] | None = None,
    on_result: Callable[[Noise], object] = lambda result: None,
    advance: Callable[[str, int], None] = lambda name, count: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[Noise]:
    """Measure the noise of each layer or constant alone in int8; return them noisiest first.

    Args:
        parts: the ops by name, in execution order.
        alone: returns the graph in which only this part is int8.
        judge: a method of an Evaluator with the float32 graph and held-out samples.
        known: results of an earlier run, by part.
        on_result: called with each new result.
        advance: called before each part with its name and the number of parts.
        out_of_time: called before each part not in `known`; if it returns true, the rest are
            skipped.

    A part whose graph the engine cannot run comes first.
    """
    results = dict[str, Noise]()
    for part, op in parts.items():
        advance(part, len(parts))
        if known is not None and part in known:
            results[part] = known[part]
            continue
        if out_of_time():
            break
        try:
            results[part] = Noise(part, op, judge(alone(part)).sqnr_db)
        except GraphError as error:
            results[part] = Noise(part, op, float("-inf"), str(error))
        on_result(results[part])
    return sorted(results.values(), key=lambda noise: noise.sqnr_db)
