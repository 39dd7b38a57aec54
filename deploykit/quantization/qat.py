"""Converts quantization-aware models to int8: scales from fake-quant ops, missing ranges from
samples.
"""

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deploykit.pipelines.int8 import (
    FakeQuantGraph,
    read_fake_quants,
    stated_codes_graph,
    stated_int8_graph,
)
from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.calibration import calibrate
from deploykit.quantization.quantize_options import (
    MIN_SQNR_DB,
    QuantizeOptions,
    refuse_quantized,
    refuse_unknown_layers,
)
from deploykit.quantization.result import LayerOutcome, Quantized
from deploykit.quantization.search_task import DEPTHS
from deploykit.quantization.sensitivity import JUDGED, STEPS, Sensitivity, rank_alone
from deploykit.quantization.target import IN_OPENVINO, IN_TENSORFLOW, EngineTarget
from deploykit.quantization.timing.speed import INT8, faster
from deploykit.rendering.progress import Work, unseen
from deploykit.rendering.templates import listed
from deploykit.transforms.engines.engines import OPENVINO, TENSORFLOW, lacking
from deploykit.transforms.int8.fake_quant_planner import place_fake_quants
from deploykit.transforms.int8.fake_quants import VARS
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.plan import Plan
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, normal, producer_name
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import LAYER_OPS
from deploykit.verification.class_order import CLASS_METRICS, refuse_other_order
from deploykit.verification.feeds import samples_in
from deploykit.verification.samples import Dataset

_NAMED = 3  # layers or tensors in a note


def stated_layers(stated: FakeQuantGraph, planned: Plan) -> tuple[LayerOutcome, ...]:
    """Return the outcome of each layer, in execution order."""
    outcomes = []
    for node in map(stated.graph.__getitem__, stated.graph.order()):
        if node.op in LAYER_OPS:
            chain = planned.chains.get(node.name)
            form = None if chain is None else planned.forms.get(chain.nodes[-1].name)
            range_ = None if form is None else (form.offset, form.top * form.step + form.offset)
            outcomes.append(
                LayerOutcome(node.name, node.op, planned.reasons.get(node.name, ""), range_)
            )
    return tuple(outcomes)


def rounding_notes(stated: FakeQuantGraph, planned: Plan, isa: str) -> list[str]:
    """Return notes on int8 layers whose weights are not the values that the model states."""
    notes, again = [], stated.rounded_again(planned, isa)
    clipped = {
        name: count
        for name, count in stated.clipped.items()
        if name in planned.chains and name not in again
    }
    if clipped:
        notes.append(
            f"{sum(clipped.values())} weights of {len(clipped)} layers have the code 128, which "
            f"becomes 127 in int8: {listed(sorted(clipped), _NAMED)}; narrow_range avoids it"
        )
    if again:
        notes.append(
            f"the weights of {len(again)} layers are rounded to fewer levels than the model "
            f"states, as AVX2 sums pairs of products in 16 bits: {listed(sorted(again), _NAMED)}; "
            "--isa vnni keeps them"
        )
    return notes


def with_missing_ranges(
    stated: FakeQuantGraph, feeds: Sequence[Mapping[str, Array]]
) -> tuple[FakeQuantGraph, list[str]]:
    """Add missing fake-quants around layers with stated weights; return the graph and notes.

    Layers whose weights have no fake-quant are kept in float32. GraphError: as in `calibrate`.
    """
    read, made = stated.missing()
    if not read and not made:
        return stated, []
    ranges = calibrate(stated.graph, feeds).ranges
    work, added = stated.graph.copy(), list[str]()
    for tensor, readers in read.items():
        if tensor not in made and _add(work, tensor, ranges, readers):
            added.append(tensor)
    place_fake_quants(work)
    for tensor in replace(stated, graph=work).missing()[1]:
        readers = [node.name for node in work.readers(tensor)]
        if _add(work, tensor, ranges, readers):
            added.append(tensor)
    note = (
        f"the model states no range of {len(added)} tensors, so they are calibrated: "
        f"{listed(added, _NAMED)}"
    )
    return replace(stated, graph=work), [note] if added else []


def _add(graph: Graph, tensor: str, ranges: Ranges, readers: Collection[str]) -> bool:
    """Put a fake-quant between a tensor and nodes that read it, if its range is known."""
    result = ranges.tensors.get(normal(tensor))
    if result is None or not result.min < result.max:
        return False
    maker = graph.producer(tensor)
    name = graph.unique_name(f"{producer_name(tensor)}/calibrated")
    values = {"min": min(result.min, 0.0), "max": max(result.max, 0.0)}
    free = replace(maker, device="")
    ends = [
        graph.constant_beside(free, np.array(value, np.float32), f"{name}/{end}").name
        for end, value in values.items()
    ]
    node = Node(name, VARS, (tensor, *ends), device=maker.device)
    graph.add(node.with_attrs(num_bits=8, narrow_range=False))
    for reader in map(graph.__getitem__, readers):
        inputs = [name if data_input == tensor else data_input for data_input in reader.data_inputs]
        graph.replace(reader, reader.with_data_inputs(*inputs))
    return True


def stated_sensitivity(
    graph: Graph, samples: Dataset, isa: str = "auto", work: Work | None = None
) -> Sensitivity:
    """Rank the layers of a quantization-aware graph by noise, each alone in int8.

    GraphError: as in `calibrate` and `Evaluator`.
    """
    work = work or unseen("sensitivity", *STEPS)
    with samples.named():
        calibrating, held_out, note, _ = samples.split()
        feeds, judged = calibrating.feeds(), held_out.spread(JUDGED)
    work.begin("calibrate")
    stated, notes = with_missing_ranges(read_fake_quants(graph), feeds)
    planned, ranking, together = stated.plan(), [], None
    if planned.chains:
        with Evaluator.on(graph, judged) as judge:
            together = judge.judge(stated_int8_graph(stated, isa))
            ranking = rank_alone(
                {layer: stated.graph[layer].op for layer in planned.chains},
                lambda layer: stated_int8_graph(stated, isa, planned.chains.keys() - {layer}),
                judge.judge,
                advance=work.begin("rank"),
            )
    ranges = {e.layer: e.range for e in stated_layers(stated, planned)}
    return Sensitivity(
        tuple(ranking),
        together,
        planned.reasons,
        {layer: TensorRange(*ends) for layer, ends in ranges.items() if ends is not None},
        (calibrating.count, judged.count),
        tuple(filter(None, [note, *notes])),
    )


Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class StatedData:
    """The data to compare an int8 graph with its quantization-aware model."""

    feeds: Feeds = ()
    """Samples to compare on, batch by batch; empty: no comparison."""
    calibrating: Feeds = ()
    """Samples to measure ranges that the model does not state; empty: no calibration."""
    evaluation: Dataset | None = None
    """Samples with labels for the metric."""
    related: Array | None = None
    """The group of related samples of each one in `feeds`; None: independent."""
    timed_with: Dataset | None = None
    """Samples to benchmark engines with; None: synthetic inputs."""


def quantize_fake_quants(
    graph: Graph, data: StatedData, how: QuantizeOptions, work: Work | None = None
) -> Quantized:
    """Return the int8 form of a quantization-aware graph, with the scales that it states.

    Args:
        graph: a frozen graph with fake-quants.
        data: the samples to compare on.
        how: uses `engine`, `isa`, `keep_float`, `min_sqnr`, and `metric` with `max_drop`.
        work: receives the progress.

    The result is float32 if no layer can run in int8 or the outputs differ too much.
    GraphError: the graph is already int8, a name in `keep_float` is not a layer, or the engine is
    not available.
    """
    work = work or unseen("quantize")
    refuse_quantized(graph)
    work("read fake-quants", 0)
    stated, notes = read_fake_quants(graph), list[str]()
    if data.calibrating:
        stated, notes = with_missing_ranges(stated, data.calibrating)
    refuse_unknown_layers(stated.graph, how.keep_float)
    search = _Search(graph, stated, data, how, work, tuple(notes))
    return search.run()


@dataclass(frozen=True)
class _Search:
    """The search for the int8 form of a quantization-aware graph."""

    graph: Graph
    stated: FakeQuantGraph
    data: StatedData
    how: QuantizeOptions
    work: Work
    notes: tuple[str, ...]

    def run(self) -> Quantized:
        """Build the int8 graph for each engine, compare them, and return the best."""
        planned = self.stated.plan(self.how.keep_float)
        isa = "vnni" if sums_exactly(self.how.isa) else "avx2"
        notes = (*self.notes, *rounding_notes(self.stated, planned, self.how.isa))
        result = Quantized(
            self.stated.graph,
            True,
            "no layer can run in int8",
            stated_layers(self.stated, planned),
            isa=isa,
            samples=samples_in(self.data.calibrating) if self.data.calibrating else 0,
            notes=notes,
        )
        if not planned.chains:
            return result
        targets, why = self._targets()
        if all(target.missing() for target in targets):
            missing = ", ".join(sorted(targets[-1].missing()))
            return replace(result, reason=f"this TensorFlow lacks the ops {missing}")
        built = {target: self._built(target) for target in targets}
        target, text = self._fastest(built)
        result = replace(result, use=target.use, engine_reason=why or text)
        return self._judged(result, target, built[target])

    def _targets(self) -> tuple[list[EngineTarget], str]:
        """Return the engines to build for, and why OpenVINO is not one of them."""
        if self.how.engine == OPENVINO:
            return [IN_OPENVINO], ""
        if self.how.engine == TENSORFLOW:
            return [IN_TENSORFLOW], ""
        if why := lacking(OPENVINO):
            return [IN_TENSORFLOW], f"TensorFlow runs the graph: {why}"
        return [IN_OPENVINO, IN_TENSORFLOW], ""

    def _built(self, target: EngineTarget) -> Graph:
        build = stated_int8_graph if target.is_tensorflow else stated_codes_graph
        return build(self.stated, self.how.isa, self.how.keep_float)

    def _fastest(self, built: Mapping[EngineTarget, Graph]) -> tuple[EngineTarget, str]:
        """Return the engine that runs the int8 graph fastest, and the speedup in words."""
        if len(built) == 1:
            return next(iter(built)), ""
        self.work("compare engines", 0)
        entrants = [
            target.entrants(self.stated.graph, {INT8: graph}, self.how.settings, True)
            for target, graph in built.items()
        ]
        other, own = faster(
            self.stated.graph, entrants, data=self.data.timed_with, depth=DEPTHS[-1]
        )
        verdict = other.beside(own)
        chosen = IN_OPENVINO if verdict.wall.value > 1 else IN_TENSORFLOW
        return chosen, (
            f"{IN_OPENVINO.title} is {verdict.wall.in_words()} as fast as TensorFlow: "
            f"{chosen.title} runs it"
        )

    def _judged(self, result: Quantized, target: EngineTarget, int8: Graph) -> Quantized:
        """Return the result with the int8 graph if it is close to the quantization-aware one."""
        self.work("compare", 0)
        bar = MIN_SQNR_DB if self.how.min_sqnr is None else self.how.min_sqnr
        judgement = evaluation = None
        if self.data.feeds:
            judge = Evaluator(self.graph, self.data.feeds, related=self.data.related)
            judgement = _judged_by(judge, target, int8)
        if (labelled := self.data.evaluation) is not None:
            judge = Evaluator.on(self.graph, labelled.with_relations, self.how.metric)
            if self.how.metric in CLASS_METRICS:
                refuse_other_order(judge.answers(), labelled)
            evaluation = _judged_by(judge, target, int8)
        result = replace(result, judgement=judgement, evaluation=evaluation)
        if judgement is not None and not judgement.sqnr_db >= bar:
            return replace(
                result,
                reason=f"int8 is too inaccurate: SQNR {judgement.sqnr_db:.1f} dB, expected at "
                f"least {bar:g} dB",
            )
        drop = None if evaluation is None else evaluation.drop
        if drop is not None and drop > self.how.max_drop:
            return replace(
                result,
                reason=f"int8 is too inaccurate: {self.how.metric} drops by {drop:.4g}, expected "
                f"at most {self.how.max_drop:g}",
            )
        return replace(result, graph=int8, is_float=False, reason=_reason(result))


def _judged_by(evaluator: Evaluator, target: EngineTarget, int8: Graph) -> Judgement:
    with contextlib.closing(evaluator) as judge:
        return target.judged(judge, int8)


def _reason(result: Quantized) -> str:
    """Return why int8 is kept, in one sentence."""
    value = result.judgement
    if value is None:
        return "the model states its int8 scales"
    ratio = f"{value.sqnr_db:.1f} dB" if math.isfinite(value.sqnr_db) else "no noise"
    return f"the model states its int8 scales; SQNR {ratio} against the model with its fake-quants"
