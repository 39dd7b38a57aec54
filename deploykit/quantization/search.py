"""The whole way to an 8-bit graph that is faster and still right, or to the float graph.

Shift and calibrate; rank layers by their noise and turn the noisiest back to float until the
answers hold; turn back what is no faster; then compare the two graphs end to end.
"""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deploykit.benchmarking.inputs import batches
from deploykit.hardware.machine import environment, machine
from deploykit.quantization.accuracy import Judge, Judgement
from deploykit.quantization.budget import DEPTHS, GRAPHS, Budget
from deploykit.quantization.calibrated_graph import prepare
from deploykit.quantization.keep_float import FloatChoice, choose_layers
from deploykit.quantization.preconditions import (
    doubts,
    few_agree,
    has_layers,
    refuse_quantized,
    refuse_unknown_layers,
    warned,
)
from deploykit.quantization.requested import PREFERENCES, Quantization
from deploykit.quantization.result import LayerOutcome, Quantized, layer_outcomes
from deploykit.quantization.sensitivity import JUDGED, Noise, rank_each
from deploykit.quantization.timing.layer_times import ROUNDS, LayerTimes, layer_times
from deploykit.quantization.timing.speed import FEWER, INT8, Gain, choose, faster, undecided
from deploykit.rewriting.int8_graph import int8_graph
from deploykit.storage.resume_file import State, digest, pieces
from deploykit.text.progress import Work, unseen
from deploykit.transforms.core.errors import Error, GraphError, VerificationError
from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.int8.plan import OPS, Plan, plan
from deploykit.transforms.core.int8.private_ops import probe
from deploykit.transforms.core.int8.ranges import load_ranges
from deploykit.verification.bar import QUANTIZED_BAR_DB
from deploykit.verification.samples import Data, Samples, Split, samples_in

logger = logging.getLogger("deploykit")

STEPS = ("calibrate", "rank", "judge", "time", "compare", "judge the result")

FOR_TIME = "as there was no time for more, so other layers may be in 8 bits; a larger --budget"
LEAST = 16  # samples to calibrate with, where time is short

DEFAULT = Quantization()


@dataclass(frozen=True)
class _Search:
    """What is quantized, with which samples, and where findings go."""

    graph: Graph
    how: Quantization
    samples: Split
    timed_with: Samples
    evaluation: Samples | None
    state: State
    work: Work
    ranges: str
    """The path of the ranges' file."""
    notes: list[str]
    budget: Budget
    seconds: dict[str, float] = field(default_factory=dict)
    """By step."""

    @property
    def bar(self) -> float:
        """What the answers have to keep, in dB."""
        if self.how.min_sqnr is not None:
            return self.how.min_sqnr
        return QUANTIZED_BAR_DB if self.evaluation is not None else PREFERENCES[self.how.prefer]

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Work]:
        """Begin a step, and take its time."""
        start = time.monotonic()
        yield self.work.begin(name)
        self.seconds[name] = time.monotonic() - start


def quantize_calibrated(
    graph: Graph,
    data: Data,
    how: Quantization = DEFAULT,
    *,
    evaluation: Data | None = None,
    state: str | os.PathLike[str] | None = None,
    work: Work | None = None,
    budget: Budget | None = None,
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

    GraphError: the data do not fit, an activation holds NaN or Inf, the metric fails, there is no
    layer of a name in `keep_float`, or the graph is in 8 bits already. VerificationError: the 8-bit
    graph keeps less than 15 dB, or the float graph's answers cannot be right. KeyboardInterrupt: it
    was interrupted.
    """
    budget = budget or Budget(how.budget)
    refuse_quantized(graph)
    refuse_unknown_layers(graph, how.keep_float)
    samples = Samples.of(graph, data)
    labelled = None if evaluation is None else Samples.of(graph, evaluation)
    for each in (samples, labelled):
        if each is not None:
            each.refuse_gaps()
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        ranges = str(Path(folder, "ranges.json"))
        task = _task(graph, samples, how, labelled, state, work, ranges, budget)
        with _explained(task.state):
            outcome = _outcome(task)
    task.state.forget()
    return outcome


def _task(
    graph: Graph,
    samples: Samples,
    how: Quantization,
    evaluation: Samples | None,
    state: str | os.PathLike[str] | None,
    work: Work | None,
    ranges: str,
    budget: Budget,
) -> _Search:
    """Return what is to be done. GraphError: the graph cannot be run in the batch that is asked."""
    split = samples.split()
    timed_with = split.held_out.at_least(how.batch or 1)
    batches(graph, how.batch, data=timed_with)  # can it be run?
    belongs_to = {
        "graph": digest(graph.serialized()),
        "data": digest(pieces(samples.arrays)),
        "isa": how.isa,
        "keep_float": tuple(how.keep_float),
        "environment": environment(),
        **{name: machine()[name] for name in ("cpu", "flags")},
    }
    kept = State(state, "quantizing", belongs_to)
    notes = [split.note] if split.note else []
    if how.prefer != DEFAULT.prefer:
        notes.append(
            f"--prefer {how.prefer}: the answers are to keep {PREFERENCES[how.prefer]:g} dB"
        )
    work = work or unseen("quantize", *STEPS)
    budget.held_out, budget.calibrating = split.held_out.count, split.calibrating.count
    budget.batch = how.batch or 1
    return _Search(graph, how, split, timed_with, evaluation, kept, work, ranges, notes, budget)


def _outcome(task: _Search) -> Quantized:
    """Return what the steps come to."""
    if not has_layers(task.graph):
        return _float(task, "there is nothing to quantize: no convolution or matrix product is in "
                            "float32")  # fmt: skip
    missing = set(OPS.values()) - probe(OPS.values())
    if missing:
        return _float(task, f"this TensorFlow lacks {', '.join(sorted(missing))}")
    with contextlib.ExitStack() as stack:
        by_labels = _judge_by_labels(task, stack)  # first, as what is wrong is soon seen
        judge = _judge(task, stack)
        with task.step("calibrate") as advance:
            samples = _calibrating(task)
            shifted, notes = prepare(
                task.graph,
                samples.feeds(),
                task.ranges,
                state=task.state,
                advance=advance,
            )
            task.notes.extend(notes)
        planned = plan(shifted, load_ranges(task.ranges), task.how.keep_float)
        if not planned.chains:
            layers = layer_outcomes(shifted, planned, load_ranges(task.ranges))
            return _float(task, "no layer can compute in 8 bits", layers)
        return _search(task, shifted, planned, judge, by_labels)


def _calibrating(task: _Search) -> Samples:
    """Return the samples to calibrate with: all that there is time for."""
    every = task.samples.calibrating
    found = every.spread(task.budget.calibrating_samples(LEAST))
    if found.count < every.count and "ranges" not in task.state.found:
        task.notes.append(
            f"calibrated with {found.count} of {every.count} samples, {FOR_TIME} takes them all"
        )
    return found


def _judge(task: _Search, stack: contextlib.ExitStack) -> Judge:
    """Return the judge on held-out samples, once its float graph's answers can be right.

    It also tells what things take here.
    """
    held_out, start = task.samples.held_out, task.budget.now()
    judge = stack.enter_context(Judge(task.graph, held_out.feeds()))
    ran, _ = judge.facts()
    task.budget.measured(max(task.budget.now() - start - ran, 0.0), ran)
    task.notes.extend(doubts(judge, held_out.labels_of(held_out.feeds()), task.how))
    if task.state.found.keys().isdisjoint({"ranges", "noise"}):
        task.notes.extend(warned(filter(None, [task.budget.shortfall(LEAST)])))
    return judge


def _search(
    task: _Search, graph: Graph, planned: Plan, judge: Judge, by_labels: Judge | None
) -> Quantized:
    """Return the outcome for a calibrated graph of which some layers can be in 8 bits."""
    ranges = load_ranges(task.ranges)
    with task.step("rank") as advance:
        ranking = _rank(task, graph, planned, judge, advance)
    with task.step("judge"):
        order = dict.fromkeys([*(noise.layer for noise in ranking), *planned.chains])
        chosen = _choose(task, graph, tuple(order), judge, by_labels)
    noisy = frozenset(chosen.keep_float)
    if not chosen.holds and task.budget.is_over and not _is_right(chosen.best.judgement):
        layers = layer_outcomes(graph, planned, ranges, ranking)
        return _float(task, "the time was over before the answers in 8 bits were right", layers)
    if len(noisy) == len(planned.chains):
        layers = layer_outcomes(graph, planned, ranges, ranking, noisy=noisy)
        return _float(task, _too_noisy(chosen, task), layers)
    times, slow, unclear = _timed(task, graph, planned, chosen)
    is_on = judge.facts()[1] if times is None else times.usual.onednn_is_on
    gain = _compared(task, graph, planned, is_on, {INT8: noisy, FEWER: slow})
    stay_float = slow if gain.name == FEWER else noisy
    with task.step("judge the result"):
        int8, judgement = _built(task, graph, stay_float), chosen.best.judgement
        if stay_float != noisy or judgement is None:
            judgement = judge.judge(int8)
        judgement = replace(judgement, metric="", before=None, after=None)
        evaluation = None if by_labels is None else by_labels.judge(int8)
    if not _is_right(judgement):
        task.state.forget()
        raise VerificationError(
            f"in 8 bits the answers keep {judgement.certain_db:.1f} dB on samples like those held "
            f"out (95 % confidence), below {QUANTIZED_BAR_DB:g} dB; nothing was written (a higher "
            "--min-sqnr keeps more layers float)"
        )
    if gain.is_kept:
        task.notes.extend(few_agree(judgement.agreement))
        slower = slow - stay_float if slow < planned.chains.keys() else ()
        task.notes.extend(undecided(gain, slower, unclear))
    return Quantized(
        graph=int8 if gain.is_kept else task.graph,
        is_float=not gain.is_kept,
        reason=str(gain),
        layers=layer_outcomes(
            graph,
            planned,
            ranges,
            ranking,
            None if times is None else times.usual,
            noisy,
            stay_float,
        ),
        judgement=judgement,
        evaluation=evaluation,
        gain=gain,
        **_facts(task),
    )


def _built(task: _Search, graph: Graph, stay_float: Iterable[str]) -> Graph:
    """Return a calibrated graph in 8 bits, but for some layers."""
    return int8_graph(graph, task.ranges, task.how.isa, (*task.how.keep_float, *stay_float))


def _is_right(judgement: Judgement | None) -> bool:
    """Say whether answers are better than noise."""
    return judgement is not None and judgement.certain_db >= QUANTIZED_BAR_DB


def _rank(task: _Search, graph: Graph, plan: Plan, judge: Judge, advance: Work) -> list[Noise]:
    """Return the layers by the noise that each brings; those judged before are not judged again.

    Those for which there is no time are left out.
    """
    state, layers = task.state, plan.chains.keys()
    known = {name: Noise(**each) for name, each in state.found.get("noise", {}).items()}

    def keep(noise: Noise) -> None:
        known[noise.layer] = noise
        state.keep("noise", {name: vars(each) for name, each in known.items()})

    budget = task.budget
    samples = budget.ranking_samples(len(layers), JUDGED)
    fewer = task.samples.held_out.spread(samples)
    if samples < min(JUDGED, task.samples.held_out.count):
        task.notes.append(f"layers were ranked by {fewer.count} samples, {FOR_TIME} takes {JUDGED}")
    with contextlib.ExitStack() as stack:
        if fewer.count < task.samples.held_out.count and budget.left > budget.for_trials:
            judge = stack.enter_context(Judge(task.graph, fewer.feeds()))
        end = budget.ranking_until()
        ranking = rank_each(
            {layer: graph[layer].op for layer in layers},
            lambda layer: _built(task, graph, layers - {layer}),
            judge.judge,
            known=known,
            on_result=keep,
            advance=advance,
            out_of_time=lambda: budget.now() >= end,
        )
    if len(ranking) < len(layers):
        task.notes.append(
            f"only {len(ranking)} of {len(layers)} layers were ranked in the time there was; a "
            "larger --budget ranks them all"
        )
    return ranking


def _choose(
    task: _Search, graph: Graph, order: Sequence[str], judge: Judge, by_labels: Judge | None
) -> FloatChoice:
    """Return the layers that stay float for the answers to hold; on labels too, if given."""

    def judged(keep_float: tuple[str, ...]) -> Judgement:
        task.work(f"{len(keep_float)} layers more in float", 0)
        start = task.budget.now()
        int8 = _built(task, graph, keep_float)
        found = judge.judge(int8)
        if by_labels is not None and found.certain_db >= task.bar:
            scored = by_labels.judge(int8)
            found = replace(found, metric=scored.metric, before=scored.before, after=scored.after)
        task.budget.tried(task.budget.now() - start)
        return found

    chosen = choose_layers(
        order,
        judged,
        min_sqnr=task.bar,
        max_drop=task.how.max_drop,
        out_of_time=lambda: task.budget.is_over,
    )
    if not chosen.holds and task.budget.is_over:
        task.notes.append(
            f"the search ended before the answers held, as {task.how.budget:g} minutes are for all "
            "steps; a larger --budget keeps more layers float"
        )
    return chosen


def _timed(
    task: _Search, graph: Graph, planned: Plan, chosen: FloatChoice
) -> tuple[LayerTimes | None, frozenset[str], frozenset[str]]:
    """Return the times of layers, those that stay float for time or noise, and those that might.

    Where there is no time to take them, that is only for their noise.
    """
    noisy, how = frozenset(chosen.keep_float), task.how
    rounds = task.budget.timing_rounds(ROUNDS)
    if not rounds:
        task.notes.append("there was no time to time single layers; a larger --budget does that")
        return None, noisy, frozenset()
    with task.step("time") as advance:
        runs = chosen.trials[0].judgement is not None  # with all layers in 8 bits
        timed = planned
        if not runs:
            timed = plan(graph, load_ranges(task.ranges), (*how.keep_float, *noisy))
        int8 = _built(task, graph, () if runs else noisy)
        times = layer_times(
            graph,
            int8,
            timed,
            how.settings,
            data=task.timed_with,
            rounds=rounds,
            advance=advance,
        )
    found = choose(graph, timed, times, noisy & timed.chains.keys())
    return times, found.stay_float | noisy, found.undecided


def _compared(
    task: _Search, graph: Graph, planned: Plan, is_on: bool, floats: dict[str, frozenset[str]]
) -> Gain:
    """Return what the better of the 8-bit graphs gains over float, end to end."""
    if len(floats[FEWER]) in (len(floats[INT8]), len(planned.chains)):
        floats = {INT8: floats[INT8]}
    budget = task.budget
    if FEWER in floats and budget.to_compare(DEPTHS[-1], 1 + GRAPHS) > budget.left - budget.last:
        floats = {INT8: floats[INT8]}
    with task.step("compare") as advance:
        return faster(
            task.graph,
            {name: _built(task, graph, each) for name, each in floats.items()},
            is_on,
            task.how.settings,
            data=task.timed_with,
            depth=budget.comparing(GRAPHS - 1 + len(floats)),
            advance=advance,
        )


def _judge_by_labels(task: _Search, stack: contextlib.ExitStack) -> Judge | None:
    if task.evaluation is None:
        return None
    with task.evaluation.named():
        feeds, metric = task.evaluation.feeds(), task.how.metric
        labels = task.evaluation.labels_of(feeds)
        if labels is None and ":" not in metric:
            raise GraphError(
                f"metric {metric} needs an array `labels`, which the evaluation data do not hold"
            )
    judge = stack.enter_context(Judge(task.graph, feeds, labels, metric))
    if metric in ("top1", "top5"):
        with task.evaluation.named():
            task.notes.extend(doubts(judge, labels, task.how))
    return judge


def _float(task: _Search, reason: str, layers: tuple[LayerOutcome, ...] = ()) -> Quantized:
    reason = f"{reason}, so the float graph is kept"
    return Quantized(task.graph, True, reason, layers, **_facts(task))


def _facts(task: _Search) -> dict[str, Any]:
    return {
        "isa": "vnni" if sums_exactly(task.how.isa) else "avx2",
        "samples": samples_in(task.samples.calibrating.feeds()),
        "seconds": task.seconds,
        "notes": tuple(dict.fromkeys(task.notes)),
    }


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


def _too_noisy(chosen: FloatChoice, task: _Search) -> str:
    """Return why no layer is in 8 bits."""
    tried = [each for each in chosen.trials if len(each.keep_float) < len(chosen.keep_float)]
    if not any(trial.judgement for trial in tried):
        return "TensorFlow cannot run the 8-bit graph"
    return (
        f"with any layer in 8 bits the answers keep less than {task.bar:g} dB or fall by "
        f"more than {task.how.max_drop:g}"
    )
