"""Weights are codes -127...127 and a step for each output channel: weight = code * step.

Source of the limit on pairs: Intel's vpmaddubsw adds the products of two adjacent input channels in
16 bits, which saturate. With unsigned inputs up to 255 they hold where the codes of one sign in a
pair sum to at most 128, as 128 * 255 < 2^15.

Where a convolution reads codes with a sign, oneDNN shifts them above zero, and on such a processor
halves the codes of the weights, with rounding; so these are even there. A few of its kernels do not
halve, which even codes do not mind; that of MatMul never does.
"""

from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.layers.layers import channel_axes, channel_shape
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.tensors import Array

LARGEST = 127
_PAIR = 128


@dataclass(frozen=True)
class WeightGrid:
    """The values that int8 weights of a layer can take: multiples of a step for each channel."""

    steps: Array
    """float32 [output channels]: what code 1 stands for."""
    levels: Array
    """float64 [output channels]: the largest multiple, in either direction."""
    apart: int
    """The difference of two neighbouring codes: 2 where only even ones are used."""
    pair: int | None
    """What two neighbouring input channels of one sign may sum to, in multiples; None: anything."""


def weight_codes(
    layer: Node, weights: Array, exact_sums: bool, reads_sign: bool = False
) -> tuple[Array, Array]:
    """Return int8 codes in the shape of the weights, and float32 steps, one a channel.

    Each weight is rounded to the nearest code.
    """
    grid = weight_grid(layer, weights, exact_sums, reads_sign)
    shape = channel_shape(layer, weights.shape)
    codes = np.rint(weights / (grid.steps * grid.apart).reshape(shape))
    return (codes * grid.apart).astype(np.int8), grid.steps


def weight_grid(
    layer: Node, weights: Array, exact_sums: bool, reads_sign: bool = False
) -> WeightGrid:
    """Return the grid of a layer's int8 weights.

    Without exact sums, each channel of a Conv2D or MatMul has as many levels as its pairs allow,
    and convolutions that read codes with a sign have even codes.
    """
    apart = 2 if reads_sign and not exact_sums and layer.op != "MatMul" else 1
    axes = tuple(axis for axis in range(weights.ndim) if axis not in channel_axes(layer))
    peaks = np.abs(weights).max(axes).astype(np.float64).reshape(-1)
    peaks[peaks < np.finfo(np.float32).tiny * LARGEST] = 1  # all zero: any step serves
    levels = np.full(peaks.shape, float(LARGEST // apart))
    has_pairs = not exact_sums and layer.op != "DepthwiseConv2dNative"
    if has_pairs:
        levels = _levels(_by_channel(layer, weights), peaks, apart)
    steps = (peaks / (levels * apart)).astype(np.float32)
    return WeightGrid(steps, levels, apart, _PAIR // apart if has_pairs else None)


def restored(layer: Node, codes: Array, steps: Array) -> Array:
    """Return the weights that codes stand for, in float32."""
    restored: Array = codes * steps.reshape(channel_shape(layer, codes.shape))
    return restored


def saturates(layer: Node, codes: Array) -> bool:
    """Say whether sums of pairs of these codes may be wrong where they are not exact."""
    if layer.op == "DepthwiseConv2dNative":
        return False
    return bool((_worst_pairs(_by_channel(layer, codes.astype(np.int32))) > _PAIR).any())


def _by_channel(layer: Node, weights: Array) -> Array:
    """Return the weights as [positions, input channels, output channels]."""
    if layer.op == "MatMul":
        return (weights.T if channel_axes(layer) == (0,) else weights)[np.newaxis]
    return weights.reshape(-1, *weights.shape[-2:])


def _levels(weights: Array, peaks: Array, apart: int) -> Array:
    """Return for each output channel the most levels at which no pair of inputs saturates.

    They are as many codes apart.
    """
    levels, most = np.full(peaks.shape, float(LARGEST // apart)), _PAIR // apart
    open_ = np.arange(len(peaks))
    while open_.size:
        worst = _worst_pairs(np.rint(weights[..., open_] * (levels[open_] / peaks[open_])))
        too_large = worst > most
        open_, worst = open_[too_large], worst[too_large]
        levels[open_] = np.minimum(levels[open_] - 1, np.ceil(levels[open_] * most / worst))
    return levels


def _worst_pairs(codes: Array) -> Array:
    """Return the largest sum of two neighbours of one sign, by output channel."""
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1), (0, 0)))
    pairs = codes.reshape(len(codes), -1, 2, codes.shape[-1])
    sums = np.maximum(pairs, 0).sum(2), np.maximum(-pairs, 0).sum(2)
    worst: Array = np.maximum(*sums).max((0, 1))
    return worst
