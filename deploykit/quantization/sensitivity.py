"""How much noise each layer brings: the graph in which it alone computes in 8 bits is judged."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.accuracy import Judge
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
JUDGED = 16  # samples by which each layer is judged: more hardly change the order


@dataclass(frozen=True)
class Noise:
    """What a layer does to the answers when it alone is in 8 bits."""

    layer: str
    op: str
    sqnr_db: Annotated[float, Written(digits=3)]
    """-inf where TensorFlow cannot run it."""
    fault: OrNull[str] = ""
    """Why it cannot."""


def _sample_counts(samples: tuple[int, int]) -> dict[str, int]:
    return {"calibration": samples[0], "held_out": samples[1]}


@dataclass(frozen=True)
class Sensitivity(AsHtml):
    """The layers of a model by their noise, and those that cannot be in 8 bits."""

    ranking: Hidden[tuple[Noise, ...]]
    together: Judgement | None
    """All of them in 8 bits; None where that cannot be run."""
    reasons: Annotated[Mapping[str, str], Written("float")]
    """By layer that stays float: why."""
    ranges: Hidden[Mapping[str, TensorRange]]
    """By layer: of what its kernel gives."""
    samples: Annotated[tuple[int, int], Written(by=_sample_counts)]
    """To calibrate, and to judge by."""
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """What was looked at, and how many nodes it has once it is optimized."""
    nodes: Hidden[int | None] = None
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """What became of files on the way to each input, in words."""

    @property
    @written()
    def layers(self) -> list[dict[str, Any]]:
        """The layers by their noise, each with the range of what its kernel gives."""
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
    """Shift and calibrate an optimized graph, unless a file holds its ranges, and rank its layers.

    GraphError: the data do not fit; or as in `calibrate` and `Judge`.
    """
    samples = Dataset.of(graph, data)  # noise shows in every answer
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
            with Judge(reference, judged) as judge:
                try:
                    together = judge.judge(int8_graph(graph, ranges, isa))
                except GraphError as error:
                    notes.append(f"all layers together in 8 bits cannot be judged: {error}")
                layers = planned.chains.keys()
                ranking = rank_each(
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
    """Return the range of what each layer's kernel gives, with bias and activation."""
    last = {layer: chain.nodes[-1].name for layer, chain in planned.chains.items()}
    return {layer: ranges.tensors[name] for layer, name in last.items() if name in ranges.tensors}


def rank_each(
    parts: Mapping[str, str],
    alone: Callable[[str], Graph],
    judge: Callable[[Graph], Judgement],
    *,
    known: Mapping[str, Noise] | None = None,
    on_result: Callable[[Noise], object] = lambda result: None,
    advance: Callable[[str, int], None] = lambda name, count: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[Noise]:
    """Return parts of a graph that can be in 8 bits, noisiest first.

    Args:
        parts: their ops by name, in execution order.
        alone: makes the graph in which a part alone is in 8 bits.
        judge: a Judge's method, of the float graph and held-out samples.
        known: what an earlier run found, by part.
        on_result: called with each part that is judged, to be kept.
        advance: called before each with its name and how many there are.
        out_of_time: asked before each part that is not known: where true, the others are left out.

    A part that TensorFlow refuses, or dies on, stands first.
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
