"""From a quantization-aware model to int8 layers with the scales that it states."""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deploykit.quantization.accuracy import Judge
from deploykit.quantization.budget import DEPTHS
from deploykit.quantization.fake_quant.missing_ranges import with_missing_ranges
from deploykit.quantization.fake_quant.stated_layers import rounding_notes, stated_layers
from deploykit.quantization.preconditions import refuse_quantized, refuse_unknown_layers
from deploykit.quantization.requested import MIN_SQNR_DB, QuantizeOptions
from deploykit.quantization.result import Quantized
from deploykit.quantization.scoring import Judgement
from deploykit.quantization.target import IN_OPENVINO, IN_TENSORFLOW, EngineTarget
from deploykit.quantization.timing.speed import INT8, faster
from deploykit.rewriting.fake_quant_graph import (
    FakeQuantGraph,
    read_fake_quants,
    stated_codes_graph,
    stated_int8_graph,
)
from deploykit.text.progress import Work, unseen
from deploykit.transforms.core.engines.engines import OPENVINO, TENSORFLOW, lacking
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.tensors import Array
from deploykit.verification.samples import Dataset, samples_in

Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class StatedData:
    """On what an int8 graph is compared with its quantization-aware model."""

    feeds: Feeds = ()
    """Dataset, batch by batch; empty: nothing is compared."""
    calibrating: Feeds = ()
    """Samples on which ranges are measured that the model does not state; empty: none are."""
    evaluation: Dataset | None = None
    """Samples with labels, by which the metric is taken."""
    timed_with: Dataset | None = None
    """What engines are timed with; None: synthetic inputs."""


def quantize_fake_quants(
    graph: Graph, data: StatedData, how: QuantizeOptions, work: Work | None = None
) -> Quantized:
    """Return the int8 form of a quantization-aware graph, by the scales that it states.

    Args:
        graph: frozen, with fake-quants.
        data: what it is compared on.
        how: `engine`, `isa`, `keep_float`, `min_sqnr`, and `metric` with `max_drop` count.
        work: to be told how far it is.

    The result is float32 where no layer can run in int8 or the outputs differ too much.
    GraphError: the graph is in int8 already, there is no layer of a name in `keep_float`, or the
    engine cannot be had.
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
    """What is quantized, and how."""

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
        target, said = self._fastest(built)
        result = replace(result, use=target.use, engine_reason=why or said)
        return self._judged(result, target, built[target])

    def _targets(self) -> tuple[list[EngineTarget], str]:
        """Return the engines to build for, and why another is not among them."""
        if self.how.engine == OPENVINO:
            return [IN_OPENVINO], ""
        if self.how.engine == TENSORFLOW:
            return [IN_TENSORFLOW], ""
        if why := lacking(OPENVINO):
            return [IN_TENSORFLOW], f"TensorFlow is to compute the graph: {why}"
        return [IN_OPENVINO, IN_TENSORFLOW], ""

    def _built(self, target: EngineTarget) -> Graph:
        build = stated_int8_graph if target.is_tensorflow else stated_codes_graph
        return build(self.stated, self.how.isa, self.how.keep_float)

    def _fastest(self, built: Mapping[EngineTarget, Graph]) -> tuple[EngineTarget, str]:
        """Return the engine that runs its int8 graph fastest, and by how much."""
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
        """Return the result with the int8 graph, if that is near the quantization-aware one."""
        self.work("compare", 0)
        bar = MIN_SQNR_DB if self.how.min_sqnr is None else self.how.min_sqnr
        judgement = evaluation = None
        if self.data.feeds:
            judgement = self._judgement(self.data.feeds, target, int8)
        if (labelled := self.data.evaluation) is not None:
            evaluation = self._judgement(labelled.feeds(), target, int8, labelled)
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

    def _judgement(
        self, feeds: Feeds, target: EngineTarget, int8: Graph, labelled: Dataset | None = None
    ) -> Judgement:
        labels = None if labelled is None else labelled.labels_of(labelled.feeds())
        metric = self.how.metric if labelled is not None else "top1"
        with contextlib.closing(Judge(self.graph, feeds, labels, metric)) as judge:
            return target.judged(judge, int8)


def _reason(result: Quantized) -> str:
    """Return why int8 is kept, in one sentence."""
    found = result.judgement
    if found is None:
        return "the model states its int8 scales"
    ratio = f"{found.sqnr_db:.1f} dB" if math.isfinite(found.sqnr_db) else "no noise"
    return f"the model states its int8 scales; SQNR {ratio} against the model with its fake-quants"
