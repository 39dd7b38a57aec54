"""Arithmetic on sizes that may be unknown, for shape rules.

A ValueError means that the result is unknown.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypeVar

from deploykit.transforms.ir.tensors import Array

Shape = tuple[int, ...]  # -1: unknown size
T = TypeVar("T")

UNKNOWN = -(2**31)  # an element of a value; -1 is the size that Reshape infers
SIZE_TYPES = ("int32", "int64")


def if_full(shape: Shape | None) -> Shape | None:
    """Return a shape, or None if a size is unknown."""
    return shape if shape is not None and min(shape, default=0) >= 0 else None


def is_partial(value: Array) -> bool:
    """Return whether a value contains sizes of which some are unknown."""
    return value.dtype.name in SIZE_TYPES and bool((value == UNKNOWN).any())


def require(result: T | None) -> T:
    """Return a value. ValueError: it is None."""
    if result is None:
        raise ValueError("it is not known")
    return result


def whole(value: Array | None) -> Array:
    """Return a value. ValueError: an element is unknown."""
    if is_partial(require(value)):
        raise ValueError("an element is not known")
    return require(value)


def sizes_in(value: Array | None) -> Shape:
    """Return the sizes in a value, -1 if unknown. ValueError: the value is unknown."""
    return tuple(max(size, -1) for size in require(value).reshape(-1).tolist())


def axes_in(value: Array | None, rank: int) -> list[int]:
    """Return the axes in a value as indices from the front."""
    return [range(rank)[axis] for axis in whole(value).reshape(-1).tolist()]


def with_rank(shape: Shape | None, rank: int) -> Shape:
    """Return a shape with this rank. ValueError: it has another rank."""
    if shape is None:
        return (-1,) * rank
    if len(shape) != rank:
        raise ValueError("it has another rank")
    return shape


def common_size(sizes: Iterable[int]) -> int:
    """Return the common size of several sizes. ValueError: they differ."""
    known = set(sizes) - {-1}
    if len(known) > 1:
        raise ValueError("the sizes differ")
    return known.pop() if known else -1


def common_shape(shapes: Sequence[Shape | None]) -> Shape:
    """Return the common shape of several shapes. ValueError: they differ."""
    ranked = [shape for shape in shapes if shape is not None]
    if not ranked:
        raise ValueError("no rank is known")
    return tuple(common_size(sizes) for sizes in zip(*ranked, strict=True))


def product(*sizes: int) -> int:
    """Return the product of sizes; -1 if one is unknown."""
    return -1 if min(sizes) < 0 else math.prod(sizes)


def total(*sizes: int) -> int:
    """Return the sum of sizes; -1 if one is unknown."""
    return -1 if min(sizes) < 0 else sum(sizes)


def quotient(size: int, parts: int) -> int:
    """Return the size of each of several equal parts, rounded down."""
    return -1 if size < 0 else size // parts


def broadcast(shapes: Iterable[Sequence[int] | None]) -> Shape | None:
    """Return the shape that several shapes broadcast to. ValueError: they do not."""
    known = list(shapes)
    ranked = [shape for shape in known if shape is not None]
    if len(ranked) < len(known):
        return None
    result = []
    for place in range(-max(map(len, ranked), default=0), 0):
        sizes = {shape[place] for shape in ranked if len(shape) >= -place} - {1}
        result.append(common_size(sizes) if sizes else 1)
    return tuple(result)
