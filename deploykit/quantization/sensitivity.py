"""Measures the noise of each layer alone in int8, and chooses layers to keep in float32."""

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from deploykit.importers.open_model import OpenedModel
from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization.accuracy import Evaluator, Judgement
from deploykit.quantization.calibrated_graph import prepare
from deploykit.rendering.progress import Work, unseen
from deploykit.transforms.common.documents import AsHtml, Hidden, OrNull, Written, document, written
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.plan import plan
from deploykit.transforms.int8.ranges import TensorRange, load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.samples import Data, Dataset

STEPS = ("calibrate", "rank")
JUDGED = 16  # samples to measure each layer with; more hardly change the order


@dataclass(frozen=True)
class Noise:
    """The noise in the outputs when only this layer is int8."""

    layer: str
    op: str
    sqnr_db: Annotated[float, Written(digits=3)]
    """SQNR of the outputs in dB; -inf: the engine cannot run the graph."""
    fault: OrNull[str] = ""
    """Why the engine cannot run the graph."""


def _sample_counts(samples: tuple[int, int]) -> dict[str, int]:
    return {"calibration": samples[0], "held_out": samples[1]}


@dataclass(frozen=True)
class Sensitivity(AsHtml):
    """The layers of a model ranked by noise, and those that cannot run in int8."""

    ranking: Hidden[tuple[Noise, ...]]
    together: Judgement | None
    """Comparison with all layers in int8; None: that graph cannot run."""
    reasons: Annotated[Mapping[str, str], Written("float")]
    """Why each other layer is kept in float32."""
    ranges: Hidden[Mapping[str, TensorRange]]
    """Output range of each layer, after bias and activation."""
    samples: Annotated[tuple[int, int], Written(by=_sample_counts)]
    """Number of calibration samples and of held-out samples."""
    notes: tuple[str, ...] = ()
    model: Hidden[OpenedModel | None] = None
    """The model that was measured."""
    nodes: Hidden[int | None] = None
    """Number of nodes of the optimized graph."""
    fed: Hidden[Mapping[str, str]] = field(default_factory=dict)
    """Preprocessing of files for each input, in words."""

    @property
    @written()
    def layers(self) -> list[dict[str, Any]]:
        """The layers, noisiest first, each with its output range."""
        results = []
        for noise in self.ranking:
            range_ = self.ranges.get(noise.layer)
            ends = {"min": range_ and range_.min, "max": range_ and range_.max}
            results.append(document(noise) | ends)
        return results


def measure_sensitivity(
    graph: Graph,
    data: Data,
    *,
    ranges: str | None = None,
    isa: str = "auto",
    work: Work | None = None,
) -> Sensitivity:
    """Shift and calibrate an optimized graph, unless `ranges` is given, and rank its layers.

    `ranges` is the path of a ranges file. GraphError: the data do not fit; or as in `calibrate` and
    `Evaluator`.
    """
    samples = Dataset.of(graph, data)
    with samples.named():
        calibrating, held_out, note, _ = samples.split()
        feeds, judged = calibrating.feeds(), held_out.spread(JUDGED)
    notes = [note] if note else []
    work = work or unseen("sensitivity", *STEPS)
    with tempfile.TemporaryDirectory(prefix="deploykit-") as folder:
        reference = graph
        if ranges is None:
            ranges = str(Path(folder, "ranges.json"))
            graph, result = prepare(graph, feeds, ranges, advance=work.begin("calibrate"))
            notes += result
        known = load_ranges(ranges)
        planned = plan(graph, known)
        ranking, together = list[Noise](), None
        if planned.chains:
            with Evaluator.on(reference, judged) as judge:
                try:
                    together = judge.judge(int8_graph(graph, ranges, isa))
                except GraphError as error:
                    notes.append(f"the graph with all layers in int8 cannot run: {error}")
                layers = planned.chains.keys()
                ranking = rank_alone(
                    {layer: graph[layer].op for layer in layers},
                    lambda layer: int8_graph(graph, ranges, isa, layers - {layer}),
                    judge.judge,
                    advance=work.begin("rank"),
                )
    last = {layer: chain.nodes[-1].name for layer, chain in planned.chains.items()}
    return Sensitivity(
        tuple(ranking),
        together,
        planned.reasons,
        {layer: known.tensors[name] for layer, name in last.items() if name in known.tensors},
        (known.samples, judged.count),
        tuple(notes),
    )


def rank_alone(
    parts: Mapping[str, str],
    alone: Callable[[str], Graph],
    judge: Callable[[Graph], Judgement],
    *,
    known: Mapping[str, Noise] | None = None,
    on_result: Callable[[Noise], object] = lambda result: None,
    advance: Callable[[str, int], None] = lambda name, count: None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> list[Noise]:
    """Measure the noise of each layer or constant alone in int8; return them noisiest first.

    Args:
        parts: the ops by name, in execution order.
        alone: returns the graph in which only this part is int8.
        judge: a method of an Evaluator with the float32 graph and held-out samples.
        known: results of an earlier run, by part.
        on_result: called with each new result.
        advance: called before each part with its name and the number of parts.
        out_of_time: called before each part not in `known`; if it returns true, the rest are
            skipped.

    A part whose graph the engine cannot run comes first.
    """
    results = dict[str, Noise]()
    for part, op in parts.items():
        advance(part, len(parts))
        if known is not None and part in known:
            results[part] = known[part]
            continue
        if out_of_time():
            break
        try:
            results[part] = Noise(part, op, judge(alone(part)).sqnr_db)
        except GraphError as error:
            results[part] = Noise(part, op, float("-inf"), str(error))
        on_result(results[part])
    return sorted(results.values(), key=lambda noise: noise.sqnr_db)


_BOUNDS = np.geomspace(1, 1e-3, 200)  # shares of the total noise, 0.15 dB apart
_UNITS = 500  # resolution of a bound


@dataclass(frozen=True)
class Trial:
    """A set of layers kept in float32, and the quality of that graph."""

    keep_float: tuple[str, ...]
    judgement: Judgement | None
    """Comparison with the float32 graph; None: the engine cannot run the graph."""
    fault: str = ""
    """Why the engine cannot run the graph."""

    def meets_bar(self, min_sqnr: float, max_drop: float) -> bool:
        """Return whether SQNR (dB) and metric drop are within these thresholds."""
        result = self.judgement
        if result is None or not result.certain_db >= min_sqnr:
            return False
        return result.drop is None or result.drop <= max_drop


@dataclass(frozen=True)
class FloatChoice:
    """The layers to keep in float32, and all trials."""

    best: Trial
    holds: bool
    """Whether the best trial meets the thresholds."""
    trials: tuple[Trial, ...]
    """The trials, in the order in which they were made."""

    @property
    def keep_float(self) -> tuple[str, ...]:
        """The layers that are kept in float32, noisiest first."""
        return self.best.keep_float


def choose_among(
    options: Sequence[tuple[str, ...]],
    judge: Callable[[tuple[str, ...]], Judgement],
    meets_bar: Callable[[Trial], bool],
    *,
    start: int = 1,
    known: Mapping[int, Trial] | None = None,
    out_of_time: Callable[[], bool] = lambda: False,
) -> FloatChoice:
    """Return the first set of layers that meets the thresholds when kept in float32.

    Noise decreases from each set to the next, with small exceptions. After the first set, `start`
    is tried, then sets ever farther from it until some pass and some fail, then sets between:
    at most about 2 log2 of their number. The callback `judge` compares the graph in which a set is
    float32. `known` are earlier trials by index. `out_of_time` is called before each trial but the
    first; if it returns true, the best trial so far is returned.

    If no set passes, the least noisy one is returned. A trial that raises GraphError has failed; if
    all trials raise, GraphError is raised with the last reason.
    """
    trials = dict[int, Trial]()

    def holds(place: int) -> bool:
        if known is not None and place in known:
            trials[place] = known[place]
        else:
            trials[place] = tried(options[place], judge)
        return meets_bar(trials[place])

    last, step = len(options) - 1, max(1, start // 8)
    failing, holding, place = -1, None, 0  # the last that fails, the first that passes
    while holding is None or holding - failing > 1:
        if trials and out_of_time():
            break
        if holds(place):
            holding = place
        else:
            failing = place
        if failing == last:
            break
        if holding is not None:
            place = max((failing + holding) // 2, holding - step)
        elif failing == 0:
            place = min(max(start, 1), last)
            continue
        else:
            place = min(failing + step, last)
        step *= 2
    made = tuple(trials.values())
    if holding is not None:
        return FloatChoice(trials[holding], True, made)
    judged = [(item.judgement.certain_db, item) for item in made if item.judgement is not None]
    if not judged:
        raise GraphError("quantized-not-runnable", reason=made[-1].fault)
    return FloatChoice(max(judged, key=lambda pair: pair[0])[1], False, made)


@dataclass(frozen=True)
class FloatOption:
    """Layers to keep in float32, and the summed noise power of the others, each alone in int8."""

    layers: tuple[str, ...]
    noise: float


def cheapest_options(noise: Mapping[str, float], worth: Mapping[str, int]) -> list[FloatOption]:
    """Return the best sets of layers to keep in float32, from none to all, in order of noise.

    The noise of layers nearly adds up. So the choice of int8 layers is a knapsack problem: the most
    time gained within a noise bound. The bounds are 0.15 dB apart. Source: R. Bellman, Dynamic
    Programming, 1957.

    Args:
        noise: noise power of each layer in the outputs; inf: the layer cannot be int8.
        worth: time that each layer gains in int8; a layer that gains nothing is float32 in all
            sets but the first.
    """
    layers = [name for name in noise if math.isfinite(noise[name]) and worth.get(name, 1) > 0]
    whole = sum(noise[name] for name in layers)
    results = [FloatOption((), sum(noise.values()))]
    if layers and whole > 0:
        values = np.array([worth.get(name, 1) for name in layers], np.float64)
        powers = np.array([noise[name] for name in layers])
        # break ties in favor of the less noisy layer
        values = values * (1 - 1e-6 * powers / whole)
        for bound in whole * _BOUNDS:
            retained = _packed(powers / bound, values)
            left = tuple(name for name in noise if name not in {layers[n] for n in retained})
            if left != results[-1].layers:
                results.append(FloatOption(left, float(powers[retained].sum())))
    if len(results[-1].layers) < len(noise):
        results.append(FloatOption(tuple(noise), 0.0))
    return results


def _packed(weights: Array, values: Array) -> list[int]:
    """Return the indexes of the items of most value whose weights add up to at most 1."""
    units = np.rint(weights * _UNITS).astype(np.int64)
    best = np.zeros(_UNITS + 1)
    used = np.zeros((len(units), _UNITS + 1), bool)
    for place, (unit, value) in enumerate(zip(units, values, strict=True)):
        if unit > _UNITS:
            continue
        more = best[: _UNITS + 1 - unit] + value
        used[place, unit:] = more > best[unit:]
        best[unit:] = np.maximum(best[unit:], more)
    room, result = _UNITS, list[int]()
    for place in reversed(range(len(units))):
        if used[place, room]:
            result.append(place)
            room -= int(units[place])
    return result


def tried(keep_float: tuple[str, ...], judge: Callable[[tuple[str, ...]], Judgement]) -> Trial:
    """Return the trial of the graph in which these layers are kept in float32."""
    try:
        return Trial(keep_float, judge(keep_float))
    except GraphError as error:
        return Trial(keep_float, None, str(error))
