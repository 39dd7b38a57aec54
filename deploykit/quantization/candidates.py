"""Results of an int8 search in each engine, and the choice between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deploykit.benchmarking.speed_verdict import FASTER, SLOWER
from deploykit.quantization.accuracy import Judgement
from deploykit.quantization.layer_search import Calibrated, LayerChoice, chosen_layers
from deploykit.quantization.quantize_options import below_in_group, few_agree
from deploykit.quantization.result import LayerOutcome, Quantized, layer_outcomes
from deploykit.quantization.search_task import GRAPHS, SearchTask
from deploykit.quantization.sensitivity import Noise
from deploykit.quantization.target import EngineTarget
from deploykit.quantization.timing.layer_times import LayerTimes
from deploykit.quantization.timing.speed import FEWER, INT8, Standing, faster, undecided
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.int8_kernels import sums_exactly
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.feeds import samples_in
from deploykit.verification.tolerance import QUANTIZED_BAR_DB


@dataclass(frozen=True)
class Candidate:
    """The result of a search in one engine, before graphs are benchmarked."""

    target: EngineTarget
    choice: LayerChoice | None = None
    """The choice of layers; None: no layer will be int8."""
    why_float: str = ""
    layers: tuple[LayerOutcome, ...] = ()

    @property
    def times(self) -> LayerTimes | None:
        """Times of the layers; None: not measured."""
        return None if self.choice is None else self.choice.times

    def stays_float(self, which: str) -> frozenset[str]:
        """Return the layers that are kept in float32 in the graph INT8 or FEWER."""
        assert self.choice is not None
        return self.choice.slow if which == FEWER else self.choice.noisy


def candidate_in(
    task: SearchTask, calibrated: Calibrated, target: EngineTarget, known: Sequence[Noise]
) -> Candidate:
    """Choose the int8 layers for an engine; `known` is their noise in another engine."""

    def stopped(why: str, choice: LayerChoice | None = None) -> Candidate:
        ranges = load_ranges(task.ranges)
        layers = layer_outcomes(calibrated.graph, calibrated.plan, ranges, choice, target)
        return Candidate(target, None, why, layers)

    if not calibrated.plan.chains:
        return stopped("no layer can run in int8")
    if missing := target.missing():
        return Candidate(
            target, None, f"this TensorFlow lacks the ops {', '.join(sorted(missing))}"
        )
    try:
        choice = chosen_layers(task, calibrated, target, known)
    except GraphError as error:
        if target.is_tensorflow:
            raise
        return stopped(f"{target.title} cannot run it in int8 ({error})")
    chosen = choice.chosen
    is_bound = task.how.min_sqnr is not None or task.evaluation is not None
    is_below = is_bound or not _is_right(chosen.best.judgement)
    if not chosen.holds and task.budget.is_over and is_below:
        why = "int8 is too inaccurate, and the search for layers to keep in float32 ran out of time"
        return stopped(why, choice)
    if len(choice.noisy) == len(calibrated.plan.chains):
        return stopped(_too_noisy(choice, target, task), choice)
    return Candidate(target, choice)


def best_of(
    task: SearchTask, calibrated: Calibrated | None, candidates: Sequence[Candidate]
) -> Quantized:
    """Benchmark the graphs of all engines, interleaved, and return the best result."""
    standings: list[Standing | None] = [None] * len(candidates)
    if len(candidates) > 1 or candidates[0].choice is not None:
        graphs = _graphs(task, calibrated, candidates)
        is_on = _onednn_is_on(candidates, calibrated)
        entrants = [
            item.target.entrants(task.graph, int8, task.how.settings, is_on, item.times)
            for item, int8 in zip(candidates, graphs, strict=True)
        ]
        with task.step("compare") as advance:
            standings = [
                *faster(
                    task.graph,
                    entrants,
                    data=task.timed_with,
                    depth=task.budget.comparing(sum(len(entrant.graphs) for entrant in entrants)),
                    advance=advance,
                )
            ]
    with task.step("judge the result"):
        if len(candidates) == 1:
            return _concluded(task, calibrated, candidates[0], standings[0])
        return _better(task, calibrated, candidates, standings)


def _graphs(
    task: SearchTask, calibrated: Calibrated | None, candidates: Sequence[Candidate]
) -> list[dict[str, Graph]]:
    """Return, by engine, the int8 graphs that there is time to compare."""
    budget, graphs = task.budget, []
    for candidate in candidates:
        int8 = dict[str, Graph]()
        if candidate.choice is not None:
            assert calibrated is not None
            names = [INT8]
            noisy, slow = candidate.choice.noisy, candidate.choice.slow
            is_other = len(slow) not in (len(noisy), len(calibrated.plan.chains))
            if is_other and budget.has_time_to_compare(len(candidates) * GRAPHS + 1):
                names.append(FEWER)
            chosen = replace(calibrated, rounded=candidate.choice.rounded)
            int8 = {
                n: chosen.built(task, candidate.target, candidate.stays_float(n)) for n in names
            }
        graphs.append(int8)
    return graphs


def _onednn_is_on(candidates: Sequence[Candidate], calibrated: Calibrated | None) -> bool:
    """Return whether TensorFlow runs plain ops on oneDNN, as measured."""
    for candidate in candidates:
        if candidate.target.is_tensorflow and candidate.times is not None:
            return candidate.times.usual.onednn_is_on
    return calibrated is None or calibrated.judge.facts()[1]


def _better(
    task: SearchTask,
    calibrated: Calibrated | None,
    candidates: Sequence[Candidate],
    standings: Sequence[Standing | None],
) -> Quantized:
    """Return the other engine's result if it is significantly faster, or else TensorFlow's.

    If only one of both is int8, it is the result unless it is significantly slower.
    """
    other, own = standings
    assert other is not None
    assert own is not None
    verdict = other.beside(own)
    is_faster = verdict.kind == FASTER
    if other.is_int8 and not own.is_int8:
        is_faster = verdict.kind != SLOWER
    chosen = 0 if is_faster else 1
    title = candidates[0].target.title
    runs = title if is_faster else "TensorFlow"
    if is_faster and verdict.kind != FASTER:
        runs += ", the only engine with an int8 graph,"
    mark = f", {verdict.busy}" if verdict.busy else ""
    why = (
        f"{title} with its best graph is {verdict.wall.in_words()} as fast as TensorFlow with its "
        f"best graph{mark}: {runs} runs it"
    )
    result = _concluded(task, calibrated, candidates[chosen], standings[chosen])
    return replace(result, engine_reason=why, engine_verdict=verdict)


def _concluded(
    task: SearchTask, calibrated: Calibrated | None, of: Candidate, standing: Standing | None
) -> Quantized:
    """Return the result for an engine: int8 unless significantly slower or too inaccurate."""
    if of.choice is None or calibrated is None or standing is None or standing.gain is None:
        return Quantized(task.graph, True, of.why_float, of.layers, **_facts(task, of.target))
    choice, gain, target = of.choice, standing.gain, of.target
    stay_float = of.stays_float(gain.name)
    int8 = replace(calibrated, rounded=choice.rounded).built(task, target, stay_float)
    judgement = choice.chosen.best.judgement
    if stay_float != choice.noisy or judgement is None:
        judgement = target.judged(calibrated.judge, int8)
    judgement = replace(judgement, metric="", before=None, after=None)
    evaluation = None if calibrated.by_labels is None else target.judged(calibrated.by_labels, int8)
    reason, is_kept = str(gain), gain.is_kept and _is_right(judgement)
    if not target.is_tensorflow:
        reason = f"in {target.title}, {reason}"
    if not _is_right(judgement):
        reason = (
            f"int8 is too inaccurate: SQNR {judgement.certain_db:.1f} dB on held-out samples (95 % "
            f"confidence), expected at least {QUANTIZED_BAR_DB:g} dB; a higher --min-sqnr keeps "
            "more layers in float32"
        )
    if is_kept:
        task.notes.extend(few_agree(judgement.agreement))
        for item in (judgement, evaluation):
            if item is not None:
                task.notes.extend(below_in_group(item.groups, task.bar))
        slower = choice.slow - stay_float if choice.slow < calibrated.plan.chains.keys() else ()
        task.notes.extend(undecided(gain, slower, choice.unclear))
    return Quantized(
        graph=int8 if is_kept else task.graph,
        is_float=not is_kept,
        reason=reason,
        layers=layer_outcomes(
            calibrated.graph, calibrated.plan, load_ranges(task.ranges), choice, target, stay_float
        ),
        judgement=judgement,
        evaluation=evaluation,
        gain=gain,
        **_facts(task, target),
    )


def _is_right(judgement: Judgement | None) -> bool:
    """Return whether the outputs meet the minimum SQNR of any int8 graph."""
    return judgement is not None and judgement.certain_db >= QUANTIZED_BAR_DB


def _too_noisy(choice: LayerChoice, target: EngineTarget, task: SearchTask) -> str:
    """Return why no layer is int8."""
    chosen = choice.chosen
    if len(choice.departing) == len(choice.noisy):
        return f"every int8 layer differs from TensorFlow in {target.title}"
    tried = [trial for trial in chosen.trials if len(trial.keep_float) < len(chosen.keep_float)]
    if not any(trial.judgement for trial in tried):
        return f"{target.title} cannot run the int8 graph"
    best = max(
        (trial.judgement for trial in tried if trial.judgement), key=lambda item: item.certain_db
    )
    return (
        f"int8 is too inaccurate: with int8 layers, SQNR is at most {best.sqnr_db:.1f} dB (95 % "
        f"lower bound {best.certain_db:.1f} dB), expected {task.bar:g} dB, or the metric drops by "
        f"more than {task.how.max_drop:g}"
    )


def _facts(task: SearchTask, target: EngineTarget) -> dict[str, Any]:
    return {
        "use": target.use,
        "isa": "vnni" if sums_exactly(task.how.isa) else "avx2",
        "samples": samples_in(task.samples.calibrating.feeds()),
        "seconds": task.seconds,
        "notes": tuple(dict.fromkeys(task.notes)),
    }
