"""Checks of accuracy and agreement, from the comparison of both models on the same samples."""

import math
from collections.abc import Iterator

from deploykit.evaluation.result import Accuracy
from deploykit.gating.limits import GateLimits
from deploykit.gating.verdict import UNKNOWN, Check, Interval
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
    sign, unit, scale = -1.0, "", 1.0
    if found.lower_is_better:
        sign, unit, scale = 1.0, found.metric or "", first or math.nan
    interval: Interval = UNKNOWN
    if found.change.interval is not None:
        low, high = sorted(sign * end / scale for end in found.change.interval)
        interval = low, high
    name = "error (mae)" if found.lower_is_better else f"accuracy ({found.metric})"
    change = sign * found.change.value / scale
    return Check.of(name, (first, second), unit, change, interval, limit,
                    f"{found.samples:,} labelled samples", _advice(interval, limit))  # fmt: skip


def _of_predictions(agreement: float, samples: int, limit: float | None, z: float) -> Check:
    same = round(agreement * samples)
    low, high = wilson(samples - same, samples, z)
    return Check.of("changed predictions", (0.0, 1 - agreement), "", 1 - agreement, (low, high),
                    limit, f"{samples:,} samples", _advice((low, high), limit))  # fmt: skip


def _advice(interval: Interval, limit: float | None) -> str:
    """Return what to do about an interval that includes the limit; empty otherwise."""
    is_open = limit is not None and interval[0] <= limit < interval[1]
    return MORE_SAMPLES if is_open else ""


def has_scores(found: Accuracy) -> bool:
    """Return whether the gate can compare the predictions or the metric."""
    return found.change is not None or found.agreement is not None
