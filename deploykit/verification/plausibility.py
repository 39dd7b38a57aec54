"""Whether answers can be those of a model that works on data as it was meant to get them.

With wrong preprocessing, or labels in another order, a model runs and knows nothing. Two signs of
that are looked for, and each has to be more than chance.
"""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.tensors import Array
from deploykit.verification.confidence import wilson

FEWEST = 8  # samples; of fewer, nothing follows
RARE = 0.05  # what happens less often than this is taken to be no chance


@dataclass(frozen=True)
class Answers:
    """What a model answered, as numbers of classes."""

    numbers: Array
    classes: int
    are_sure: bool
    """Whether they are classes for sure: a Softmax or a Sigmoid makes them."""


def answers_of(output: Array, maker: str = "") -> Answers | None:
    """Return what an output [samples, classes] answers, or None where it is none.

    `maker` is the op that makes it. One column is the probability of class 1, where a Sigmoid does.
    """
    if output.ndim != 2 or output.dtype.kind != "f" or not output.shape[1]:
        return None
    if output.shape[1] == 1:
        is_sure = maker == "Sigmoid"
        return Answers((output[:, 0] > 0.5).astype(np.int64), 2, True) if is_sure else None
    return Answers(output.argmax(1), output.shape[1], maker == "Softmax")


def doubt(answers: Array, classes: int, labels: Array | None = None) -> str:
    """Return in one sentence why answers cannot be right, or an empty string.

    All answers are one class: in samples of which a class makes up a share p, that all n are of it
    has the probability p^n, which should not be below 0.05. Without labels p is taken to lie half
    way between that of classes of equal frequency and 1, so 11 answers of 2 classes are enough.

    No more answers are right than guesses would be: answers that are dealt out to the samples
    anew are right by chance as often as labels and answers of a class meet, sum q_c p_c; so what is
    expected of imbalanced labels is fair. Doubted is an accuracy whose 95 % confidence interval
    includes that and ends below half the way from it to 1 (this share of the way is Cohen's kappa).
    Source: J. Cohen, A Coefficient of Agreement for Nominal Scales, 1960.

    Args:
        answers: class numbers, one a sample.
        classes: how many there are.
        labels: what is right, one a sample. Where they are no class numbers, such as what a
            regression is to give, the answers are none either, and nothing is doubted.
    """
    count = len(answers)
    truth = class_numbers(labels, count, classes)
    if count < FEWEST or classes < 2 or (labels is not None and truth is None):
        return ""
    if truth is not None and (said := _at_chance(answers, truth, classes)):
        return said
    if np.ptp(answers):
        return ""
    most = (1 + 1 / classes) / 2 if truth is None else np.bincount(truth).max() / count
    if most**count >= RARE:
        return ""
    return f"the answers are all class {answers[0]}: is the preprocessing right? (--preprocess)"


def _at_chance(answers: Array, labels: Array, classes: int) -> str:
    """Return that no more answers are right than guesses would be, or an empty string."""
    count = len(answers)
    given, right = (np.bincount(each, minlength=classes) / count for each in (answers, labels))
    # Labels of one class leave nothing to be dealt out anew.
    chance = float(given @ right) if np.ptp(labels) else 1 / classes
    hits = int(np.sum(answers == labels))
    low, high = wilson(hits, count)
    if low > chance or high >= (1 + chance) / 2:
        return ""
    if not np.ptp(answers):
        return ""  # there is more to say of these
    return (
        f"{hits} of {count} answers are right, no more than guesses would be "
        f"({100 * chance:.1f} %): are labels and preprocessing right? (--preprocess)"
    )


def class_numbers(labels: Array | None, count: int, classes: int) -> Array | None:
    """Return labels as one class number a sample, int64 [samples], or None where they are none.

    Rows of a single 1 among zeros, [samples, classes], are numbers too (one-hot), of whatever type.
    """
    if labels is None or not labels.size:
        return None
    if labels.shape == (count, classes) and classes > 1:
        is_one = labels == 1
        if not (is_one.sum(1) == 1).all() or np.count_nonzero(labels) != count:
            return None
        return np.asarray(is_one.argmax(1))
    if labels.dtype.kind not in "iu" or labels.size != count:
        return None
    flat = labels.reshape(-1).astype(np.int64)
    return flat if ((flat >= 0) & (flat < classes)).all() else None
