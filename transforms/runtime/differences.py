"""Differences between arrays and a reference, and their tolerances: errors, and SQNR in dB.

Also the comparison of an engine's outputs with TensorFlow's, without running either.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from deploykit.transforms.common.documents import ABOVE_ZERO
from deploykit.transforms.ir.tensors import Array

DISTINCT_AT_MOST = 1000  # distinct values that are counted
_LOOKED_AT = 10_000  # values of a batch that are searched for distinct ones


@dataclass(frozen=True)
class Difference:
    """The difference between one output of a result and the reference."""

    output: str
    max_relative_error: float
    rms_relative_error: float
    sqnr_db: float
    """10 log10(sum ref^2 / sum d^2): signal to quantization noise, in dB; inf where equal."""
    fault: str = ""
    """A difference that no tolerance allows: another shape, other NaN positions or integers."""
    judged: bool = True
    """Whether an SQNR is compared; for a Softmax, which amplifies noise, its input is compared."""
    size: int = 0
    """Number of reference values compared, over all samples."""
    finite: int = 0
    """Number of them that are not NaN or Inf."""
    distinct: int = 0
    """Number of distinct values among them, counted up to 1000."""


@dataclass(frozen=True)
class QualityBar:
    """The tolerance of an output: the largest relative error, or the smallest SQNR in dB."""

    tolerance: Annotated[float, ABOVE_ZERO] | None = None
    min_sqnr: Annotated[float, ABOVE_ZERO] | None = None
    of_logarithm: bool = False
    """Whether the logarithm without its mean is compared: the input of a Softmax, which amplifies
    noise."""

    def __str__(self) -> str:
        if self.tolerance is not None:
            return f"error <= {self.tolerance:.2g}"
        return f"SQNR >= {self.min_sqnr:g} dB"

    def failure(self, difference: Difference, behind: Collection[str] = ()) -> str:
        """Return why an output fails, or an empty string.

        Integers show no noise, so an SQNR tolerance allows different integers. Exceptions are
        outputs in `behind`: they follow an op such as non-maximum suppression that was given the
        reference's inputs.
        """
        if not difference.judged:
            return ""
        is_noise = self.tolerance is None
        if difference.fault:
            excused = (
                is_noise and difference.output not in behind and "values differ" in difference.fault
            )
            return "" if excused else f"output '{difference.output}': {difference.fault}"
        error = max(difference.max_relative_error, difference.rms_relative_error)
        if self.tolerance is not None and not error <= self.tolerance:
            return f"output '{difference.output}': error {error:.3g}, allowed {self.tolerance:.3g}"
        if self.min_sqnr is not None and not difference.sqnr_db >= self.min_sqnr:
            sqnr = f"SQNR {difference.sqnr_db:.1f} dB, expected {self.min_sqnr:g} dB"
            return f"output '{difference.output}': {sqnr}"
        return ""


@dataclass
class Sums:
    """Sums over batches, from which a Difference is computed."""

    output: str
    largest: float = 0.0
    largest_error: float = 0.0
    squares: float = 0.0
    squared_errors: float = 0.0
    faults: list[str] = field(default_factory=list)
    size: int = 0
    finite: int = 0
    """Number of reference values that are not NaN or Inf; strings count too."""
    distinct: set[object] = field(default_factory=set)
    """A sample of the distinct values among them: at least two, if there are two."""

    def add(self, reference: Array, result: Array) -> None:
        """Add a batch of values of the reference and of the result."""
        reference, result = np.asarray(reference), np.asarray(result)
        self.size += reference.size
        if reference.shape != result.shape:
            self.faults.append(f"its shape is {list(result.shape)}, not {list(reference.shape)}")
            return
        if reference.dtype != result.dtype:
            self.faults.append(f"its type is {result.dtype}, not {reference.dtype}")
            return
        if reference.dtype.kind not in "fcV" and reference.dtype.name != "bfloat16":
            different = int(np.count_nonzero(reference != result))
            if different:
                self.faults.append(f"{different} of {reference.size} values differ")
            self._count(reference)
            return
        wide = np.complex128 if reference.dtype.kind == "c" else np.float64
        reference, result = reference.astype(wide), result.astype(wide)
        finite = np.isfinite(reference)
        special = ~finite
        if not np.array_equal(finite, np.isfinite(result)) or not np.array_equal(
            reference[special], result[special], equal_nan=True
        ):
            self.faults.append("NaN or Inf are at other positions")
            return
        reference = reference[finite]
        error = result[finite] - reference
        if reference.size:
            self._count(reference)
            self.largest = max(self.largest, float(np.abs(reference).max()))
            self.largest_error = max(self.largest_error, float(np.abs(error).max()))
            self.squares += float(np.square(np.abs(reference)).sum())
            self.squared_errors += float(np.square(np.abs(error)).sum())

    def _count(self, values: Array) -> None:
        """Count finite values, and distinct ones."""
        self.finite += values.size
        if values.size and len(self.distinct) < DISTINCT_AT_MOST:
            flat = values.reshape(-1)
            self.distinct.update(np.unique(flat[:_LOOKED_AT])[:DISTINCT_AT_MOST].tolist())
            other = np.argmax(flat != flat[0])  # the first one that differs, or 0
            self.distinct.update(flat[other : other + 1].tolist())

    def difference(self) -> Difference:
        """Return the difference over all batches so far."""
        distinct = min(len(self.distinct), DISTINCT_AT_MOST)
        return replace(self._error(), size=self.size, finite=self.finite, distinct=distinct)

    def _error(self) -> Difference:
        fault = self.faults[0] if self.faults else ""
        if fault:
            return Difference(self.output, math.inf, math.inf, -math.inf, fault)
        if not self.squared_errors:
            return Difference(self.output, 0.0, 0.0, math.inf)
        if not self.squares:
            return Difference(self.output, math.inf, math.inf, -math.inf)
        return Difference(
            self.output,
            self.largest_error / self.largest,
            math.sqrt(self.squared_errors / self.squares),
            10 * math.log10(self.squares / self.squared_errors),
        )


def compare(reference: Sequence[Array], result: Sequence[Array]) -> list[Difference]:
    """Return the difference of each pair of arrays."""
    differences = []
    for number, (a, b) in enumerate(zip(reference, result, strict=True)):
        sums = Sums(str(number))
        sums.add(a, b)
        differences.append(sums.difference())
    return differences


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
    """Return how an engine differs from TensorFlow, in one sentence, or an empty string."""
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
