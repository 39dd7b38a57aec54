"""Which layers stay float: those that cost the least time with which the answers hold."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.quantization.scoring import Judgement
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array

_BOUNDS = np.geomspace(1, 1e-3, 200)  # shares of all noise, 0.15 dB apart
_UNITS = 500  # of a bound


@dataclass(frozen=True)
class Trial:
    """A number of the noisiest layers in float, and what came of it."""

    keep_float: tuple[str, ...]
    judgement: Judgement | None
    """None where TensorFlow cannot run the graph."""
    fault: str = ""
    """Why it cannot."""

    def meets_bar(self, min_sqnr: float, max_drop: float) -> bool:
        """Say whether the answers are as near to the float graph's as asked."""
        result = self.judgement
        if result is None or not result.certain_db >= min_sqnr:
            return False
        return result.drop is None or result.drop <= max_drop


@dataclass(frozen=True)
class FloatChoice:
    """The layers that stay float, and what was tried."""

    best: Trial
    holds: bool
    """Whether the best keeps the answers as near as asked."""
    trials: tuple[Trial, ...]
    """In the order in which they were made."""

    @property
    def keep_float(self) -> tuple[str, ...]:
        """Return the layers that stay float, noisiest first."""
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
    """Return the first of some sets of layers with which, in float, the answers hold.

    The answers come nearer from each set to the next, but for little. So after the first, `start`
    is tried, then what lies ever farther from it, until some hold and some do not; then what lies
    between: at most about 2 log2 of their number. `judge` judges the graph in which such a set is
    float; `known` are trials that were made before, by place; `out_of_time` is asked before each
    trial but the first: where true, the best so far is returned.

    Where nothing holds, not even the last, the least noisy is returned. A GraphError of `judge`
    counts as answers that do not hold; where all are, the last is raised.
    """
    trials = dict[int, Trial]()

    def holds(place: int) -> bool:
        if known is not None and place in known:
            trials[place] = known[place]
        else:
            trials[place] = tried(options[place], judge)
        return meets_bar(trials[place])

    last, step = len(options) - 1, max(1, start // 8)
    failing, holding, place = -1, None, 0  # the last that does not hold, the first that does
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
    """Layers that may stay float, and the noise power of the others, each alone in 8 bits."""

    layers: tuple[str, ...]
    noise: float


def cheapest_options(noise: Mapping[str, float], worth: Mapping[str, int]) -> list[FloatOption]:
    """Return sets of layers that are best left float, from none to all, for less and less noise.

    Noise of layers adds up, nearly. So what is to stay in 8 bits is a knapsack: the most time
    gained within a bound of noise; the bounds are 0.15 dB apart. Source: R. Bellman, Dynamic
    Programming, 1957.

    Args:
        noise: the power of each layer's noise in the answers; inf: it cannot be in 8 bits.
        worth: what each gains in 8 bits; a layer that gains nothing is in float in all sets but
            the first.
    """
    layers = [name for name in noise if math.isfinite(noise[name]) and worth.get(name, 1) > 0]
    whole = sum(noise[name] for name in layers)
    results = [FloatOption((), sum(noise.values()))]
    if layers and whole > 0:
        values = np.array([worth.get(name, 1) for name in layers], np.float64)
        powers = np.array([noise[name] for name in layers])
        # of what gains as much, the less noisy stays in 8 bits
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
    """Return the places of things of the most value whose weights add up to 1 at most."""
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
    """Return what a judge says of the graph in which these layers stay float, or why it cannot."""
    try:
        return Trial(keep_float, judge(keep_float))
    except GraphError as error:
        return Trial(keep_float, None, str(error))
