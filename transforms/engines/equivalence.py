"""Comparison of an engine's outputs with TensorFlow's, without running either."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.differences import QualityBar, Sums

FLOAT_BAR = QualityBar(tolerance=5e-4)
CODES_BAR = QualityBar(min_sqnr=20.0)
MAX_LOST_DB = 1.0
_LEAST = 1e-30  # of a Softmax output; smaller ones are rounded to zero

Bars = Mapping[str, QualityBar | None]
"""Tolerance of each output; None: its numbers are not compared."""


@dataclass(frozen=True)
class Answered:
    """The outputs of TensorFlow and an engine for a batch, by name."""

    batch: int
    """Number of samples."""
    expected: Mapping[str, Array]
    result: Mapping[str, Array]


def departure(answered: Sequence[Answered], bars: Bars) -> str:
    """Return how an engine differs from TensorFlow, in one sentence, or an empty string.

    Args:
        answered: the outputs of both, for several batches.
        bars: tolerance of each output of TensorFlow, or None.
    """
    names = dict.fromkeys(name for item in answered for name in item.expected)
    for name in names:
        for item in answered:
            if fault := _fault(name, item, bars[name]):
                return f"output '{name}' at batch {item.batch}: {fault}"
    result = (_too_far(name, answered, bar) for name in names if (bar := bars[name]) is not None)
    return next(filter(None, result), "")


def nothing_compared(answered: Sequence[Answered], bars: Bars) -> str:
    """Return why equal outputs prove nothing about an engine, or an empty string."""
    finite, distinct = 0, set[object]()
    for item in answered:
        for name, expected in item.expected.items():
            if bars[name] is not None:
                sums = Sums(name)
                sums.add(expected, expected)
                finite += sums.finite
                distinct |= sums.distinct
    if not finite:
        return "TensorFlow gives no finite value, so nothing was compared"
    if len(distinct) < 2:
        return "TensorFlow gives one value everywhere, so a wrong output would look the same"
    return ""


def signal_to_noise(answered: Sequence[Answered], bars: Bars) -> dict[str, float]:
    """Return the SQNR in dB of each float output that has a tolerance."""
    names = dict.fromkeys(name for item in answered for name in item.expected)
    results = {}
    for name in names:
        floats = [item for item in answered if _are_floats(np.asarray(item.expected[name]))]
        if floats and (bar := bars[name]) is not None:
            results[name] = _sums(name, floats, bar).difference().sqnr_db
    return results


def _fault(name: str, answered: Answered, bar: QualityBar | None) -> str:
    """Return a difference that no tolerance allows, or an empty string."""
    if name not in answered.result:
        return "it is missing"
    expected, result = np.asarray(answered.expected[name]), np.asarray(answered.result[name])
    if _type(expected) != _type(result):
        return f"expected {_type(expected)}, got {_type(result)}"
    if bar is None:
        same = expected.ndim == result.ndim
        return "" if same else f"expected {expected.ndim} dimensions, got {result.ndim}"
    if expected.shape != result.shape:
        return f"expected the shape {list(expected.shape)}, got {list(result.shape)}"
    if _are_floats(expected):
        differ = ~_same_specials(expected, result)
    else:
        differ = np.asarray(expected != result)
    if not differ.any():
        return ""
    return (
        f"{int(differ.sum())} of {expected.size} values differ, {_pair(expected, result, differ)}"
    )


def _too_far(name: str, answered: Sequence[Answered], bar: QualityBar) -> str:
    """Return by how much a float output exceeds its tolerance, or an empty string."""
    groups = [[item] for item in answered] if bar.tolerance is not None else [list(answered)]
    for group in groups:
        floats = [item for item in group if _are_floats(np.asarray(item.expected[name]))]
        if failure := bar.failure(_sums(name, floats, bar).difference()) if floats else "":
            return f"{failure}; {_worst(name, floats)}"
    return ""


def _sums(name: str, answered: Sequence[Answered], bar: QualityBar) -> Sums:
    sums = Sums(name)
    for item in answered:
        both = np.asarray(item.expected[name]), np.asarray(item.result[name])
        sums.add(*map(_logarithm, both) if bar.of_logarithm else both)
    return sums


def _logarithm(array: Array) -> Array:
    """Return the input of a Softmax without its mean, which does not change the output."""
    result = np.log(np.maximum(array.astype(np.float64), _LEAST))
    centred: Array = result - result.mean(axis=-1, keepdims=True) if result.ndim else result
    return centred


def _worst(name: str, answered: Sequence[Answered]) -> str:
    """Return the batch and the values with the largest difference."""
    apart = [_apart(np.asarray(e.expected[name]), np.asarray(e.result[name])) for e in answered]
    place = max(range(len(apart)), key=lambda entry: float(apart[entry].max(initial=-1.0)))
    item, far = answered[place], apart[place]
    pair = _pair(np.asarray(item.expected[name]), np.asarray(item.result[name]), far == far.max())
    return f"at batch {item.batch}, {pair}"


def _pair(expected: Array, judged: Array, chosen: Array) -> str:
    """Return the first of the chosen values as text."""
    place = tuple(int(item) for item in np.argwhere(chosen)[0])
    where = f" at {list(place)}" if place else ""
    return f"expected {_said(expected[place])}{where}, got {_said(judged[place])}"


def _apart(expected: Array, judged: Array) -> Array:
    expected, judged = _wide(expected), _wide(judged)
    with np.errstate(invalid="ignore"):
        far = np.abs(expected - judged)
    return np.where(np.isfinite(expected), far, -1.0)


def _same_specials(expected: Array, array: Array) -> Array:
    """Return for each value whether both are finite, or the same NaN, Inf or -Inf."""
    expected, array = _wide(expected), _wide(array)
    finite = np.isfinite(expected) & np.isfinite(array)
    same: Array = finite | (expected == array) | (np.isnan(expected) & np.isnan(array))
    return same


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _are_floats(array: Array) -> bool:
    return array.dtype.kind in "fc" or array.dtype.name.startswith(("bfloat", "float8"))


def _type(array: Array) -> str:
    return "string" if array.dtype.kind in "OSU" else str(array.dtype.name)


def _said(value: object) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    return f"{value:.6g}" if isinstance(value, float) else repr(value)[:80]
