"""Detects samples of one source: crops of a picture, frames of a film, windows of a recording.

Such samples are alike, so if some of them calibrate, the others are no independent check.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.ir.tensors import Array

FEWEST_GROUPS = 8
"""Minimum number of given groups that are sources; fewer are kinds, such as day and night."""
_FEWEST_SAMPLES = 16
_SIGNIFICANT = 5.0  # standard deviations, as many lags are tested
_CLOSER = 0.9  # of the mean distance in random order
_RELATED = 0.7  # within a group; samples of one class of clothes, sorted by class, have 0.75
_MAX_LAG = 256
_SCREENED = 2048  # samples: if the first ones are independent, so are all
_WIDEST = 16  # samples on each side of an edge between groups
_PERMUTATIONS = 100
_EDGE = 0.4  # of the contrast at a perfect edge
_BUCKETS = 64
_RAW = 16  # values of a sample up to which they are their own description
_PROJECTED = 24
_BANDS = 8
_LENGTH, _SIDE = 4096, 48  # values of a sample along its only axis, or along each of several
_SEED = 0


def related_groups(
    arrays: Mapping[str, Array],
    labels: Array | None = None,
    groups: Array | None = None,
    *,
    are_sources: bool = True,
) -> Array | None:
    """Return the group of each sample, int64 [samples] from 0; None: no relation was found.

    Eight given groups or more are sources, fewer are kinds. Otherwise, samples are related if
    neighbours in order are significantly closer than in random order. Groups of neighbours end
    where the samples change most, found by the novelty of J. Foote, Automatic Audio Segmentation
    Using a Measure of Audio Novelty, 2000. If every n-th sample is alike instead, as after several
    epochs with augmentation, there are n groups.

    Args:
        arrays: inputs by name, samples on the first axis; scalars are ignored.
        labels: class numbers or one-hot labels, one per sample, or None. Distances are compared
            within classes, because samples that are sorted by class are not related.
        groups: given groups, strings [samples], or None.
        are_sources: False if given groups may be classes; they count if their samples are closer.
    """
    whole = [array for array in arrays.values() if array.ndim]
    count = min(map(len, whole), default=0)
    if count < _FEWEST_SAMPLES:
        return None
    codes = None if groups is None else np.unique(groups.astype(str), return_inverse=True)[1]
    if codes is not None and codes.max() + 1 < FEWEST_GROUPS:
        codes = None
    if codes is not None and are_sources:
        return np.asarray(codes)
    if count > _SCREENED:  # describing all would take long where most data is independent
        first = {name: array[:_SCREENED] for name, array in arrays.items() if array.ndim}
        few = [None if one is None else one[:_SCREENED] for one in (labels, groups)]
        if related_groups(first, *few, are_sources=are_sources) is None:
            return None
    classes = _classes(labels, count)
    views = [_centred(view, classes) for view in _views(whole, count)]
    relations = [one for view in views if (one := _relation(view, codes)) is not None]
    best = max(relations, key=lambda relation: relation.deviations, default=None)
    if best is None:
        return None
    result = np.arange(count) % max(best.lag, 1)
    if best.lag < 2:
        result = codes if best.lag == 0 and codes is not None else _segments(best)
    near, far = _closeness(best.view, result)
    return result if near < _RELATED * far else None


@dataclass(frozen=True)
class _Relation:
    """Samples of a view that are closer than random ones."""

    view: Array
    """A description of each sample, float64 [samples, features]."""
    deviations: float
    """By how many standard deviations they are closer than in random order."""
    lag: int
    """Distance in order: 1 for neighbours; 0: members of a given group."""
    reach: int
    """The number of neighbours on each side that are closer."""
    near: float
    """The mean distance of related samples."""
    far: float
    """The mean distance in random order."""


def _relation(view: Array, codes: Array | None) -> _Relation | None:
    """Return the strongest relation in a view, that of given groups first; None: there is none."""
    random, count = np.random.default_rng(_SEED), len(view)
    if not view.size:
        return None

    def lagged(order: Array, lag: int) -> float:
        return float(_distance(view[order[lag:]], view[order[:-lag]]).mean())

    shuffled = np.array([lagged(random.permutation(count), 1) for _ in range(_PERMUTATIONS)])
    far, spread = float(shuffled.mean()), float(shuffled.std())
    if not far or not spread:
        return None

    def deviations(near: float, pairs: int) -> float:
        return (far - near) / (spread * np.sqrt((count - 1) / pairs)) if near < _CLOSER * far else 0

    if codes is not None:
        order = np.argsort(codes, kind="stable")
        inside = codes[order[1:]] == codes[order[:-1]]
        if inside.any():
            near = float(_distance(view[order[1:]], view[order[:-1]])[inside].mean())
            if (found := deviations(near, int(inside.sum()))) > _SIGNIFICANT:
                return _Relation(view, found, 0, 0, near, far)
    order = np.arange(count)
    lags = [lagged(order, lag) for lag in range(1, min(count // 2, _MAX_LAG) + 1)]
    strength = [deviations(near, count - lag) for lag, near in enumerate(lags, 1)]
    related = [lag for lag, one in enumerate(strength, 1) if one > _SIGNIFICANT]
    if not related:
        return None
    lag = related[0]
    reach = next((n for n, one in enumerate(strength) if one <= _SIGNIFICANT), len(strength))
    return _Relation(view, strength[lag - 1], lag, max(reach, 1), lags[lag - 1], far)


def _closeness(view: Array, codes: Array) -> tuple[float, float]:
    """Return the mean distances of samples that follow each other in a group, and of others."""
    order = np.argsort(codes, kind="stable")
    inside = codes[order[1:]] == codes[order[:-1]]
    near = _distance(view[order[1:]], view[order[:-1]])[inside]
    first, second = np.random.default_rng(_SEED).integers(0, len(view), (2, 1 << 12))
    apart = codes[first] != codes[second]
    if not apart.any():  # one group
        apart = first != second
    far = _distance(view[first[apart]], view[second[apart]])
    return float(near.mean()) if inside.any() else np.inf, float(far.mean())


def _classes(labels: Array | None, count: int) -> Array | None:
    """Return the class of each sample; None: there are no labels, or they are not classes."""
    if labels is None or labels.ndim not in (1, 2) or len(labels) != count:
        return None
    if labels.ndim == 2 and labels.shape[1] > 1:
        return np.asarray(labels.argmax(1))
    flat = labels.reshape(-1)
    if flat.dtype.kind not in "iub" and not (
        flat.dtype.kind == "f" and np.array_equal(flat, np.rint(flat))
    ):
        return None
    return np.asarray(np.unique(flat, return_inverse=True)[1])


def _segments(relation: _Relation) -> Array:
    """Return groups of neighbours, which end where the samples change most."""
    view, count = relation.view, len(relation.view)
    width = int(np.clip(relation.reach, 2, min(_WIDEST, count // 4)))
    edges = np.arange(1, count)
    across, inside = np.zeros(count - 1), np.zeros(count - 1)

    def between(first: Array, second: Array) -> tuple[Array, Array]:
        """Return the distances of two samples each, and whether both exist."""
        exist = (first >= 0) & (second < count)
        return _distance(view[first % count], view[second % count]) * exist, exist

    counted, counted_inside = np.zeros(count - 1), np.zeros(count - 1)
    for i in range(width):
        for j in range(width):
            distance, exist = between(edges - 1 - i, edges + j)
            across, counted = across + distance, counted + exist
        for j in range(i):
            for first, second in ((edges - 1 - i, edges - 1 - j), (edges + j, edges + i)):
                distance, exist = between(first, second)
                inside, counted_inside = inside + distance, counted_inside + exist
    novelty = across / np.maximum(counted, 1) - inside / np.maximum(counted_inside, 1)
    least = _EDGE * (relation.far - relation.near)
    half = max(width // 2, 1)
    padded = np.pad(novelty, half, constant_values=-np.inf)
    highest = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1).max(1)
    facing = np.zeros(count - 1)  # neighbours that overlap are close although others are not
    for i, j in ((0, 0), (0, 1), (1, 0)):
        facing += between(edges - 1 - i, edges + j)[0] / 3
    is_edge = (
        (novelty >= highest) & (novelty > least) & (facing > (relation.near + relation.far) / 2)
    )
    return np.concatenate([[0], np.cumsum(is_edge)])


def _distance(first: Array, second: Array) -> Array:
    return np.asarray(np.sqrt(np.square(first - second).mean(1)))


def _centred(view: Array, classes: Array | None) -> Array:
    """Return the ranks of features, from -1 to 1, without the means of classes.

    Ranks, because single large values would hide or feign relations.
    """
    wide = np.nan_to_num(np.asarray(view, np.float64), posinf=0.0, neginf=0.0)
    if classes is not None:
        totals = np.zeros((classes.max() + 1, wide.shape[1]))
        np.add.at(totals, classes, wide)
        wide = wide - (totals / np.bincount(classes)[:, np.newaxis])[classes]
    wide = wide[:, np.ptp(wide, 0) > 1e-9 * np.abs(wide).max(0, initial=0.0)]
    return np.stack([_ranks(column) for column in wide.T], 1) if wide.size else wide


def _ranks(column: Array) -> Array:
    """Return ranks from -1 to 1; equal values have the mean of their ranks."""
    _, codes, counts = np.unique(column, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray(((2 * ends - counts - 1) / max(len(column) - 1, 1) - 1)[codes])


def _views(arrays: Sequence[Array], count: int) -> list[Array]:
    """Return descriptions of the samples: by statistics, and by projections of their values."""
    statistics = [_statistics(array[:count]) for array in arrays]
    projections = [_projections(array[:count]) for array in arrays]
    return [
        np.concatenate(parts, axis=1)
        for parts in (statistics, [part for part in projections if part is not None])
        if parts
    ]


def _statistics(array: Array) -> Array:
    """Return what crops and windows of one source have in common, wherever they are taken."""
    if array.dtype.kind in "OSU":
        return np.stack([_words(sample) for sample in array])
    size = int(np.prod(array.shape[1:]))
    if array.dtype.kind in "iub" and array.ndim == 2 and size > _RAW:
        return np.stack([_counts(sample) for sample in array])
    if size <= _RAW or array.dtype.kind not in "iubf":
        return np.abs(array.reshape(len(array), -1)).astype(np.float64)[:, :_RAW]
    return np.stack([_texture(np.asarray(sample, np.float32)) for sample in array])


def _texture(sample: Array) -> Array:
    """Return moments, quantiles and roughness of each channel of a sample."""
    if sample.ndim < 3:
        sample = sample[..., np.newaxis]
    if sample.shape[-1] > _RAW:
        sample = sample.reshape(*sample.shape[:-1], -1).mean(-1, keepdims=True)
    axes = tuple(range(sample.ndim - 1))
    most = _LENGTH if len(axes) == 1 else _SIDE
    sample = sample[tuple(slice(None, None, -(-sample.shape[axis] // most)) for axis in axes)]
    parts = [sample.mean(axes), sample.std(axes)]
    flat = sample.reshape(-1, sample.shape[-1])
    parts += list(np.quantile(flat, (0.1, 0.5, 0.9), axis=0))
    for axis in axes:
        if sample.shape[axis] > 1:
            rough = np.abs(np.diff(sample, axis=axis)).mean(axes)
            parts.append(np.log(rough + 1e-12 + 1e-6 * sample.std(axes)))
    if len(axes) == 1 or min(sample.shape[a] for a in axes) == 1:
        power = np.square(np.abs(np.fft.rfft(flat[:, 0])))[1:]
        parts.append(
            np.log([band.mean() + 1e-12 for band in np.array_split(power, _BANDS) if len(band)])
        )
    return np.concatenate([np.atleast_1d(part) for part in parts])


def _counts(ids: Array) -> Array:
    """Return how often ids occur, in buckets; 0 is padding."""
    counts = np.bincount(ids[ids != 0] % _BUCKETS, minlength=_BUCKETS)
    return np.sqrt(counts)


def _words(sample: Array) -> Array:
    """Return how often words occur in the texts of a sample, in buckets."""
    counts = np.zeros(_BUCKETS)
    for text in np.ravel(sample).tolist():
        words = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        for word in words.lower().split():
            counts[zlib.crc32(word.encode()) % _BUCKETS] += 1
    return np.sqrt(counts)


def _projections(array: Array) -> Array | None:
    """Return random projections of the values, which keep distances; None: not many numbers."""
    size = int(np.prod(array.shape[1:]))
    if array.dtype.kind not in "iubf" or size <= _RAW:
        return None
    if array.dtype.kind in "iub" and array.ndim == 2:
        return None
    random = np.random.default_rng(_SEED)
    flat = array.reshape(len(array), -1)
    chosen = np.sort(random.permutation(size)[: 1 << 12])
    matrix = random.normal(size=(len(chosen), _PROJECTED)).astype(np.float32)
    return np.asarray(flat[:, chosen].astype(np.float32) @ matrix, np.float64)
