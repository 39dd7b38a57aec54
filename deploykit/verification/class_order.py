"""The check that a model's predictions do not fit another order of the classes far better."""

import logging
import math
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.tensors import Array
from deploykit.verification.confidence import wilson
from deploykit.verification.coverage import Answers, class_numbers
from deploykit.verification.samples import Dataset

logger = logging.getLogger("deploykit")

CLASS_METRICS = "top1", "top5"
"""The metrics for which the class with the highest score is the prediction."""
RARE = 0.001  # significance level: the error stops a command
MAX_NAMES = 20  # of classes in a message


class ClassOrderError(GraphError):
    """Another order of the classes in the data fits the model's predictions far better."""


@dataclass(frozen=True)
class OtherOrder:
    """Another order of the classes in the data, and how many predictions are right in both."""

    used: tuple[int, ...]
    """The class numbers in the data, ascending."""
    fitting: tuple[int, ...]
    """For each of them, the number that fits the predictions."""
    hits: int
    """Right predictions in the order that is used."""
    hits_of_other: int
    count: int
    """Number of samples."""


def other_order(answers: Array, labels: Array, classes: int) -> OtherOrder | None:
    """Return another order of the classes that fits predictions far better; None: there is none.

    Each class gets the number that is predicted most often for its samples. That is another order
    if these numbers are those of the classes, each once. It fits far better if

    * most predictions are right in it: the 95 % confidence interval begins above the middle between
      chance and 1 (Cohen's kappa 0.5, the limit of `coverage.doubt`), so a bad model stops nothing;
    * at least a third of them are wrong in the order that is used. If two of five classes are
      exchanged, 40 % are;
    * that is not by chance. Predictions that are right in only one of the two orders are right in
      the other one too often for a fair coin, with p < 0.001, by Chernoff's bound. Confused classes
      could be numbered in 2^classes ways, for which the bound is corrected as by Bonferroni.

    Args:
        answers: predicted class numbers, one per sample.
        labels: class numbers of the samples.
        classes: the number of classes of the model.
    """
    used, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    pairs, numbers = np.unique(codes * classes + answers, return_counts=True)
    ranked = np.lexsort((-numbers, pairs // classes))
    first = np.unique(pairs[ranked] // classes, return_index=True)[1]
    fitting, most, count = pairs[ranked][first] % classes, numbers[ranked][first], len(labels)
    most_often = numbers == most[pairs // classes]
    has_tie = most_often.sum() > len(used)
    if has_tie or not np.array_equal(np.sort(fitting), used):
        return None
    hits, hits_of_other = int(np.sum(answers == labels)), int(most.sum())
    chance = float(sizes @ np.bincount(answers, minlength=classes)[fitting]) / count**2
    is_right = wilson(hits_of_other, count)[0] > (1 + chance) / 2
    both = int(most[fitting == used].sum())
    votes = hits_of_other - both, hits - both
    if not is_right or 3 * hits > 2 * hits_of_other:
        return None
    evidence = sum(n * math.log(2 * n / sum(votes)) for n in votes if n)
    if evidence < len(used) * math.log(2) - math.log(RARE):
        return None
    return OtherOrder(tuple(used.tolist()), tuple(fitting.tolist()), hits, hits_of_other, count)


def refuse_other_order(answers: Answers | None, samples: Dataset) -> None:
    """Raise ClassOrderError if another order of the classes fits the predictions far better.

    If the user passed the order, it is a warning.

    Args:
        answers: the predictions of the original model for the first samples; None: not classes.
        samples: only class names in the data have an order that can be wrong.
    """
    if answers is None or samples.labels is None or not samples.has_class_names:
        return
    count = len(answers.numbers)
    labels = class_numbers(samples.labels[:count], count, answers.classes)
    other = None if labels is None else other_order(answers.numbers, labels, answers.classes)
    if other is None:
        return
    names = [*samples.class_names, *map(str, range(len(samples.class_names), answers.classes))]
    ordered = dict(enumerate(names))
    ordered |= {n: names[number] for number, n in zip(other.used, other.fitting, strict=True)}
    error = ClassOrderError(
        "class-order-differs",
        source=samples.source,
        hits=other.hits,
        count=other.count,
        hits_of_other=other.hits_of_other,
        names=_first(names[: answers.classes]),
        other_names=_first([*ordered.values()][: answers.classes]),
        advice="Is the order of --labels right?"
        if samples.is_order_given
        else "Give --labels FILE with one class name per line, in the order of the model's scores",
    )
    if not samples.is_order_given:
        raise error
    logger.warning("%s", error)


def _first(names: list[str]) -> list[str]:
    """Return the first names for a message, and how many more there are."""
    more = len(names) - MAX_NAMES
    return names if more <= 0 else [*names[:MAX_NAMES], f"and {more:,} more"]
