"""GPTQ: round weights for the least error of a layer's outputs, given moments of its inputs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import channel_axes
from deploykit.transforms.layers.padding import per_axis, zeros_around
from deploykit.transforms.shapes.sizes import Shape, require

Pair = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True)
class Windows:
    """The overlapping windows of a convolution over a batch."""

    padded: Array
    """float32 [n, h, w, channels], including the padding of the convolution."""
    kernel: Pair
    strides: Pair
    dilations: Pair

    @classmethod
    def of(
        cls, layer: Node, kernel: Shape, values: Array, around: Array | None = None
    ) -> "Windows":
        """Return the windows of a layer's input, NHWC; `around` is the padding value by channel.

        Default: zeros.
        """
        zeros = require(zeros_around(layer, kernel, values.shape))  # the image's size is known
        before, after = zip(*(zeros.get(axis, (0, 0)) for axis in range(4)), strict=True)
        sizes = [sum(item) for item in zip(before, values.shape, after, strict=True)]
        padded = np.zeros(sizes, values.dtype)
        if around is not None:
            padded[:] = around
        inside = (slice(b, b + size) for b, size in zip(before, values.shape, strict=True))
        padded[tuple(inside)] = values
        strides, apart = per_axis(layer, "strides"), per_axis(layer, "dilations")
        pairs = [(int(item[1]), int(item[2])) for item in (strides, apart)]
        return cls(padded, (kernel[0], kernel[1]), *pairs)

    @property
    def positions(self) -> Pair:
        """Number of windows per image, vertically and horizontally."""
        high, wide = (
            (size - (kernel - 1) * apart - 1) // stride + 1
            for size, kernel, apart, stride in zip(
                self.padded.shape[1:3], self.kernel, self.dilations, self.strides, strict=True
            )
        )
        return high, wide

    @property
    def count(self) -> int:
        """Number of windows in the batch."""
        high, wide = self.positions
        return len(self.padded) * high * wide

    def views(self) -> Array:
        """Return a view [n, h, w, channels, kernel h, kernel w]."""
        sizes = [(k - 1) * apart + 1 for k, apart in zip(self.kernel, self.dilations, strict=True)]
        windows = sliding_window_view(self.padded, sizes, (1, 2))
        strides, apart = self.strides, self.dilations
        view: Array = windows[:, :: strides[0], :: strides[1], :, :: apart[0], :: apart[1]]
        return view

    def sums(self) -> Array:
        """Return the sum over windows at each kernel position: float64 [channels, positions]."""
        images = self.padded.sum(0, dtype=np.float64)
        places = np.ndindex(self.kernel)
        return np.stack([self._over_windows(images, place) for place in places], axis=-1)

    def squares(self) -> Array:
        """Return the sums of products per pair: float64 [channels, positions, positions]."""
        high, wide = self.kernel
        result = np.empty((high * wide, high * wide, self.padded.shape[-1]))
        # the displacements of two kernel positions, down and right, each pair once
        pairs = [(d, r) for d in range(high) for r in range(1 - wide if d else 0, wide)]
        for down, right in pairs:
            products, left = self._products(down, right)
            for row in range(high - down):
                for column in range(left, wide - max(0, right)):
                    place = (row, column - left)
                    one, other = row * wide + column, (row + down) * wide + column + right
                    result[one, other] = result[other, one] = self._over_windows(products, place)
        return result.transpose(2, 0, 1)

    def _products(self, down: int, right: int) -> tuple[Array, int]:
        """Return the sums over images of products of pixels at this displacement: [h, w, channels].

        The second result is the number of kernel columns to the left of the first pixel.
        """
        below, beside = down * self.dilations[0], abs(right) * self.dilations[1]
        high, wide = self.padded.shape[1:3]
        upper, lower = self.padded[:, : high - below], self.padded[:, below:]
        first, last = slice(0, wide - beside), slice(beside, wide)
        if right < 0:
            first, last = last, first
        products = np.einsum("nhwc,nhwc->hwc", upper[:, :, first], lower[:, :, last])
        return products, max(0, -right)

    def _over_windows(self, image: Array, place: Pair) -> Array:
        """Return the sum of an image over all windows at one kernel position."""
        used = []
        for at, apart, stride, count in zip(
            place, self.dilations, self.strides, self.positions, strict=True
        ):
            used.append(slice(at * apart, at * apart + stride * (count - 1) + 1, stride))
        total: Array = image[tuple(used)].sum((0, 1), dtype=np.float64)
        return total


ROWS_AN_INPUT = 4  # rows to sample for each weight of an output channel
FEWEST_ROWS = 32768
LARGEST = 4608  # inputs at once: [3, 3, 512]; larger products are rounded in parts


@dataclass
class InputMoments:
    """Sums over rows of inputs: one row for each position at which the weights are applied.

    For a DepthwiseConv2dNative each channel has separate rows, and all rows are used.
    """

    layer: Node
    kernel: Shape
    """The shape of the weights, [h, w, in, out], or of a MatMul [in, out]."""
    rows: int
    """Maximum number of rows to use from each batch."""
    center: Array | None = None
    """Value subtracted from each row, so that squares of small differences keep their precision."""
    count: int = 0
    total: Array | float = 0.0
    squares: list[Array] = field(default_factory=list)
    """float64 [inputs, inputs] for each of `parts`, or one [channels, inputs, inputs]."""

    @classmethod
    def of(cls, layer: Node, kernel: Shape, batches: int) -> "InputMoments":
        """Return empty sums, for a layer whose input has the given number of batches."""
        result = cls(layer, kernel, 0)
        result.rows = max(ROWS_AN_INPUT * result.inputs, FEWEST_ROWS) // batches + 1
        return result

    @property
    def inputs(self) -> int:
        """Number of inputs that an output of a Conv2D or MatMul sums over."""
        if self.layer.op == "MatMul":
            return self.channels
        return int(np.prod(self.kernel[:-1]))

    @property
    def channels(self) -> int:
        """Number of input channels."""
        return self.kernel[-1 if channel_axes(self.layer) == (0,) else -2]

    @property
    def parts(self) -> list[slice]:
        """Inputs that are rounded together; each part has whole pairs of channels."""
        size = max(LARGEST // self.channels, 1) * self.channels
        if self.channels <= LARGEST:
            return [slice(at, min(at + size, self.inputs)) for at in range(0, self.inputs, size)]
        return [
            slice(first + at, first + min(at + LARGEST, self.channels))
            for first in range(0, self.inputs, self.channels)
            for at in range(0, self.channels, LARGEST)
        ]

    @property
    def are_finite(self) -> bool:
        """Whether there were rows, and their squares do not overflow float32."""
        return bool(self.squares) and all(np.isfinite(square).all() for square in self.squares)

    def add(self, values: Array) -> None:
        """Add a batch of the layer's input in the layout of the op: float32, NHWC or [rows, in]."""
        if self.layer.op == "DepthwiseConv2dNative":
            self._add_windows(values)
            return
        rows = self._rows(values).astype(np.float32, copy=False)
        if not rows.shape[-2]:
            return
        if self.center is None:
            self.center = rows.mean(-2, dtype=np.float64, keepdims=True).astype(np.float32)
        rows -= self.center
        self.count += rows.shape[-2]
        self.total = self.total + rows.sum(-2, dtype=np.float64)
        parts = [rows[:, part] for part in self.parts]
        with np.errstate(over="ignore"):  # `are_finite` reports it
            self._add_squares([np.matmul(part.T, part).astype(np.float64) for part in parts])

    def _add_windows(self, values: Array) -> None:
        """Add all windows of a batch, from sums of products of pixels at each displacement.

        The products of two kernel positions depend only on their displacement, not on the window,
        so each product is computed once for all windows.
        """
        if not values.size:
            return
        if self.center is None:
            self.center = values.mean((0, 1, 2), dtype=np.float64).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # `are_finite` reports it
            windows = Windows.of(self.layer, self.kernel, values - self.center, -self.center)
            if min(windows.positions) < 1:  # the kernel is larger than the image
                return
            self.count += windows.count
            self.total = self.total + windows.sums()
            self._add_squares([windows.squares()])

    def _add_squares(self, squares: list[Array]) -> None:
        before = self.squares or [np.zeros(()) for _ in squares]
        self.squares = [a + b for a, b in zip(before, squares, strict=True)]

    def central(self) -> list[Array]:
        """Return the second moments about the mean, float64, by part."""
        mean = np.asarray(self.total) / max(self.count, 1)
        means = [mean] if mean.ndim == 2 else [mean[part] for part in self.parts]
        return [
            square / max(self.count, 1) - part[..., :, np.newaxis] * part[..., np.newaxis, :]
            for square, part in zip(self.squares, means, strict=True)
        ]

    def _rows(self, values: Array) -> Array:
        """Return a copy, [rows, inputs], of randomly sampled positions."""
        if self.layer.op == "MatMul":
            if self.layer.attr("transpose_a", False):
                values = values.T
            return values[self._chosen(len(values))]
        windows = Windows.of(self.layer, self.kernel, values).views()
        count, high, wide = windows.shape[:3]
        at = np.unravel_index(self._chosen(count * high * wide), (count, high, wide))
        used = windows[at]  # [rows, in, h, w]
        return used.transpose(0, 2, 3, 1).reshape(len(used), -1)

    def _chosen(self, count: int) -> Array:
        """Return the indices of the rows to use, out of `count` rows."""
        if count <= self.rows:
            return np.arange(count)
        return np.sort(np.random.default_rng(0).choice(count, self.rows, replace=False))


DAMPING = 0.1  # of the mean diagonal of H
_BLOCK = 64  # rows whose errors are propagated at once
_DESCENTS = 3  # passes of coordinate descent if it is the only method


@dataclass(frozen=True)
class Lattice:
    """The multiples of the steps that the weights [inputs, outputs] of a product may have."""

    levels: Array
    """float64 [outputs]: the largest multiple, in either direction."""
    partners: Array | None = None
    """int [inputs]: the input whose multiple is added to this one's; -1: none."""
    pair: int = 0
    """Maximum sum of two partners of the same sign."""

    def nearest(self, row: int, values: Array, multiples: Array) -> Array:
        """Return the allowed multiples [outputs] of an input that are nearest to the values."""
        low, high = -self.levels, self.levels
        if self.partners is not None and self.partners[row] >= 0:
            other = multiples[self.partners[row]]
            high = np.minimum(high, self.pair - np.maximum(other, 0))
            low = np.maximum(low, -self.pair - np.minimum(other, 0))
        return np.clip(np.rint(values), low, high)


def round_product(weights: Array, moments: Array, lattice: Lattice) -> Array:
    """Return the multiples [inputs, outputs] with the least output error that two passes find.

    Args:
        weights: float64 [inputs, outputs], in units of each output's step.
        moments: float64 [inputs, inputs], about the mean if the layer's bias compensates the mean
            error.
        lattice: the allowed multiples.
    """
    damped = _damped(moments)
    order = np.argsort(-np.diag(damped), kind="stable")
    inverse = np.linalg.inv(damped[np.ix_(order, order)])
    spread = np.linalg.cholesky((inverse + inverse.T) / 2).T  # upper: inverse = spread.T @ spread
    rest = weights[order]
    result = np.zeros_like(weights)
    for start in range(0, len(order), _BLOCK):
        end = min(start + _BLOCK, len(order))
        errors = np.empty((end - start, weights.shape[1]))
        for row in range(start, end):
            place = order[row]
            result[place] = lattice.nearest(place, rest[row], result)
            error = (rest[row] - result[place]) / spread[row, row]
            errors[row - start] = error
            rest[row + 1 : end] -= np.outer(spread[row, row + 1 : end], error)
        rest[end:] -= spread[start:end, end:].T @ errors
    return _descended(weights, damped, result, lattice)


def round_channels(weights: Array, moments: Array, levels: Array) -> Array:
    """Return the multiples [channels, inputs, outputs] of products that share no inputs.

    Args:
        weights: float64 [channels, inputs, outputs], in units of each output's step.
        moments: float64 [channels, inputs, inputs], as in `round_product`.
        levels: float64 [channels, outputs]: the largest multiple, in either direction.
    """
    damped = _damped(moments)
    curvature = np.diagonal(damped, axis1=1, axis2=2)
    result = np.clip(np.rint(weights), -levels[:, np.newaxis], levels[:, np.newaxis])
    gradient = damped @ (result - weights)
    for _ in range(_DESCENTS):
        for row in range(weights.shape[1]):
            best = result[:, row] - gradient[:, row] / curvature[:, row, np.newaxis]
            change = np.clip(np.rint(best), -levels, levels) - result[:, row]
            result[:, row] += change
            gradient += damped[:, :, row, np.newaxis] * change[:, np.newaxis]
    return result


def _descended(weights: Array, damped: Array, multiples: Array, lattice: Lattice) -> Array:
    """Return the multiples after coordinate descent over the inputs, one at a time."""
    gradient = damped @ (multiples - weights)
    for start in range(0, len(multiples), _BLOCK):
        end = min(start + _BLOCK, len(multiples))
        before, inside = multiples[start:end].copy(), gradient[start:end].copy()
        for row in range(start, end):
            best = multiples[row] - inside[row - start] / damped[row, row]
            change = lattice.nearest(row, best, multiples) - multiples[row]
            multiples[row] += change
            inside += np.outer(damped[start:end, row], change)
        gradient += damped[:, start:end] @ (multiples[start:end] - before)
    return multiples


def _damped(moments: Array) -> Array:
    """Return invertible moments; those of constant inputs become uniform."""
    size = moments.shape[-1]
    mean = np.trace(moments, axis1=-2, axis2=-1)[..., np.newaxis, np.newaxis] / size
    small = np.finfo(np.float32).tiny
    damped: Array = moments + np.where(mean > small, DAMPING * mean, 1.0) * np.eye(size)
    return damped
