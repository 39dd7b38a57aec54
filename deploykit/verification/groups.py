"""Groups of samples, such as those of one source, and how close outputs are within each.

A model in 8 bits may keep less on samples of one kind than on all of them. Within a group, the
ratio of signal to noise, its bound and the agreement are those that `confidence` gives for all.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from deploykit.transforms.core.display.documents import Written
from deploykit.transforms.core.errors import GraphError, counts_differ, unknown_name
from deploykit.transforms.core.tensors import Array
from deploykit.verification.confidence import (
    bound_of_powers,
    power_ratio_db,
    sample_powers,
    wilson,
)

GROUP = "group"
"""The array that names the group of each sample where no other one is given."""
FEWEST = 4
"""Samples of a group, at least, for a lower bound."""
Decibels = Annotated[float | None, Written(digits=3)]


@dataclass(frozen=True)
class GroupCloseness:
    """How close outputs are to those of a reference on the samples of one group."""

    name: Annotated[str, Written("group")]
    samples: int
    sqnr_db: Decibels = None
    """Signal to noise ratio of the noisiest output; inf where all are equal, -inf where one has
    NaN or Inf in other places. None: nothing was compared."""
    sqnr_low_db: Decibels = None
    """The lower end of its 95 % confidence interval; None of fewer than 4 samples."""
    agreement: float | None = None
    """Share of samples with the same highest score; None where no output holds scores."""
    agreement_interval: tuple[float, float] | None = None
    """Its 95 % confidence interval."""


def are_groups(values: Array) -> bool:
    """Say whether an array holds texts or whole numbers along one axis."""
    if values.ndim != 1 and not (values.ndim == 2 and values.shape[1] == 1):
        return False
    if values.dtype.kind == "O":
        return all(isinstance(each, str | bytes | int) for each in values.ravel().tolist())
    if values.dtype.kind == "f":
        return bool(np.isfinite(values).all() and (values == np.rint(values)).all())
    return values.dtype.kind in "SUiub"


def group_names(data: Mapping[str, Any], name: str, samples: int) -> Array:
    """Return the group of each sample by an array of the data: texts, object [samples].

    GraphError: there is no such array, it does not hold one text or whole number for each sample,
    or it has another length.
    """
    if name not in data:
        known = sorted(data)
        raise unknown_name("array to group by", name, known)
    values = np.asarray(data[name])
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if not are_groups(values):
        raise GraphError("group-form", name=name, dtype=values.dtype, shape=values.shape)
    if len(values) != samples:
        raise counts_differ(f"groups of '{name}'", len(values), samples)
    if values.dtype.kind == "f":
        values = values.astype(np.int64)
    texts = [
        each.decode(errors="replace") if isinstance(each, bytes) else str(each)
        for each in values.tolist()
    ]
    return np.array(texts, object)


def members(groups: Array) -> Iterator[tuple[str, Array]]:
    """Yield each group in sorted order, with the positions of its samples."""
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    ends = np.cumsum(np.bincount(codes))[:-1]
    each = np.split(np.argsort(codes, kind="stable"), ends)
    yield from zip(names.tolist(), each, strict=True)


def closeness_by_group(
    pairs: Iterable[tuple[Array, Array]], groups: Array
) -> tuple[GroupCloseness, ...]:
    """Return how close outputs are within each group; the worst output counts.

    Args:
        pairs: of each output what is expected and what is found. One whose first axis is not that
            of the samples, or that holds no floats, does not count.
        groups: the group of each sample, texts [samples].
    """
    counted = [
        (expected, found)
        for expected, found in pairs
        if expected.dtype.kind == "f" and expected.ndim and len(expected) == len(groups)
    ]
    powers = [_powers(*pair) for pair in counted]
    same = [each for pair in counted if (each := agreeing(*pair)) is not None]
    return tuple(_within(name, at, powers, same) for name, at in members(groups))


def agreeing(expected: Array, found: Array) -> Array | None:
    """Return whether each sample has the same highest score, bool [samples]; None: no classes.

    Scores among which are NaN have none.
    """
    if expected.ndim != 2 or expected.shape[1] < 2 or expected.shape != found.shape:
        return None
    broken = np.isnan(expected).any(1) | np.isnan(found).any(1)
    same: Array = (expected.argmax(1) == found.argmax(1)) & ~broken
    return same


def worst_group(groups: Iterable[GroupCloseness]) -> GroupCloseness | None:
    """Return the group with the lowest bound; None where no group has one."""
    return min((each for each in groups if each.sqnr_low_db is not None), key=_low, default=None)


def worst_first(groups: Iterable[GroupCloseness]) -> list[GroupCloseness]:
    """Return groups by their ratio; those that have none come last."""
    return sorted(groups, key=lambda e: math.inf if e.sqnr_db is None else e.sqnr_db)


def _powers(expected: Array, found: Array) -> tuple[Array, Array]:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return np.ones(len(expected)), np.full(len(expected), np.inf)
    return sample_powers(expected, found)


def _within(
    name: str, at: Array, powers: Sequence[tuple[Array, Array]], same: Sequence[Array]
) -> GroupCloseness:
    count = len(at)
    if not powers:
        return GroupCloseness(name, count)
    ratios = [power_ratio_db(float(s[at].sum()), float(n[at].sum())) for s, n in powers]
    bounds = [bound_of_powers(s[at], n[at]) for s, n in powers] if count >= FEWEST else []
    agreed = min((int(each[at].sum()) for each in same), default=None)
    return GroupCloseness(
        name,
        count,
        min(ratios),
        min(bounds, default=None),
        None if agreed is None else agreed / count,
        None if agreed is None else wilson(agreed, count),
    )


def _low(group: GroupCloseness) -> float:
    return math.inf if group.sqnr_low_db is None else group.sqnr_low_db
