"""Second moments of what a layer multiplies with its weights, from samples of its input."""

from dataclasses import dataclass, field

import numpy as np

from deploykit.transforms.core.int8.windows import Windows
from deploykit.transforms.core.layers.layers import channel_axes
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.sizes import Shape
from deploykit.transforms.core.tensors import Array

ROWS_AN_INPUT = 4  # that are looked at, for each weight of an output channel
FEWEST_ROWS = 32768
LARGEST = 4608  # inputs at once: [3, 3, 512]; of a larger product, parts are rounded apart


@dataclass
class InputMoments:
    """Sums over rows of inputs: one row for each position at which the weights are applied.

    Of a DepthwiseConv2dNative each channel has rows of its own, of which none is left out.
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
        found.rows = max(ROWS_AN_INPUT * found.inputs, FEWEST_ROWS) // batches + 1
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
        with np.errstate(over="ignore"):  # `are_finite` says so
            self._add_squares([np.matmul(part.T, part).astype(np.float64) for part in parts])

    def _add_windows(self, values: Array) -> None:
        """Take all windows of a batch, from sums of products of pixels that are so far apart.

        The products at two places of the kernel are those of two pixels as far apart, whichever
        window they are in: each product is computed once for all windows.
        """
        if not values.size:
            return
        if self.center is None:
            self.center = values.mean((0, 1, 2), dtype=np.float64).astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # `are_finite` says so
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
        """Return a copy, [rows, inputs], of positions evenly spread."""
        if self.layer.op == "MatMul":
            if self.layer.attr("transpose_a", False):
                values = values.T
            return values[self._chosen(len(values))]
        windows = Windows.of(self.layer, self.kernel, values).views()
        count, high, wide = windows.shape[:3]
        at = np.unravel_index(self._chosen(count * high * wide), (count, high, wide))
        taken = windows[at]  # [rows, in, h, w]
        return taken.transpose(0, 2, 3, 1).reshape(len(taken), -1)

    def _chosen(self, count: int) -> Array:
        """Return which of so many rows are taken."""
        if count <= self.rows:
            return np.arange(count)
        return np.sort(np.random.default_rng(0).choice(count, self.rows, replace=False))
