"""Feeds of a graph: the arrays of one run, and the axis of their samples."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.node import split
from deploykit.transforms.ir.tensors import Array

Feed = dict[str, Array]


class AxesFeed(Feed):
    """A feed in which the samples of some inputs are not on the first axis."""

    def __init__(self, arrays: Mapping[str, Array], axes: Mapping[str, int]) -> None:
        """Store arrays as the graph takes them; `axes` are the sample axes that are not 0."""
        super().__init__(arrays)
        self.axes = dict(axes)


def fed(arrays: Mapping[str, Array], axes: Mapping[str, int]) -> Feed:
    """Return arrays with samples on the first axis as the graph takes them.

    `axes` are the sample axes of inputs that are not 0; see `batch_axes`. GraphError: an array has
    no such axis.
    """
    if not axes:
        return dict(arrays)
    for name, axis in axes.items():
        if name in arrays:
            refuse_missing_axis(name, arrays[name].shape, axis)
    moved = {
        name: np.ascontiguousarray(np.moveaxis(array, 0, axes[name])) if name in axes else array
        for name, array in arrays.items()
    }
    return AxesFeed(moved, axes)


def refuse_missing_axis(name: str, shape: Sequence[int], axis: int) -> None:
    """Raise GraphError if an input of this shape has no axis `axis` for its samples.

    Open sizes are negative. Any shape may lack the first axis: then it is a scalar.
    """
    if axis and axis >= len(shape):
        sizes = ",".join("?" if size < 0 else str(size) for size in shape)
        raise GraphError("batch-axis-rank", name=split(name)[0], axis=axis, shape=f"[{sizes}]")


def axes_of(feed: Mapping[str, Array]) -> Mapping[str, int]:
    """Return the sample axes of a feed that are not 0, by input."""
    return feed.axes if isinstance(feed, AxesFeed) else {}


def count_of(feed: Mapping[str, Array]) -> int:
    """Return the number of samples in a feed; scalars are fed with every sample."""
    axes = axes_of(feed)
    sizes = (array.shape[axes.get(name, 0)] for name, array in feed.items() if array.ndim)
    return next(sizes, 1)


def samples_in(feeds: Iterable[Mapping[str, Array]]) -> int:
    """Return the total number of samples in feeds."""
    return sum(map(count_of, feeds))


def rows_of(feed: Mapping[str, Array], rows: slice, inputs: Collection[str]) -> Feed:
    """Return a feed with some samples of the given inputs, and the other inputs unchanged."""
    axes = axes_of(feed)

    def part(name: str, array: Array) -> Array:
        place = (*[slice(None)] * axes.get(name, 0), rows)
        return np.ascontiguousarray(array[place]) if name in inputs else array

    parts = {name: part(name, array) for name, array in feed.items()}
    return AxesFeed(parts, axes) if axes else parts


class Layout(NamedTuple):
    """The number of samples in a feed, and the inputs that do not have them on the first axis."""

    samples: int
    axes: frozenset[tuple[int, int]]
    """Axis of the samples, and rank, of each such input."""

    @classmethod
    def of(cls, feed: Mapping[str, Array]) -> Self:
        """Return the layout of a feed."""
        axes = frozenset((axis, feed[name].ndim) for name, axis in axes_of(feed).items())
        return cls(count_of(feed), axes)


def samples_first(parts: Sequence[Array], layouts: Sequence[Layout]) -> list[Array]:
    """Return the values of a tensor with its samples on the first axis, one array per feed.

    If an input has its samples on another axis, they are on that axis of a tensor whose size there
    is the number of samples in every feed. If the first axis has this size too, the tensor needs
    the rank of that input. Other tensors stay as they are.
    """
    ranks = frozenset[tuple[int, int]]().union(*(layout.axes for layout in layouts))

    def fits(axis: int) -> bool:
        return all(
            part.ndim > axis and part.shape[axis] == layout.samples
            for part, layout in zip(parts, layouts, strict=True)
        )

    for axis, rank in sorted(ranks):
        if fits(axis) and (parts[0].ndim == rank or not fits(0)):
            return [np.moveaxis(part, axis, 0) for part in parts]
    return list(parts)
