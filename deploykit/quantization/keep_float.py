"""Chooses layers to keep in float32: least loss of time that meets the accuracy thresholds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.quantization.scoring import Judgement
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

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
