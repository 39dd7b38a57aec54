"""Checks of accuracy and agreement, from the comparison of both models on the same samples."""

import math
from collections.abc import Iterator

from deploykit.evaluation.result import Accuracy
from deploykit.gating.limits import GateLimits
from deploykit.gating.verdict import UNKNOWN, Check, Interval
from deploykit.quantization.metrics import Score
from deploykit.verification.confidence import wilson

MORE_SAMPLES = "more samples narrow the interval"


def quality_checks(found: Accuracy, limits: GateLimits) -> Iterator[Check]:
    """Yield the check of the metric, if there are labels, and that of the predictions.

    Without labels, the limit of the drop applies to the share of other predictions: accuracy cannot
    drop by more than that.
    """
    has_labels = found.change is not None
    if has_labels:
        yield _of_metric(found, limits.max_accuracy_drop)
    if found.agreement is not None:
        limit = None if limits.min_agreement is None else 1 - limits.min_agreement
        if limit is None and not has_labels:
            limit = limits.max_accuracy_drop
        yield _of_predictions(found.agreement.value, found.samples, limit, limits.quality_z)


def _of_metric(found: Accuracy, limit: float | None) -> Check:
    first, second = (model.value for model in (found.models[0], found.models[-1]))
    assert found.change is not None
    assert first is not None
    assert second is not None
    by = f"{found.samples:,} labelled samples"
    if found.lower_is_better:
        change, interval = error_increase(first, second, found.change)
        return Check.of("error (mae)", (first, second), found.metric or "", change, interval, limit,
                        by, _advice(interval, limit))  # fmt: skip
    low, high = found.change.interval or UNKNOWN
    interval = -high, -low
    return Check.of(f"accuracy ({found.metric})", (first, second), "", -found.change.value,
                    interval, limit, by, _advice(interval, limit))  # fmt: skip


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


def _of_predictions(agreement: float, samples: int, limit: float | None, z: float) -> Check:
    same = round(agreement * samples)
    low, high = wilson(samples - same, samples, z)
    return Check.of("changed predictions", (0.0, 1 - agreement), "", 1 - agreement, (low, high),
                    limit, f"{samples:,} samples", _advice((low, high), limit))  # fmt: skip


def _advice(interval: Interval, limit: float | None) -> str:
    """Return what to do about an interval that includes the limit; empty otherwise."""
    is_open = limit is not None and interval[0] <= limit < interval[1]
    return MORE_SAMPLES if is_open else ""
