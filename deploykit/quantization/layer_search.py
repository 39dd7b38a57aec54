"""Which layers of a calibrated graph are in 8 bits in an engine: by their noise and their times.

Layers are ranked by the noise that each brings alone, and timed in float and in 8 bits. Those stay
float that cost the least time with which the answers hold.
"""

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deploykit.quantization.accuracy import Judge
from deploykit.quantization.keep_float import (
    FloatChoice,
    FloatOption,
    Trial,
    cheapest_options,
    choose_among,
    tried,
)
from deploykit.quantization.rounding import round_in_time
from deploykit.quantization.scoring import Judgement
from deploykit.quantization.search_task import SearchTask
from deploykit.quantization.sensitivity import JUDGED, Noise, rank_each
from deploykit.quantization.target import EngineTarget
from deploykit.quantization.timing.int8_choice import choose, time_gained
from deploykit.quantization.timing.layer_times import ROUNDS, LayerTimes
from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.int8.weights import Rounded
from deploykit.transforms.ir.graph import Graph

FOR_TIME = "as there was no time for more, so other layers may be in 8 bits; a larger --budget"


@dataclass(frozen=True)
class Calibrated:
    """A calibrated graph, which layers of it can be in 8 bits, and who judges that."""

    graph: Graph
    plan: Plan
    judge: Judge
    by_labels: Judge | None
    rounded: Rounded = field(default_factory=dict)
    """The weights that were chosen on samples; of other layers, the nearest int8 values are."""

    def built(self, task: SearchTask, target: EngineTarget, stay_float: Collection[str]) -> Graph:
        """Return it in int8 for an engine, but for some layers."""
        retained = (*task.how.keep_float, *stay_float)
        return target.built(self.graph, task.ranges, task.how.isa, retained, self.rounded)

    def alone(self, task: SearchTask, target: EngineTarget, layer: str) -> Graph:
        """Return it with one int8 layer, whose bias takes back what its own weights shift."""
        key = self.plan.chains[layer].biased
        value = self.rounded.get(key)
        rounded = {} if value is None else {key: replace(value, bias=value.own_bias)}
        stay_float = self.plan.chains.keys() - {layer}
        return replace(self, rounded=rounded).built(task, target, stay_float)


@dataclass(frozen=True)
class LayerChoice:
    """What becomes of layers in an engine."""

    ranking: Sequence[Noise]
    """Noisiest first."""
    chosen: FloatChoice
    departing: frozenset[str]
    """Layers that the engine computes otherwise than TensorFlow, so that they stay float."""
    times: LayerTimes | None
    slow: frozenset[str]
    """Layers that stay float for their time, or for what else is said here."""
    unclear: frozenset[str]
    """Layers that may be faster in float, as far as their times tell."""
    rounded: Rounded
    """The int8 weights for this choice."""

    @property
    def noisy(self) -> frozenset[str]:
        """Layers that have to stay float."""
        return self.departing.union(self.chosen.keep_float)


def chosen_layers(
    task: SearchTask, calibrated: Calibrated, target: EngineTarget, known: Sequence[Noise]
) -> LayerChoice:
    """Return which layers are int8 in an engine: all, where that keeps the outputs.

    `known`: the noise of layers in another engine. GraphError: the engine cannot run the graph,
    whichever layers are int8.
    """
    return _LayerSearch(task, calibrated, target, known).run()


@dataclass
class _LayerSearch:
    """The search for the layers that are int8 in an engine."""

    task: SearchTask
    found: Calibrated
    target: EngineTarget
    ranking: Sequence[Noise]
    """Noisiest first; at the beginning, as far as it is known from another engine."""
    departing: frozenset[str] = frozenset()
    """Layers that the engine computes otherwise than TensorFlow."""
    agrees: bool = False
    """Whether the engine is known to compute the rest as TensorFlow does."""

    def run(self) -> LayerChoice:
        """Return what becomes of layers."""
        whole = self._tried()
        if self._holds(whole):
            times, timed = self._timed(whole)
            return self._with_times(FloatChoice(whole, True, (whole,)), times, timed)
        whole = self._better_rounded(whole)
        self.ranking = self._ranked()
        self._find_departing()
        if self.departing >= self.found.plan.chains.keys():
            none = FloatChoice(Trial((), None), False, ())
            departing = self.departing
            return LayerChoice(self.ranking, none, departing, None, departing, frozenset(), {})
        if self.departing:
            whole = self._tried()
        times, timed = self._timed(whole)
        chosen = self._chosen(whole, times, timed)
        if not chosen.holds and self.task.budget.is_over:
            self.task.notes.append(
                f"the search ended before the answers held, as {self.task.how.budget:g} minutes "
                "are for all steps; a larger --budget keeps more layers float"
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
        """Judge the graph in which some layers, and those that depart, are float32."""
        task, result, target = self.task, self.found, self.target
        task.work(f"{len(keep_float)} layers more in float", 0)
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
        """Take the nearest int8 weights where these keep more; return the trial of all layers.

        `whole` is that trial with the weights as they are.
        """
        if not self.found.rounded or self.task.budget.is_over:
            return whole
        other = replace(self, found=replace(self.found, rounded={}))
        nearest = other._tried()
        if nearest.judgement is None or whole.judgement is None:
            return whole
        if not nearest.judgement.certain_db > whole.judgement.certain_db:
            return whole
        self.task.notes.append(
            f"{self.target.title}: weights are rounded to the nearest int8 value, which keeps more "
            "of the outputs here than rounding by output error"
        )
        self.found = other.found
        return nearest

    def _ranked(self) -> list[Noise]:
        """Return the layers by the noise that each brings, noisiest first.

        Those that were judged before are not judged again, nor those that are known from another
        engine, where they could be computed. Those for which there is no time are left out.
        """
        task, result, target = self.task, self.found, self.target
        state, layers = task.state, result.plan.chains.keys()
        key = "noise" if target.is_tensorflow else f"noise in {target.use}"
        noise = {name: Noise(**item) for name, item in state.found.get(key, {}).items()}
        noise |= {item.layer: item for item in self.ranking if not item.fault}

        def keep(entry: Noise) -> None:
            noise[entry.layer] = entry
            state.keep(key, {name: vars(item) for name, item in noise.items()})

        budget, judge = task.budget, result.judge
        samples = budget.ranking_samples(len(layers), JUDGED)
        fewer = task.samples.held_out.spread(samples)
        if samples < min(JUDGED, task.samples.held_out.count):
            task.notes.append(
                f"layers were ranked by {fewer.count} samples, {FOR_TIME} takes {JUDGED}"
            )
        with task.step("rank") as advance, contextlib.ExitStack() as stack:
            is_known = layers <= noise.keys()
            few = fewer.count < task.samples.held_out.count
            if few and not is_known and budget.left > budget.for_trials:
                judge = stack.enter_context(Judge(task.graph, fewer.feeds()))
            end = budget.ranking_until()
            ranking = rank_each(
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
                f"only {len(ranking)} of {len(layers)} layers were ranked in the time there was; a "
                "larger --budget ranks them all"
            )
        return ranking

    def _find_departing(self) -> None:
        """Find the layers that the engine computes otherwise than TensorFlow the same codes.

        They are looked for one by one, the noisiest first, where the whole departs.
        """
        if self.target.is_tensorflow:
            self.agrees = True
            return
        departing = {item.layer for item in self.ranking if item.fault}
        layers = self.found.plan.chains.keys()
        with self.task.step("judge") as work:
            agrees = not self._departs(departing)
            for item in self.ranking:
                if agrees or self.task.budget.is_over:
                    break
                work(f"{item.layer} beside TensorFlow", 0)
                if item.layer not in departing and self._departs(layers - {item.layer}):
                    departing.add(item.layer)
                    agrees = not self._departs(departing)
        self.departing, self.agrees = frozenset(departing), agrees

    def _departs(self, stay_float: Collection[str]) -> bool:
        found_ = self.found
        try:
            int8 = found_.built(self.task, self.target, stay_float)
            return found_.judge.departs(int8, self.target.engine)
        except GraphError:
            return True

    def _timed(self, whole: Trial) -> tuple[LayerTimes | None, Plan]:
        """Return the times of layers, and the plan of the graph in which they were taken.

        Where there is no time to take them, or no graph to take them in, there are none.
        """
        task, result = self.task, self.found
        rounds = task.budget.timing_rounds(ROUNDS)
        if not rounds:
            task.notes.append(
                "there was no time to time single layers; a larger --budget does that"
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
        """Return the layers that stay float for their noise; `whole`: none does."""
        gained = {} if times is None else time_gained(self.found.graph, timed, times)
        with self.task.step("judge"):
            options = options_of(self.found, self.ranking, gained, self.departing)
            return choose_among(
                [option.layers for option in options],
                self._judged,
                self._holds,
                start=place_of(options, whole.judgement, self.task.bar),
                known={0: whole},
                out_of_time=lambda: self.task.budget.is_over,
            )

    def _rounded_again(self, chosen: FloatChoice) -> FloatChoice:
        """Round layers for what those before them give once some are float32, if that is better."""
        task, retained = self.task, self.departing.union(chosen.keep_float)
        if retained >= self.found.plan.chains.keys() or not self.found.rounded:
            return chosen
        if task.budget.left - task.budget.for_trials < 2 * task.seconds.get("round", 0.0):
            return chosen
        rounded, notes = round_in_time(
            task, self.found.graph, task.samples.calibrating, sorted(retained)
        )
        other = replace(self, found=replace(self.found, rounded=rounded), agrees=False)
        trial, before = other._tried(chosen.keep_float), chosen.best.judgement
        if before is None or not self._holds(trial):
            return chosen
        assert trial.judgement is not None
        if trial.judgement.certain_db <= before.certain_db:
            return chosen
        task.notes.extend(notes)
        self.found = other.found
        return replace(chosen, best=trial, trials=(*chosen.trials, trial))

    def _with_times(
        self, chosen: FloatChoice, times: LayerTimes | None, timed: Plan
    ) -> LayerChoice:
        """Return the choice with the layers that are kept in float32 for their time."""
        slow, unclear = self.departing.union(chosen.keep_float), frozenset[str]()
        if times is not None:
            noisy = slow
            fastest = choose(self.found.graph, timed, times, noisy & timed.chains.keys())
            slow, unclear = fastest.stay_float | noisy, fastest.undecided - noisy
        rounded = self.found.rounded
        return LayerChoice(self.ranking, chosen, self.departing, times, slow, unclear, rounded)


def options_of(
    calibrated: Calibrated,
    ranking: Sequence[Noise],
    gained: Mapping[str, int],
    left: Collection[str],
) -> list[FloatOption]:
    """Return sets of layers to be tried in float, besides those that are left in it in any case.

    A layer that was not ranked is in float in the last one alone.
    """
    noise = dict.fromkeys(calibrated.plan.chains, 0.0)
    noise |= {e.layer: 10 ** (-e.sqnr_db / 10) if not e.fault else math.inf for e in ranking}
    return cheapest_options({n: p for n, p in noise.items() if n not in left}, gained)


def place_of(options: Sequence[FloatOption], whole: Judgement | None, bar: float) -> int:
    """Return which of the options keeps a bar in dB, as far as their noise tells.

    It is as far from the truth as it is for the first one, which was judged.
    """
    first, allowed = options[0].noise, 10 ** (-bar / 10)
    if whole is not None and math.isfinite(whole.certain_db) and 0 < first < math.inf:
        allowed *= first / 10 ** (-whole.certain_db / 10)
    places = (place for place, item in enumerate(options) if item.noise <= allowed)
    return next(places, len(options) - 1)


def _are_fast(graph: Graph, timed: Plan, times: LayerTimes) -> bool:
    """Return whether no layer is slower in int8 by these times, nor may be."""
    result = choose(graph, timed, times)
    return not result.stay_float and not result.undecided
