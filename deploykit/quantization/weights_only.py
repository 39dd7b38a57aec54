"""Quantizes weights only, keeping the noisiest in float32 to meet the accuracy threshold."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.rewrite import OutputFiles, Proof, Rewriting, rewrite
from deploykit.pipelines.transform import OPTIMIZE, quantize_string, run_steps
from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.calibration import calibrate
from deploykit.quantization.quantize_options import QuantizeOptions
from deploykit.quantization.sensitivity import JUDGED, Noise, choose_among, rank_alone
from deploykit.rendering.progress import Work
from deploykit.transforms.common.documents import Hidden, OrNull, written
from deploykit.transforms.common.errors import GraphError, NotQuantizedError, StepError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.confidence import Decibels
from deploykit.verification.samples import Dataset
from deploykit.verification.tolerance import QUANTIZED_BAR_DB

MOST = 64  # samples to correct biases with; more hardly change a mean
CODES = "_quantized_const"  # suffix of the names of int8 constants
TOO_NOISY = "quantization noise too high"
STORED = "weights are stored in int8, layers run in float32"

Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class WeightOutcome:
    """The precision of a constant of weights."""

    weight: str
    why_float: OrNull[str] = ""
    """Why it is kept in float32; empty: it is int8."""
    sqnr_db: Decibels = None
    """SQNR of the outputs if only this constant is int8; None: not measured."""

    @property
    @written()
    def stored_in(self) -> str:
        """The precision of the constant: `float` or `int8`."""
        return "float" if self.why_float else "int8"


@dataclass(frozen=True)
class WeightsInt8(Rewriting):
    """How a graph with 8-bit weights was made, and which weights are int8."""

    weights: tuple[WeightOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    is_float: Hidden[bool] = False
    """Whether nothing is in int8: that is too inaccurate, or there is nothing to quantize."""
    reason: str = STORED
    """Why this graph, in one sentence."""

    @property
    @written()
    def precision(self) -> str:
        """The precision of the weights: `int8` or `float32`."""
        return "float32" if self.is_float else "int8"


def quantize_stored(
    model: OpenedModel,
    how: QuantizeOptions,
    samples: Dataset | None,
    made_up: Feeds,
    proof: Proof,
    target: OutputFiles,
    work: Work,
) -> Graph:
    """Optimize a model's graph, store its weights in int8, verify it, write it and return it.

    If the threshold is missed with all weights in int8, the noisiest are kept in float32. The
    graph's `report` is a `WeightsInt8`.

    Args:
        model: the opened model.
        how: the threshold, and the weights to keep in float32.
        samples: samples to compare on and to correct biases with; None: use `made_up`.
        made_up: synthetic inputs to compare on; empty: the graph cannot be run.
        proof: verifies the written file.
        target: the output files.
        work: receives the progress.

    VerificationError: the threshold is missed with fewer int8 weights as well.
    NotQuantizedError: no weight can be stored in int8.
    """
    graph, bar = model.frozen, how.min_sqnr if how.min_sqnr is not None else QUANTIZED_BAR_DB
    feeds = made_up if samples is None else samples.feeds()
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        ranges, notes = "", list[str]()
        if samples is not None:
            try:
                ranges = _calibrated(graph, samples, str(Path(folder, "ranges.json")))
            except GraphError as error:
                notes.append(f"biases are not corrected: {error}")

        def steps(keep_float: Sequence[str]) -> str:
            return quantize_string(how.minimum_size, (*how.skip, *keep_float), ranges=ranges)

        def require(result: Graph) -> None:
            if not _in_8_bits(result):
                skipped = " and is not skipped (--skip)" if how.skip else ""
                raise NotQuantizedError(
                    "weights-too-small", least=how.minimum_size, skipped=skipped
                )

        try:
            value = rewrite(model, graph, steps(()), target, work, proof, require)
            weights = outcomes(_in_8_bits(value))
        except StepError:
            fewer = feeds if samples is None else samples.spread(JUDGED).feeds()
            weights = _chosen(graph, steps, (feeds, fewer), bar, work) if feeds else ()
            keep_float = [item.weight for item in weights if item.why_float]
            if len(keep_float) == len(weights):
                raise
            value = rewrite(model, graph, steps(keep_float), target, work, proof)
    value.report = WeightsInt8(**vars(value.report), weights=weights, notes=tuple(notes))
    return value


def _calibrated(graph: Graph, samples: Dataset, path: str) -> str:
    """Write the ranges and means of the optimized graph to a file, and return its path."""
    optimized = run_steps(graph, OPTIMIZE)[0]
    Path(path).write_text(calibrate(optimized, samples.spread(MOST).feeds()).ranges.text())
    return path


def _in_8_bits(graph: Graph) -> list[str]:
    """Return the names of the constants that are int8 in a graph."""
    return [n.name.removesuffix(CODES) for n in graph if n.op == "Const" and n.name.endswith(CODES)]


def _chosen(
    graph: Graph,
    steps: Callable[[Sequence[str]], str],
    feeds: tuple[Feeds, Feeds],
    min_sqnr: float,
    work: Work,
) -> tuple[WeightOutcome, ...]:
    """Choose the constants to keep in float32 so that SQNR is at least `min_sqnr`, in dB.

    Constants are ranked by noise, each alone in int8, on the second feeds. All are kept in float32
    if no smaller set meets the threshold; the result is empty if no graph can run.
    """

    def quantized(keep_float: Iterable[str]) -> Graph:
        return run_steps(graph, steps(tuple(keep_float)))[0]

    names = _in_8_bits(quantized(()))

    def judged(keep_float: tuple[str, ...]) -> Judgement:
        work(f"{len(keep_float)} weights in float32", 0)
        result = judge.judge(quantized(keep_float))
        return replace(result, sqnr_low_db=None)  # the final verification uses the estimate

    try:
        with Evaluator(graph, feeds[1]) as judge:
            ranking = rank_alone(
                dict.fromkeys(names, "Const"),
                lambda name: quantized(other for other in names if other != name),
                judge.judge,
                advance=work,
            )
        with Evaluator(graph, feeds[0]) as judge:
            noisiest = [item.layer for item in ranking]
            chosen = choose_among(
                [tuple(noisiest[:count]) for count in range(len(noisiest) + 1)],
                judged,
                lambda trial: trial.meets_bar(min_sqnr, 0.0),  # without a metric
            )
    except GraphError:
        return ()
    return outcomes(names, chosen.keep_float if chosen.holds else names, ranking)


def outcomes(
    names: Sequence[str], keep_float: Sequence[str] = (), ranking: Sequence[Noise] = ()
) -> tuple[WeightOutcome, ...]:
    """Return the outcome of each constant, in execution order."""
    noise = {item.layer: item.sqnr_db for item in ranking}
    return tuple(
        WeightOutcome(name, TOO_NOISY if name in keep_float else "", noise.get(name))
        for name in names
    )
