"""The complete int8 search, whose result is an accurate and fast int8 graph or the float32 graph.

It shifts and calibrates the graph, chooses layers by noise and time in each requested engine, and
benchmarks all graphs end to end.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from deploykit.quantization.accuracy import Evaluator
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.calibration import KnownRanges
from deploykit.quantization.candidates import Candidate, best_of, candidate_in
from deploykit.quantization.layer_search import (
    FOR_TIME,
    Calibrated,
)
from deploykit.quantization.quantize_options import (
    DEFAULT,
    QuantizeOptions,
    doubts,
    has_layers,
    refuse_quantized,
    refuse_unknown_layers,
    warned,
)
from deploykit.quantization.result import Quantized
from deploykit.quantization.rounding import round_in_time
from deploykit.quantization.search_task import Budget, SearchTask, task_of
from deploykit.quantization.sensitivity import Noise
from deploykit.quantization.target import EngineTarget, targets
from deploykit.rendering.progress import Work
from deploykit.storage.resume_file import State
from deploykit.transforms.common.errors import Error
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.class_order import CLASS_METRICS, refuse_other_order
from deploykit.verification.samples import Data, Dataset

logger = logging.getLogger("deploykit")

LEAST = 16  # minimum number of calibration samples if time is short


def quantize_calibrated(
    graph: Graph,
    data: Data,
    how: QuantizeOptions = DEFAULT,
    *,
    evaluation: Data | None = None,
    state: str | os.PathLike[str] | None = None,
    work: Work | None = None,
    budget: Budget | None = None,
    known: KnownRanges | None = None,
) -> Quantized:
    """Quantize a graph to int8 as far as it is accurate and fast; otherwise return it in float32.

    Args:
        graph: an optimized float32 graph.
        data: representative samples, or arrays by input name; 64 samples or more. Every fourth is
            held out for comparisons.
        how: accuracy thresholds, and the configuration to optimize for.
        evaluation: samples with labels for the metric.
        state: a file that stores intermediate results, from which an interrupted run resumes; it
            is removed at the end.
        work: progress with the steps `STEPS`.
        budget: the running time budget; None: start one.
        known: a calibration on the samples that are not held out.

    GraphError: the data do not fit, an activation contains NaN or Inf, or the metric fails. Also: a
    name in `keep_float` is not a layer, or the graph is already int8. VerificationError: the
    predictions of the float32 graph cannot be right. KeyboardInterrupt: it was interrupted.
    """
    budget = budget or Budget(how.budget)
    refuse_quantized(graph)
    refuse_unknown_layers(graph, how.keep_float)
    samples = Dataset.of(graph, data)
    labelled = None if evaluation is None else Dataset.of(graph, evaluation)
    for item in (samples, labelled):
        if item is not None:
            item.refuse_gaps()
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        ranges = str(Path(folder, "ranges.json"))
        task = task_of(graph, samples, how, labelled, state, work, ranges, budget)
        with _explained(task.state):
            engines, why = targets(task)
            outcome = _outcome(task, engines, known)
    task.state.forget()
    return replace(outcome, engine_reason=why) if why else outcome


def _outcome(
    task: SearchTask, engines: Sequence[EngineTarget], known: KnownRanges | None
) -> Quantized:
    """Run the steps of the search for some engines, and return the best result."""
    if not has_layers(task.graph):
        reason = "no convolution or matrix product in float32"
        why = str(Error("empty-quantization", reason=reason))
        return best_of(task, None, [Candidate(engine, why_float=why) for engine in engines])
    with contextlib.ExitStack() as stack:
        by_labels = _judge_by_labels(task, stack)  # first, to fail early
        judge = _judge(task, stack)
        with task.step("calibrate") as advance:
            every = task.samples.calibrating
            passes = 2 if known is None else 1
            samples = every.spread(task.budget.calibrating_samples(LEAST, passes))
            shifted, notes = prepare(
                task.graph,
                samples.feeds(),
                task.ranges,
                state=task.state,
                known=known,
                advance=advance,
            )
            task.notes.extend(notes)
        ranges = load_ranges(task.ranges)
        if ranges.samples <= samples.count < every.count:
            task.notes.append(
                f"calibrated with {samples.count} of {every.count} samples, {FOR_TIME} uses them "
                "all"
            )
        planned = plan(shifted, ranges, task.how.keep_float)
        rounded, notes = round_in_time(task, shifted, samples)
        task.notes.extend(notes)
        calibrated = Calibrated(shifted, planned, judge, by_labels, rounded)
        candidates, ranking = [], list[Noise]()
        for engine in engines:
            candidates.append(candidate_in(task, calibrated, engine, ranking))
            if (choice := candidates[-1].choice) is not None:
                ranking = [e for e in choice.ranking if e.layer not in choice.departing]
        return best_of(task, calibrated, candidates)


def _judge(task: SearchTask, stack: contextlib.ExitStack) -> Evaluator:
    """Return an Evaluator with the held-out samples, after checking the float32 predictions.

    Its run also measures times for the budget.
    """
    held_out, start = task.samples.held_out, task.budget.now()
    judge = stack.enter_context(Evaluator.on(task.graph, held_out))
    ran, _ = judge.facts()
    task.budget.measured(max(task.budget.now() - start - ran, 0.0), ran)
    refuse_other_order(judge.answers(), held_out)
    task.notes.extend(doubts(judge, held_out, task.how))
    if task.state.stored.keys().isdisjoint({"ranges", "noise"}):
        task.notes.extend(warned(filter(None, [task.budget.shortfall(LEAST)])))
    return judge


def _judge_by_labels(task: SearchTask, stack: contextlib.ExitStack) -> Evaluator | None:
    if task.evaluation is None:
        return None
    with task.evaluation.named():
        feeds, metric = task.evaluation.feeds(), task.how.metric
        labels = task.evaluation.labels_of(feeds)
        if labels is None and ":" not in metric:
            task.evaluation.refuse_unlabelled(metric)
    judge = stack.enter_context(Evaluator.on(task.graph, task.evaluation.with_relations, metric))
    if metric in CLASS_METRICS:
        refuse_other_order(judge.answers(), task.evaluation)
        task.notes.extend(doubts(judge, task.evaluation, task.how))
    return judge


@contextlib.contextmanager
def _explained(state: State) -> Iterator[None]:
    """Log how to resume if the search ends early."""
    try:
        yield
    except (KeyboardInterrupt, Error):
        path = state.path
        if path is not None and path.exists() and state.stored:
            logger.info("intermediate results are in %s; run the same command again to resume",
                        path)  # fmt: skip
        raise
