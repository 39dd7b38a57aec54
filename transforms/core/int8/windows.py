"""What a convolution sees of its input at each position."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from deploykit.transforms.core.layers.padding import per_axis, zeros_around
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.shapes.sizes import Shape
from deploykit.transforms.core.tensors import Array

Pair = tuple[int, int]
"""Of the height and the width."""


@dataclass(frozen=True)
class Windows:
    """The windows of a batch, which overlap."""

    padded: Array
    """float32 [n, h, w, channels], with what the convolution puts around it."""
    kernel: Pair
    strides: Pair
    dilations: Pair

    @classmethod
    def of(
        cls, layer: Node, kernel: Shape, values: Array, around: Array | None = None
    ) -> "Windows":
        """Return those of a layer's input, NHWC; `around` is what its padding is, by channel.

        Default: zeros.
        """
        zeros = zeros_around(layer, kernel, values.shape)
        assert zeros is not None  # the size of the image is known
        before, after = zip(*(zeros.get(axis, (0, 0)) for axis in range(4)), strict=True)
        sizes = [sum(each) for each in zip(before, values.shape, after, strict=True)]
        padded = np.zeros(sizes, values.dtype)
        if around is not None:
            padded[:] = around
        inside = (slice(b, b + size) for b, size in zip(before, values.shape, strict=True))
        padded[tuple(inside)] = values
        strides, apart = per_axis(layer, "strides"), per_axis(layer, "dilations")
        pairs = [(int(each[1]), int(each[2])) for each in (strides, apart)]
        return cls(padded, (kernel[0], kernel[1]), *pairs)

    @property
    def positions(self) -> Pair:
        """How many windows an image has."""
        high, wide = (
            (size - (kernel - 1) * apart - 1) // stride + 1
            for size, kernel, apart, stride in zip(
                self.padded.shape[1:3], self.kernel, self.dilations, self.strides, strict=True
            )
        )
        return high, wide

    @property
    def count(self) -> int:
        """How many windows there are."""
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
        """Return the sum over windows at each place of the kernel: float64 [channels, places]."""
        images = self.padded.sum(0, dtype=np.float64)
        places = np.ndindex(self.kernel)
        return np.stack([self._over_windows(images, place) for place in places], axis=-1)

    def squares(self) -> Array:
        """Return the sums of products at two places: float64 [channels, places, places]."""
        high, wide = self.kernel
        found = np.empty((high * wide, high * wide, self.padded.shape[-1]))
        for down, right in self._displacements():
            products, left = self._products(down, right)
            for row in range(high - down):
                for column in range(left, wide - max(0, right)):
                    place = (row, column - left)
                    one, other = row * wide + column, (row + down) * wide + column + right
                    found[one, other] = found[other, one] = self._over_windows(products, place)
        return found.transpose(2, 0, 1)

    def _displacements(self) -> Iterator[Pair]:
        """Yield how far two places can be apart, downwards and to the right, each pair once."""
        high, wide = self.kernel
        for down in range(high):
            yield from ((down, right) for right in range(1 - wide if down else 0, wide))

    def _products(self, down: int, right: int) -> tuple[Array, int]:
        """Return the sums over images of products of pixels so far apart: [h, w, channels].

        Return how many places of the kernel lie to the left of the first one, too.
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
        """Return the sum over all windows of what an image has at a place of the kernel."""
        taken = []
        for at, apart, stride, count in zip(
            place, self.dilations, self.strides, self.positions, strict=True
        ):
            taken.append(slice(at * apart, at * apart + stride * (count - 1) + 1, stride))
        total: Array = image[tuple(taken)].sum((0, 1), dtype=np.float64)
        return total
