"""Weights alone in 8 bits: which stay float, because the answers do not hold otherwise."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.rewrite import OutputFiles, Rewriting, rewrite
from deploykit.pipelines.transform import OPTIMIZE, quantize_string, run_steps
from deploykit.pipelines.written_file import Proof
from deploykit.quantization.accuracy import Judge
from deploykit.quantization.calibration import calibrate
from deploykit.quantization.keep_float import choose_among
from deploykit.quantization.quantize_options import QuantizeOptions
from deploykit.quantization.scoring import Judgement
from deploykit.quantization.sensitivity import JUDGED, Noise, rank_each
from deploykit.rendering.progress import Work
from deploykit.transforms.common.documents import Hidden, OrNull, written
from deploykit.transforms.common.errors import GraphError, NotQuantizedError, StepError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.confidence import Decibels
from deploykit.verification.samples import Dataset
from deploykit.verification.tolerance import QUANTIZED_BAR_DB

MOST = 64  # samples by which biases are corrected: more hardly change a mean
CODES = "_quantized_const"  # what the name of a constant ends with, once it is in 8 bits
TOO_NOISY = "in 8 bits it brings too much noise"
STORED = "weights are stored in int8, layers run in float32"

Feeds = Sequence[Mapping[str, Array]]


@dataclass(frozen=True)
class WeightOutcome:
    """A constant of weights, and what became of it."""

    weight: str
    why_float: OrNull[str] = ""
    """Empty: it is in 8 bits."""
    sqnr_db: Decibels = None
    """Of the outputs, if it alone is in 8 bits; None where that was not asked."""

    @property
    @written()
    def stored_in(self) -> str:
        """`float` or `int8`."""
        return "float" if self.why_float else "int8"


@dataclass(frozen=True)
class WeightsInt8(Rewriting):
    """How a graph was made whose weights are in 8 bits, and which are not."""

    weights: tuple[WeightOutcome, ...] = ()
    notes: tuple[str, ...] = ()
    is_float: Hidden[bool] = False
    """Whether nothing is in int8: that is too inaccurate, or there is nothing to quantize."""
    reason: str = STORED
    """Why this graph, in one sentence."""

    @property
    @written()
    def precision(self) -> str:
        """`int8` or `float32`: that of the weights."""
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
    """Return a model's graph optimized and with its weights in 8 bits, compared and written.

    The noisiest stay float where the bar is missed with all. Its `report` is a `WeightsInt8`.

    Args:
        model: what is opened.
        how: the bar, and what is to stay float.
        samples: that the comparison is made on, which biases are corrected by too.
        made_up: what it is made on where there are none; empty: the graph cannot be run.
        proof: judges what is written.
        target: where it is written.
        work: to be told how far it is.

    VerificationError: the bar is missed, and with fewer weights in 8 bits as well.
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
    """Write the ranges and means of an optimized graph to a file, and return its name."""
    optimized = run_steps(graph, OPTIMIZE)[0]
    Path(path).write_text(calibrate(optimized, samples.spread(MOST).feeds()).ranges.text())
    return path


def _in_8_bits(graph: Graph) -> list[str]:
    """Return the constants that became codes in a graph."""
    return [n.name.removesuffix(CODES) for n in graph if n.op == "Const" and n.name.endswith(CODES)]


def _chosen(
    graph: Graph,
    steps: Callable[[Sequence[str]], str],
    feeds: tuple[Feeds, Feeds],
    min_sqnr: float,
    work: Work,
) -> tuple[WeightOutcome, ...]:
    """Return what becomes of each constant of weights for the answers to keep so many dB.

    The noisiest stay float: each is judged as the only one in 8 bits, on the second feeds. All do
    where nothing less holds; there are none where nothing can be judged.
    """

    def quantized(keep_float: Iterable[str]) -> Graph:
        return run_steps(graph, steps(tuple(keep_float)))[0]

    names = _in_8_bits(quantized(()))

    def judged(keep_float: tuple[str, ...]) -> Judgement:
        work(f"{len(keep_float)} weights in float", 0)
        result = judge.judge(quantized(keep_float))
        return replace(result, sqnr_low_db=None)  # the comparison in the end is of the estimate

    try:
        with Judge(graph, feeds[1]) as judge:
            ranking = rank_each(
                dict.fromkeys(names, "Const"),
                lambda name: quantized(other for other in names if other != name),
                judge.judge,
                advance=work,
            )
        with Judge(graph, feeds[0]) as judge:
            noisiest = [item.layer for item in ranking]
            chosen = choose_among(
                [tuple(noisiest[:count]) for count in range(len(noisiest) + 1)],
                judged,
                lambda trial: trial.meets_bar(min_sqnr, 0.0),  # there is no metric
            )
    except GraphError:
        return ()
    return outcomes(names, chosen.keep_float if chosen.holds else names, ranking)


def outcomes(
    names: Sequence[str], keep_float: Sequence[str] = (), ranking: Sequence[Noise] = ()
) -> tuple[WeightOutcome, ...]:
    """Return what became of constants, in execution order."""
    noise = {item.layer: item.sqnr_db for item in ranking}
    return tuple(
        WeightOutcome(name, TOO_NOISY if name in keep_float else "", noise.get(name))
        for name in names
    )
