"""Checks of accuracy and agreement, from the comparison of both models on the same samples."""

import math
from collections.abc import Iterator
from dataclasses import replace

from deploykit.evaluation.result import Accuracy
from deploykit.gating.limits import GateLimits
from deploykit.gating.verdict import INCONCLUSIVE, UNKNOWN, Check, Interval
from deploykit.quantization.metrics import Score

MORE_SAMPLES = "more samples narrow the interval"


def quality_checks(found: Accuracy, limits: GateLimits) -> Iterator[Check]:
    """Yield the check of the metric, if there are labels, and that of the predictions.

    Without labels, the limit of the drop applies to the share of other predictions: accuracy cannot
    drop by more than that.
    """
    for check in _checks(found, limits):
        yield replace(check, note=MORE_SAMPLES) if check.verdict == INCONCLUSIVE else check


def _checks(found: Accuracy, limits: GateLimits) -> Iterator[Check]:
    limit, change, agreement = limits.max_accuracy_drop, found.change, found.agreement
    if change is not None:
        models = found.models[0], found.models[-1]
        first, second = (model.score.value for model in models if model.score is not None)
        by = f"{found.samples:,} labelled samples"
        if found.lower_is_better:
            increase, interval = error_increase(first, second, change)
            yield Check.of("error (mae)", (first, second), "mae", increase, interval, limit, by)
        else:
            low, high = change.interval or UNKNOWN
            yield Check.of(f"accuracy ({found.metric})", (first, second), "", -change.value,
                           (-high, -low), limit, by)  # fmt: skip
        limit = None
    if agreement is not None:
        limit = limit if limits.min_agreement is None else 1 - limits.min_agreement
        (low, high), other = agreement.interval or UNKNOWN, 1 - agreement.value
        yield Check.of("changed predictions", (0.0, other), "", other, (1 - high, 1 - low), limit,
                       f"{found.samples:,} samples")  # fmt: skip


def error_increase(first: float, second: float, change: Score) -> tuple[float, Interval]:
    """Return the increase of the mean error, as a share of the baseline's, and its interval.

    Outputs that are NaN or infinite are infinitely worse than finite ones, and so is any error
    compared with none.
    """
    if not math.isfinite(first):
        return math.nan, UNKNOWN
    if not math.isfinite(second) or (second and not first):
        return math.inf, (math.inf, math.inf)
    if not first:
        return 0.0, (0.0, 0.0)
    low, high = change.interval or UNKNOWN
    return change.value / first, (low / first, high / first)
