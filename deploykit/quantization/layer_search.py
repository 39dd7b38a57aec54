"""Chooses the int8 layers of a calibrated graph for an engine, by their noise and their times.

Layers are ranked by the noise of each alone in int8, and timed in float32 and int8. The search
keeps layers in float32 until the accuracy thresholds are met, at the least cost in time.
"""

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.rounding import round_in_time
from deploykit.quantization.search_task import SearchTask
from deploykit.quantization.sensitivity import (
    JUDGED,
    FloatChoice,
    FloatOption,
    Noise,
    Trial,
    cheapest_options,
    choose_among,
    rank_alone,
    tried,
)
from deploykit.quantization.target import EngineTarget
from deploykit.quantization.timing.int8_choice import choose, time_gained
from deploykit.quantization.timing.layer_times import ROUNDS, LayerTimes
from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.weights import Rounded
from deploykit.transforms.ir.graph import Graph

FOR_TIME = "as the time budget is short, so the choice of int8 layers may differ; a larger --budget"


@dataclass(frozen=True)
class Calibrated:
    """A calibrated graph, the plan of its possible int8 layers, and the comparisons with it."""

    graph: Graph
    plan: Plan
    judge: Evaluator
    by_labels: Evaluator | None
    rounded: Rounded = field(default_factory=dict)
    """The int8 weights that were chosen on samples; other layers use the nearest int8 values."""

    def built(self, task: SearchTask, target: EngineTarget, stay_float: Collection[str]) -> Graph:
        """Return the int8 graph for an engine, with some layers in float32."""
        retained = (*task.how.keep_float, *stay_float)
        return target.built(self.graph, task.ranges, task.how.isa, retained, self.rounded)

    def alone(self, task: SearchTask, target: EngineTarget, layer: str) -> Graph:
        """Return the graph with one int8 layer, its bias corrected for its own weights only."""
        key = self.plan.chains[layer].biased
        value = self.rounded.get(key)
        rounded = {} if value is None else {key: replace(value, bias=value.own_bias)}
        stay_float = self.plan.chains.keys() - {layer}
        return replace(self, rounded=rounded).built(task, target, stay_float)


@dataclass(frozen=True)
class LayerChoice:
    """The choice of int8 and float32 layers for an engine."""

    ranking: Sequence[Noise]
    """The noise of layers, noisiest first."""
    chosen: FloatChoice
    departing: frozenset[str]
    """Layers whose outputs in the engine differ from TensorFlow's, kept in float32."""
    times: LayerTimes | None
    slow: frozenset[str]
    """All layers that are kept in float32: those slower in int8, and those in `noisy`."""
    unclear: frozenset[str]
    """Layers that may be faster in float32, but not significantly."""
    rounded: Rounded
    """The int8 weights for this choice."""

    @property
    def noisy(self) -> frozenset[str]:
        """Layers that must be kept in float32."""
        return self.departing.union(self.chosen.keep_float)


def chosen_layers(
    task: SearchTask, calibrated: Calibrated, target: EngineTarget, known: Sequence[Noise]
) -> LayerChoice:
    """Choose the int8 layers for an engine: all, if that meets the accuracy thresholds.

    `known` is the noise of layers in another engine. GraphError: the engine cannot run the graph
    with any choice of int8 layers.
    """
    return _LayerSearch(task, calibrated, target, known).run()


@dataclass
class _LayerSearch:
    """The search for the int8 layers in an engine."""

    task: SearchTask
    calibrated: Calibrated
    target: EngineTarget
    ranking: Sequence[Noise]
    """The noise of layers, noisiest first; initially from another engine, if known."""
    departing: frozenset[str] = frozenset()
    """Layers whose outputs in the engine differ from TensorFlow's."""
    agrees: bool = False
    """Whether the outputs with all other layers in int8 are known to match TensorFlow's."""

    def run(self) -> LayerChoice:
        """Run the search and return the choice of layers."""
        whole = self._tried()
        if self._holds(whole):
            times, timed = self._timed(whole)
            return self._with_times(FloatChoice(whole, True, (whole,)), times, timed)
        whole = self._better_rounded(whole)
        self.ranking = self._ranked()
        self._find_departing()
        if self.departing >= self.calibrated.plan.chains.keys():
            none = FloatChoice(Trial((), None), False, ())
            departing = self.departing
            return LayerChoice(self.ranking, none, departing, None, departing, frozenset(), {})
        if self.departing:
            whole = self._tried()
        times, timed = self._timed(whole)
        chosen = self._chosen(whole, times, timed)
        if not chosen.holds and self.task.budget.is_over:
            self.task.notes.append(
                "the search ended before the accuracy threshold was met, as the time budget for "
                f"all steps is {self.task.how.budget:g} minutes; with a larger --budget, more "
                "layers are kept in float32"
            )
        if chosen.holds and chosen.keep_float:
            chosen = self._rounded_again(chosen)
        return self._with_times(chosen, times, timed)

    def _holds(self, trial: Trial) -> bool:
        return trial.meets_bar(self.task.bar, self.task.how.max_drop)

    def _tried(self, keep_float: tuple[str, ...] = ()) -> Trial:
        with self.task.step("judge"):
            return tried(keep_float, self._judged)

    def _judged(self, keep_float: tuple[str, ...]) -> Judgement:
        """Evaluate the graph with these layers, and the differing ones, in float32."""
        task, result, target = self.task, self.calibrated, self.target
        task.work(f"{len(keep_float)} more layers in float32", 0)
        start = task.budget.now()
        int8 = result.built(task, target, self.departing.union(keep_float))
        judgement = target.judged(result.judge, int8)
        is_known = self.agrees or target.is_tensorflow
        if not is_known and result.judge.departs(int8, target.engine):
            raise GraphError("engine-differs", engine=target.title)
        if result.by_labels is not None and judgement.certain_db >= task.bar:
            scored = target.judged(result.by_labels, int8)
            judgement = replace(
                judgement, metric=scored.metric, before=scored.before, after=scored.after
            )
        task.budget.tried(task.budget.now() - start)
        return judgement

    def _better_rounded(self, whole: Trial) -> Trial:
        """Use the nearest int8 weights if they give a higher SQNR; return the trial of all layers.

        `whole` is that trial with the current weights.
        """
        if not self.calibrated.rounded or self.task.budget.is_over:
            return whole
        other = replace(self, calibrated=replace(self.calibrated, rounded={}))
        nearest = other._tried()
        if nearest.judgement is None or whole.judgement is None:
            return whole
        if not nearest.judgement.certain_db > whole.judgement.certain_db:
            return whole
        self.task.notes.append(
            f"{self.target.title}: weights are rounded to the nearest int8 value, as this gives a "
            "higher SQNR here than rounding by output error"
        )
        self.calibrated = other.calibrated
        return nearest

    def _ranked(self) -> list[Noise]:
        """Return the noise of each layer alone in int8, noisiest first.

        Earlier results are reused, as are those of another engine in which the layer could run.
        Layers are skipped once the time is used up.
        """
        task, result, target = self.task, self.calibrated, self.target
        state, layers = task.state, result.plan.chains.keys()
        key = "noise" if target.is_tensorflow else f"noise in {target.use}"
        noise = {name: Noise(**item) for name, item in state.stored.get(key, {}).items()}
        noise |= {item.layer: item for item in self.ranking if not item.fault}

        def keep(entry: Noise) -> None:
            noise[entry.layer] = entry
            state.keep(key, {name: vars(item) for name, item in noise.items()})

        budget, judge = task.budget, result.judge
        samples = budget.ranking_samples(len(layers), JUDGED)
        fewer = task.samples.held_out.spread(samples)
        if samples < min(JUDGED, task.samples.held_out.count):
            task.notes.append(
                f"layers were ranked by {fewer.count} samples, {FOR_TIME} uses {JUDGED}"
            )
        with task.step("rank") as advance, contextlib.ExitStack() as stack:
            is_known = layers <= noise.keys()
            few = fewer.count < task.samples.held_out.count
            if few and not is_known and budget.left > budget.for_trials:
                judge = stack.enter_context(Evaluator.on(task.graph, fewer))
            end = budget.ranking_until()
            ranking = rank_alone(
                {layer: result.graph[layer].op for layer in layers},
                lambda layer: result.alone(task, target, layer),
                lambda alone: target.judged(judge, alone),
                known=noise,
                on_result=keep,
                advance=advance,
                out_of_time=lambda: budget.now() >= end,
            )
        if len(ranking) < len(layers):
            task.notes.append(
                f"only {len(ranking)} of {len(layers)} layers were ranked in the time budget; a "
                "larger --budget ranks them all"
            )
        return ranking

    def _find_departing(self) -> None:
        """Find the layers whose outputs in the engine differ from TensorFlow's for the same codes.

        If the whole graph differs, layers are tested one by one, the noisiest first.
        """
        if self.target.is_tensorflow:
            self.agrees = True
            return
        departing = {item.layer for item in self.ranking if item.fault}
        layers = self.calibrated.plan.chains.keys()
        with self.task.step("judge") as work:
            agrees = not self._departs(departing)
            for item in self.ranking:
                if agrees or self.task.budget.is_over:
                    break
                work(f"{item.layer} compared with TensorFlow", 0)
                if item.layer not in departing and self._departs(layers - {item.layer}):
                    departing.add(item.layer)
                    agrees = not self._departs(departing)
        self.departing, self.agrees = frozenset(departing), agrees

    def _departs(self, stay_float: Collection[str]) -> bool:
        found_ = self.calibrated
        try:
            int8 = found_.built(self.task, self.target, stay_float)
            return found_.judge.departs(int8, self.target.engine)
        except GraphError:
            return True

    def _timed(self, whole: Trial) -> tuple[LayerTimes | None, Plan]:
        """Return the times of layers, and the plan of the graph in which they were measured.

        The times are None if the budget is too short, or if no int8 graph can run.
        """
        task, result = self.task, self.calibrated
        rounds = task.budget.timing_rounds(ROUNDS)
        if not rounds:
            task.notes.append(
                "there was no time to measure single layers; a larger --budget measures them"
            )
            return None, result.plan
        stay_float = set(self.departing)
        if whole.judgement is None:
            stay_float |= {item.layer for item in self.ranking if item.fault}
        timed = result.plan
        if stay_float:
            retained = (*task.how.keep_float, *stay_float)
            timed = plan(result.graph, load_ranges(task.ranges), retained)
        if not timed.chains:
            return None, timed
        with task.step("time") as advance:
            try:
                times = self.target.times(
                    result.graph,
                    result.built(task, self.target, stay_float),
                    timed,
                    task.how.settings,
                    data=task.timed_with,
                    rounds=rounds,
                    advance=advance,
                    decided=lambda times: _are_fast(result.graph, timed, times),
                )
            except (GraphError, CrashError) as error:
                task.notes.append(f"single layers could not be timed: {error}")
                return None, timed
        return times, timed

    def _chosen(self, whole: Trial, times: LayerTimes | None, timed: Plan) -> FloatChoice:
        """Choose the layers to keep in float32 for their noise; `whole` is the trial of none."""
        gained = {} if times is None else time_gained(self.calibrated.graph, timed, times)
        with self.task.step("judge"):
            options = options_of(self.calibrated, self.ranking, gained, self.departing)
            return choose_among(
                [option.layers for option in options],
                self._judged,
                self._holds,
                start=place_of(options, whole.judgement, self.task.bar),
                known={0: whole},
                out_of_time=lambda: self.task.budget.is_over,
            )

    def _rounded_again(self, chosen: FloatChoice) -> FloatChoice:
        """Round the weights again with some layers in float32, and keep them if SQNR is higher."""
        task, retained = self.task, self.departing.union(chosen.keep_float)
        if retained >= self.calibrated.plan.chains.keys() or not self.calibrated.rounded:
            return chosen
        if task.budget.left - task.budget.for_trials < 2 * task.seconds.get("round", 0.0):
            return chosen
        rounded, notes = round_in_time(
            task, self.calibrated.graph, task.samples.calibrating, sorted(retained)
        )
        other = replace(self, calibrated=replace(self.calibrated, rounded=rounded), agrees=False)
        trial, before = other._tried(chosen.keep_float), chosen.best.judgement
        if before is None or not self._holds(trial):
            return chosen
        assert trial.judgement is not None
        if trial.judgement.certain_db <= before.certain_db:
            return chosen
        task.notes.extend(notes)
        self.calibrated = other.calibrated
        return replace(chosen, best=trial, trials=(*chosen.trials, trial))

    def _with_times(
        self, chosen: FloatChoice, times: LayerTimes | None, timed: Plan
    ) -> LayerChoice:
        """Return the choice, with slow int8 layers kept in float32 too."""
        slow, unclear = self.departing.union(chosen.keep_float), frozenset[str]()
        if times is not None:
            noisy = slow
            fastest = choose(self.calibrated.graph, timed, times, noisy & timed.chains.keys())
            slow, unclear = fastest.stay_float | noisy, fastest.undecided - noisy
        rounded = self.calibrated.rounded
        return LayerChoice(self.ranking, chosen, self.departing, times, slow, unclear, rounded)


def options_of(
    calibrated: Calibrated,
    ranking: Sequence[Noise],
    gained: Mapping[str, int],
    left: Collection[str],
) -> list[FloatOption]:
    """Return sets of layers to try in float32, in addition to `left`.

    A layer that was not ranked is float32 only in the last set.
    """
    noise = dict.fromkeys(calibrated.plan.chains, 0.0)
    noise |= {e.layer: 10 ** (-e.sqnr_db / 10) if not e.fault else math.inf for e in ranking}
    return cheapest_options({n: p for n, p in noise.items() if n not in left}, gained)


def place_of(options: Sequence[FloatOption], whole: Judgement | None, bar: float) -> int:
    """Return the index of the first option predicted to meet a threshold in dB.

    The prediction error is assumed to be that of the first option, which was measured as `whole`.
    """
    first, allowed = options[0].noise, 10 ** (-bar / 10)
    if whole is not None and math.isfinite(whole.certain_db) and 0 < first < math.inf:
        allowed *= first / 10 ** (-whole.certain_db / 10)
    places = (place for place, item in enumerate(options) if item.noise <= allowed)
    return next(places, len(options) - 1)


def _are_fast(graph: Graph, timed: Plan, times: LayerTimes) -> bool:
    """Return whether these times show that no layer is slower in int8."""
    result = choose(graph, timed, times)
    return not result.stay_float and not result.undecided
