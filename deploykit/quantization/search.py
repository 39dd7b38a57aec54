"""The whole way to an 8-bit graph that is faster and still right, or to the float graph.

Shift and calibrate; choose layers by noise and time, in each engine that is asked for; then compare
all graphs end to end.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from deploykit.quantization.accuracy import Judge
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
from deploykit.quantization.timing.token_parts import choose_parts, later
from deploykit.rendering.progress import Work
from deploykit.storage.resume_file import State
from deploykit.transforms.common.errors import Error
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.samples import Data, Dataset

logger = logging.getLogger("deploykit")

LEAST = 16  # samples to calibrate with, where time is short


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
    """Return the optimized graph in 8 bits, as far as that is right and fast, or in float.

    Args:
        graph: an optimized float graph.
        data: samples, or arrays by input name, that are like those of real use; 64 or more. Every
            fourth is held out to judge by.
        how: the bars, and what it is to be fast for.
        evaluation: samples with labels, by which the metric is taken.
        state: a file that keeps what takes long while this runs, and from which it goes on when it
            was interrupted; it is removed at the end.
        work: of the steps `STEPS`, to be told how far it is.
        budget: the clock, where it runs already.
        known: a calibration on the samples that are not held out.

    GraphError: the data do not fit, an activation holds NaN or Inf, the metric fails, there is no
    layer of a name in `keep_float`, or the graph is in 8 bits already. VerificationError: the float
    graph's answers cannot be right. KeyboardInterrupt: it was interrupted.
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
            if not how.whole_tokens:
                budget.later = later(graph, how.settings)
            engines, why = targets(task)
            outcome = _in_parts(task, _outcome(task, engines, known))
    task.state.forget()
    return replace(outcome, engine_reason=why) if why else outcome


def _in_parts(task: SearchTask, outcome: Quantized) -> Quantized:
    """Return an int8 graph for TensorFlow with its tokens in parts, where that is faster."""
    if outcome.is_float or outcome.use is not None or task.how.whole_tokens:
        return outcome
    with task.step("compare") as advance:
        graph, note = choose_parts(
            outcome.graph,
            task.how.settings,
            data=task.timed_with,
            budget=task.budget,
            advance=advance,
        )
    return replace(outcome, graph=graph, notes=(*outcome.notes, *filter(None, [note])))


def _outcome(
    task: SearchTask, engines: Sequence[EngineTarget], known: KnownRanges | None
) -> Quantized:
    """Return what the steps come to in some engines."""
    if not has_layers(task.graph):
        why = "there is nothing to quantize: no convolution or matrix product in float32"
        return best_of(task, None, [Candidate(engine, why_float=why) for engine in engines])
    with contextlib.ExitStack() as stack:
        by_labels = _judge_by_labels(task, stack)  # first, as what is wrong is soon seen
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
                f"calibrated with {samples.count} of {every.count} samples, {FOR_TIME} takes them "
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


def _judge(task: SearchTask, stack: contextlib.ExitStack) -> Judge:
    """Return the judge on held-out samples, once its float graph's answers can be right.

    It also tells what things take here.
    """
    held_out, start = task.samples.held_out, task.budget.now()
    feeds = held_out.feeds()
    judge = stack.enter_context(Judge(task.graph, feeds, groups=held_out.groups_of(feeds)))
    ran, _ = judge.facts()
    task.budget.measured(max(task.budget.now() - start - ran, 0.0), ran)
    task.notes.extend(doubts(judge, held_out.labels_of(held_out.feeds()), task.how))
    if task.state.found.keys().isdisjoint({"ranges", "noise"}):
        task.notes.extend(warned(filter(None, [task.budget.shortfall(LEAST)])))
    return judge


def _judge_by_labels(task: SearchTask, stack: contextlib.ExitStack) -> Judge | None:
    if task.evaluation is None:
        return None
    with task.evaluation.named():
        feeds, metric = task.evaluation.feeds(), task.how.metric
        labels = task.evaluation.labels_of(feeds)
        if labels is None and ":" not in metric:
            task.evaluation.refuse_unlabelled(metric)
    groups = task.evaluation.groups_of(feeds)
    judge = stack.enter_context(Judge(task.graph, feeds, labels, metric, groups))
    if metric in ("top1", "top5"):
        with task.evaluation.named():
            task.notes.extend(doubts(judge, labels, task.how))
    return judge


@contextlib.contextmanager
def _explained(state: State) -> Iterator[None]:
    """Say, where the work ends early, how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Error):
        path = state.path
        if path is not None and path.exists() and state.found:
            logger.info("what was found so far is kept in %s; the same command goes on from there",
                        path)  # fmt: skip
        raise
