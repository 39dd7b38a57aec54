"""Metrics: top-1 and top-5 accuracy, mean absolute error, or a user-defined function.

A metric is a function of the outputs by name, in the model's order, and the labels. Metric names
are resolved in the child process that runs the model, because user modules are imported there.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deploykit.transforms.common.documents import Hidden, written
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.ir.user_functions import raised, user_function
from deploykit.verification.confidence import NORMAL_95, interval_of_mean, paired_wilson, wilson
from deploykit.verification.coverage import class_numbers

METRICS = ("top1", "top5", "mae")
LOWER_IS_BETTER = frozenset({"mae"})


@dataclass(frozen=True)
class Score:
    """The value of a metric, and its 95 % confidence interval if it is a mean over samples."""

    value: float
    interval: Hidden[tuple[float, float] | None] = None

    @property
    @written()
    def low(self) -> float | None:
        """The lower end of the interval."""
        return self.interval and self.interval[0]

    @property
    @written()
    def high(self) -> float | None:
        """The upper end of the interval."""
        return self.interval and self.interval[1]


def with_interval(score: Score | None) -> dict[str, Any] | None:
    """Return a score as a dict of its value and interval."""
    return None if score is None else {"value": score.value, "interval": score.interval}


class Metric(Protocol):
    """A metric of outputs against labels."""

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        """Return the score on all samples."""

    def per_sample(self, outputs: Mapping[str, Array], labels: Array | None) -> Array | None:
        """Return the value per sample, whose mean is the metric; None: it is not a mean."""


def change(before: Array, after: Array, z: float = NORMAL_95) -> Score:
    """Return the change of the mean of values per sample, with its confidence interval.

    The comparison is paired by sample: proportions by Newcombe's interval, other values by the
    mean of the differences. `z` is the normal quantile of the confidence level.
    """
    if before.dtype == bool:
        return Score(float(after.mean() - before.mean()), paired_wilson(before, after, z))
    differences = after - before
    return Score(float(differences.mean()), interval_of_mean(differences, z))


def metric_named(name: str) -> Metric:
    """Return the metric of a name: one of METRICS, or the user's `module:function`.

    GraphError: the metric does not exist, or its module cannot be imported.
    """
    if name in ("top1", "top5"):
        return _Top(name, int(name.removeprefix("top")))
    if name == "mae":
        return _MeanAbsoluteError()
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        raise GraphError("metric-unknown", name=name, known=METRICS)
    try:
        return _Own(name, user_function(name))
    except Error as error:
        raise GraphError("metric-invalid", name=name, reason=error) from None


@dataclass(frozen=True)
class _Own:
    """A user's function; higher is better."""

    name: str
    function: Callable[..., Any]

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        try:
            # Copies, as a function that edits them must not affect later comparisons.
            given = {name: array.copy() for name, array in outputs.items()}
            result = self.function(given, None if labels is None else labels.copy())
        except (Exception, SystemExit) as error:
            text = raised(error, self.function)
            raise GraphError("metric-raised", name=self.name, reason=text) from None
        try:
            value = math.nan if isinstance(result, str) else float(result)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            shown = repr(result)[:100]
            raise GraphError("metric-result", name=self.name, got=shown)
        return Score(value)

    def per_sample(self, outputs: Mapping[str, Array], labels: Array | None) -> Array | None:
        """Return None, as a user's function has no values per sample."""
        return None


@dataclass(frozen=True)
class _Top:
    """The share of samples whose label is among the highest scores of the first output."""

    name: str
    places: int

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        item = self.per_sample(outputs, labels)
        right = int(item.sum())
        return Score(right / len(item), wilson(right, len(item)))

    def per_sample(self, outputs: Mapping[str, Array], labels: Array | None) -> Array:
        """Return whether the label of each sample is in the top k, bool [samples]."""
        output, scores = next(iter(outputs.items()))
        if scores.ndim != 2 or scores.dtype.kind != "f":
            raise GraphError(
                "metric-output-form",
                name=self.name,
                output=output,
                dtype=scores.dtype,
                shape=scores.shape,
            )
        labels = _required_numbers(labels, output, scores)
        own = np.take_along_axis(scores, labels[:, np.newaxis], 1)
        earlier = np.arange(scores.shape[1]) < labels[:, np.newaxis]
        ahead = ((scores > own) | ((scores == own) & earlier)).sum(1)
        return np.asarray((ahead < self.places) & ~np.isnan(scores).any(1))


def _required_numbers(labels: Array | None, output: str, scores: Array) -> Array:
    """Return labels as one class number per sample. GraphError: they are not class numbers."""
    assert labels is not None
    count, classes = scores.shape
    if labels.dtype.kind == "f" and labels.size == count and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)  # many datasets store float labels
    numbers = class_numbers(labels, count, classes)
    if numbers is not None:
        return numbers
    if labels.dtype.kind not in "iu" or labels.size != count:
        raise GraphError(
            "metric-labels-form",
            dtype=labels.dtype,
            shape=labels.shape,
            count=count,
            classes=classes,
        )
    labels = labels.reshape(-1)
    at = int(np.flatnonzero((labels < 0) | (labels >= classes))[0])
    raise GraphError(
        "metric-label-beyond", label=labels[at], sample=at, classes=classes, output=output
    )


@dataclass(frozen=True)
class _MeanAbsoluteError:
    """The mean absolute error of the first output against the labels; lower is better."""

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        item = self.per_sample(outputs, labels)
        return Score(float(item.mean()), interval_of_mean(item))

    def per_sample(self, outputs: Mapping[str, Array], labels: Array | None) -> Array:
        """Return the mean absolute error of each sample, float64 [samples]."""
        assert labels is not None
        output, values = next(iter(outputs.items()))
        if values.size != labels.size or labels.dtype.kind not in "iuf" or not values.size:
            raise GraphError(
                "metric-mae-shape",
                dtype=labels.dtype,
                shape=labels.shape,
                output=output,
                output_shape=values.shape,
            )
        wide = values.astype(np.float64).reshape(-1)
        apart: Array = np.abs(wide - labels.reshape(-1)).reshape(len(np.atleast_1d(labels)), -1)
        return np.asarray(apart.mean(1))
