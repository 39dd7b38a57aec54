"""Second moments of what a layer multiplies with its weights, from samples of its input."""

from dataclasses import dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from deploykit.transforms.core.layers.layers import channel_axes
from deploykit.transforms.core.layers.padding import per_axis, zeros_around
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.sizes import Shape
from deploykit.transforms.core.tensors import Array

ROWS_AN_INPUT = 4  # that are looked at, for each weight of an output channel
FEWEST_ROWS = 32768
LARGEST = 4608  # inputs at once: [3, 3, 512]; of a larger product, parts are rounded apart


@dataclass
class InputMoments:
    """Sums over rows of inputs: one row for each position at which the weights are applied.

    Of a DepthwiseConv2dNative each channel has rows of its own.
    """

    layer: Node
    kernel: Shape
    """The shape of the weights, [h, w, in, out], or of a MatMul [in, out]."""
    rows: int
    """How many rows to take from each batch, at most."""
    center: Array | None = None
    """What is taken off each row, so that squares of small differences keep their digits."""
    count: int = 0
    total: Array | float = 0.0
    squares: list[Array] = field(default_factory=list)
    """float64 [inputs, inputs] for each of `parts`, or one [channels, inputs, inputs]."""

    @classmethod
    def of(cls, layer: Node, kernel: Shape, batches: int) -> "InputMoments":
        """Return empty sums, for a layer whose input comes in so many batches."""
        found = cls(layer, kernel, 0)
        size = kernel[0] * kernel[1] if layer.op == "DepthwiseConv2dNative" else found.inputs
        found.rows = max(ROWS_AN_INPUT * size, FEWEST_ROWS) // batches + 1
        return found

    @property
    def inputs(self) -> int:
        """How many inputs an output is a sum over, of a Conv2D or MatMul."""
        if self.layer.op == "MatMul":
            return self.channels
        return int(np.prod(self.kernel[:-1]))

    @property
    def channels(self) -> int:
        """How many channels of the input they come from."""
        return self.kernel[-1 if channel_axes(self.layer) == (0,) else -2]

    @property
    def parts(self) -> list[slice]:
        """Which inputs are rounded apart; each part has whole pairs of channels."""
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
        """Whether there were rows, and their squares are no larger than float32 holds."""
        return bool(self.squares) and all(np.isfinite(each).all() for each in self.squares)

    def add(self, values: Array) -> None:
        """Take a batch of the layer's input, as the op reads it: float32, NHWC or [rows, in]."""
        rows = self._rows(values).astype(np.float32, copy=False)
        if not rows.shape[-2]:
            return
        if self.center is None:
            self.center = rows.mean(-2, dtype=np.float64, keepdims=True).astype(np.float32)
        rows -= self.center
        self.count += rows.shape[-2]
        self.total = self.total + rows.sum(-2, dtype=np.float64)
        parts = [rows] if rows.ndim == 3 else [rows[:, part] for part in self.parts]
        with np.errstate(over="ignore"):  # `are_finite` says so
            squares = [np.matmul(part.swapaxes(-1, -2), part).astype(np.float64) for part in parts]
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
        """Return a copy, [rows, inputs] or [channels, rows, inputs], of positions evenly spread."""
        if self.layer.op == "MatMul":
            if self.layer.attr("transpose_a", False):
                values = values.T
            return values[self._chosen(len(values))]
        windows = _windows(self.layer, values, self.kernel)
        count, high, wide = windows.shape[:3]
        at = np.unravel_index(self._chosen(count * high * wide), (count, high, wide))
        taken = windows[at]  # [rows, in, h, w]
        if self.layer.op == "DepthwiseConv2dNative":
            of_channel = taken.reshape(*taken.shape[:2], -1).transpose(1, 2, 0)
            return np.ascontiguousarray(of_channel).swapaxes(1, 2)  # else no BLAS multiplies them
        return taken.transpose(0, 2, 3, 1).reshape(len(taken), -1)

    def _chosen(self, count: int) -> Array:
        """Return which of so many rows are taken."""
        if count <= self.rows:
            return np.arange(count)
        return np.sort(np.random.default_rng(0).choice(count, self.rows, replace=False))


def _windows(layer: Node, values: Array, kernel: Shape) -> Array:
    """Return what a convolution sees at each position: a view [n, h, w, in, kernel h, kernel w]."""
    zeros = zeros_around(layer, kernel, values.shape)
    assert zeros is not None  # the size of the image is known
    padded = np.pad(values, [zeros.get(axis, (0, 0)) for axis in range(4)])
    strides, apart = per_axis(layer, "strides"), per_axis(layer, "dilations")
    sizes = [(kernel[axis - 1] - 1) * apart[axis] + 1 for axis in (1, 2)]
    windows = sliding_window_view(padded, sizes, (1, 2))
    view: Array = windows[:, :: strides[1], :: strides[2], :, :: apart[1], :: apart[2]]
    return view
