"""How right a model's answers are: a share of right classes, an error, or what a user's own says.

A metric is a function of the outputs by name, in the model's order, and the labels. What a name
stands for is known in the child process that runs the model, as a user's module is imported there.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.transforms.core.errors import Error, GraphError
from deploykit.transforms.core.tensors import Array
from deploykit.transforms.core.user_functions import raised, user_function
from deploykit.verification.confidence import wilson

METRICS = ("top1", "top5", "mae")
LOWER_IS_BETTER = frozenset({"mae"})


@dataclass(frozen=True)
class Score:
    """What a metric gives, and the 95 % confidence interval where it is a share of samples."""

    value: float
    interval: tuple[float, float] | None = None


Metric = Callable[[Mapping[str, Array], Array | None], Score]


def metric_named(name: str) -> Metric:
    """Return the metric of a name: one of METRICS, or the user's `module:function`.

    GraphError: there is none, or its module cannot be imported.
    """
    if name in ("top1", "top5"):
        return _Top(name, int(name.removeprefix("top")))
    if name == "mae":
        return _mean_absolute_error
    module, colon, function = name.partition(":")
    if not (colon and module and function):
        known = ", ".join(METRICS)
        raise GraphError(f"there is no metric {name}; expected {known} or module:function")
    try:
        return _Own(name, user_function(name))
    except Error as error:
        raise GraphError(f"metric {name}: {error}") from None


@dataclass(frozen=True)
class _Own:
    """A user's function; higher is better."""

    name: str
    function: Callable[..., Any]

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        try:
            # Copies, as a function that edits them must not change what is judged next.
            given = {name: array.copy() for name, array in outputs.items()}
            found = self.function(given, None if labels is None else labels.copy())
        except (Exception, SystemExit) as error:
            said = raised(error, self.function)
            raise GraphError(f"metric {self.name}: it raised {said}") from None
        try:
            value = math.nan if isinstance(found, str) else float(found)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            shown = repr(found)[:100]
            raise GraphError(f"metric {self.name}: it returned {shown}, expected a number")
        return Score(value)


@dataclass(frozen=True)
class _Top:
    """The share of samples whose label is among the highest scores of the first output."""

    name: str
    places: int

    def __call__(self, outputs: Mapping[str, Array], labels: Array | None) -> Score:
        output, scores = next(iter(outputs.items()))
        if scores.ndim != 2 or scores.dtype.kind != "f":
            raise GraphError(
                f"metric {self.name}: output '{output}' is {scores.dtype} of shape "
                f"{list(scores.shape)}, expected scores [samples, classes]; give "
                "--metric module:function"
            )
        labels = _class_numbers(labels, output, scores)
        own = np.take_along_axis(scores, labels[:, np.newaxis], 1)
        earlier = np.arange(scores.shape[1]) < labels[:, np.newaxis]
        ahead = ((scores > own) | ((scores == own) & earlier)).sum(1)
        right = int(np.sum((ahead < self.places) & ~np.isnan(scores).any(1)))
        return Score(right / len(scores), wilson(right, len(scores)))


def _class_numbers(labels: Array | None, output: str, scores: Array) -> Array:
    """Return labels as one number a sample. GraphError: they are not, or of no class."""
    assert labels is not None
    if labels.dtype.kind not in "iu" or labels.size != len(scores):
        raise GraphError(
            f"the labels are {labels.dtype} of shape {list(labels.shape)}, expected one class "
            f"number for each of {len(scores)} samples"
        )
    labels = labels.reshape(-1).astype(np.int64)
    classes = scores.shape[1]
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if wrong.size:
        at = int(wrong[0])
        raise GraphError(
            f"label {labels[at]} of sample {at} (from 0) is none of the {classes} classes of "
            f"output '{output}'"
        )
    return labels


def _mean_absolute_error(outputs: Mapping[str, Array], labels: Array | None) -> Score:
    """Return how far the first output is from the labels on average; lower is better."""
    assert labels is not None
    output, values = next(iter(outputs.items()))
    if values.size != labels.size or labels.dtype.kind not in "iuf" or not values.size:
        raise GraphError(
            f"metric mae: the labels are {labels.dtype} of shape {list(labels.shape)}, output "
            f"'{output}' has shape {list(values.shape)}"
        )
    wide = values.astype(np.float64).reshape(-1)
    return Score(float(np.abs(wide - labels.reshape(-1)).mean()))
