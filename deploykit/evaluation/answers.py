"""Predictions of two models per sample, and how far they differ: arrays in and out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.evaluation.result import GivenAnswer
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.coverage import class_name, class_numbers

NONE = -1
"""The class number of a sample whose scores contain NaN."""


def scores_classes(values: Array, samples: int) -> bool:
    """Return whether an output contains scores of several classes: floats [samples, classes]."""
    return values.ndim == 2 and values.dtype.kind == "f" and values.shape[1] > 1 and (
        len(values) == samples
    )  # fmt: skip


def classes(scores: Array) -> Array:
    """Return the class with the highest score of each sample, int64 [samples], or NONE."""
    return np.where(np.isnan(scores).any(1), NONE, scores.argmax(1))


def confidences(scores: Array) -> Array:
    """Return scores as probabilities, float64; scores outside [0, 1] are treated as logits."""
    wide = scores.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        if not ((wide < -1e-6) | (wide > 1 + 1e-6)).any():  # NaN is neither
            return wide
        raised = np.exp(wide - wide.max(1, keepdims=True))
        shares: Array = raised / raised.sum(1, keepdims=True)
    return shares


@dataclass(frozen=True)
class Apart:
    """Samples sorted by how far the predictions differ, with both predictions of each."""

    samples: Sequence[int]
    sizes: Sequence[float]
    first: Sequence[GivenAnswer]
    last: Sequence[GivenAnswer | None]


def of_classes(
    first: Array, last: Array | None, labels: Array | None, names: Sequence[str], most: int
) -> Apart:
    """Return where two outputs [samples, classes] differ most.

    For one output, return its wrong predictions of highest confidence. Samples of different
    classes come first, then by lost confidence in the label or, without labels, by the distance
    of the scores. Scores with NaN count as a full loss. `names` are the class names.
    """
    one, two = confidences(first), None if last is None else confidences(last)
    chosen = classes(first)
    other = None if last is None else classes(last)
    rows = np.arange(len(first))
    truth = None if labels is None else class_numbers(labels, *first.shape)
    if two is None or other is None:
        if truth is None:
            return Apart((), (), (), ())
        differs = chosen != truth
        sizes = one[rows, chosen] - one[rows, truth]
        candidates = differs
    else:
        differs = chosen != other
        if truth is None:
            sizes = np.abs(one - two).sum(1) / 2
        else:
            sizes = one[rows, truth] - two[rows, truth]
        candidates = differs | (sizes > 0)
    broken = (chosen == NONE) if other is None else (chosen == NONE) | (other == NONE)
    sizes = np.where(broken | np.isnan(sizes), 1.0, sizes)
    order = np.lexsort((-sizes, ~differs))
    used = [n for n in order.tolist() if candidates[n]][:most]
    return Apart(
        used,
        [float(sizes[n]) for n in used],
        [_answer(one[n], int(chosen[n]), names) for n in used],
        [None if two is None or other is None else _answer(two[n], int(other[n]), names)
         for n in used],
    )  # fmt: skip


def of_numbers(first: Array, last: Array | None, labels: Array | None, most: int) -> Apart:
    """Return where two numeric outputs differ most; with labels, where the last became worse.

    `labels` are the expected outputs and must have as many values. For one output, return where it
    is farthest from the labels.
    """
    one = first.astype(np.float64).reshape(len(first), -1)
    two = one if last is None else last.astype(np.float64).reshape(len(last), -1)
    if one.shape != two.shape or (labels is not None and labels.size != one.size):
        return Apart((), (), (), ())
    with np.errstate(invalid="ignore"):
        if labels is None:
            sizes = np.abs(two - one).mean(1)
        else:
            truth = labels.astype(np.float64).reshape(one.shape)
            sizes = np.abs(two - truth).mean(1)
            if last is not None:
                sizes = sizes - np.abs(one - truth).mean(1)
    sizes = np.where(np.isfinite(sizes), sizes, np.inf)
    used = [n for n in np.argsort(-sizes, kind="stable").tolist() if sizes[n] > 0][:most]
    return Apart(
        used,
        [float(min(sizes[n], np.finfo(np.float64).max)) for n in used],
        [_number(one[n]) for n in used],
        [None if last is None else _number(two[n]) for n in used],
    )


def _answer(scores: Array, number: int, names: Sequence[str]) -> GivenAnswer:
    if number == NONE:
        return GivenAnswer(None, None)
    score = float(scores[number])
    return GivenAnswer(class_name(number, names), score if np.isfinite(score) else None)


def _number(values: Array) -> GivenAnswer:
    is_one = values.size == 1 and np.isfinite(values).all()
    return GivenAnswer(None, float(values[0]) if is_one else None)
