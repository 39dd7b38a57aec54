"""int8 weights: codes with a step for each output channel, chosen on samples, and corrected
biases.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.int8.gptq import InputMoments, Lattice, round_channels, round_product
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.fused_ops import Chain
from deploykit.transforms.layers.layers import bias_add, channel_axes, channel_shape

LARGEST = 127
_PAIR = 128


@dataclass(frozen=True)
class WeightGrid:
    """The values that int8 weights of a layer can have: multiples of a step for each channel."""

    steps: Array
    """float32 [output channels]: value of code 1."""
    levels: Array
    """float64 [output channels]: the largest multiple, in either direction."""
    apart: int
    """Difference of two adjacent codes: 2 if only even ones are used."""
    pair: int | None
    """Maximum sum of two adjacent input channels of one sign, in multiples; None: unlimited."""


def weight_codes(
    layer: Node, weights: Array, exact_sums: bool, reads_sign: bool = False
) -> tuple[Array, Array]:
    """Return int8 codes in the shape of the weights, and float32 steps, one per channel.

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
    and convolutions that read signed codes have even codes.
    """
    apart = 2 if reads_sign and not exact_sums and layer.op != "MatMul" else 1
    axes = tuple(axis for axis in range(weights.ndim) if axis not in channel_axes(layer))
    peaks = np.abs(weights).max(axes).astype(np.float64).reshape(-1)
    peaks[peaks < np.finfo(np.float32).tiny * LARGEST] = 1  # all zero: any step is valid
    levels = np.full(peaks.shape, float(LARGEST // apart))
    has_pairs = not exact_sums and layer.op != "DepthwiseConv2dNative"
    if has_pairs:
        levels = _levels(_by_channel(layer, weights), peaks, apart)
    steps = (peaks / (levels * apart)).astype(np.float32)
    return WeightGrid(steps, levels, apart, _PAIR // apart if has_pairs else None)


def restored(layer: Node, codes: Array, steps: Array) -> Array:
    """Return the float32 weights that codes represent."""
    restored: Array = codes * steps.reshape(channel_shape(layer, codes.shape))
    return restored


def saturates(layer: Node, codes: Array) -> bool:
    """Return whether sums of pairs of these codes may saturate without exact sums."""
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

    Adjacent levels differ by `apart` codes.
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


@dataclass(frozen=True)
class RoundedLayer:
    """The int8 weights of a layer, and the bias correction that keeps its mean output."""

    codes: Array
    """int8, in the shape of the weights."""
    steps: Array
    """float32 [output channels]."""
    bias: Array
    """float64 [output channels], to add to the bias if the layers before are int8 too."""
    own_bias: Array
    """The same if only this layer is int8."""
    exact_sums: bool
    reads_sign: bool
    """The kernel of the codes, as in `weight_codes`."""


Rounded = Mapping[str, RoundedLayer]
"""Rounded layers by `biased` of the layer's chain."""


def rounded_in(
    rounded: Rounded, chain: Chain, exact_sums: bool, reads_sign: bool
) -> RoundedLayer | None:
    """Return the chosen weights of a layer, if they fit the kernel that it gets."""
    value = rounded.get(chain.biased)
    if value is None or (value.exact_sums, value.reads_sign) != (exact_sums, reads_sign):
        return None
    return value


def codes_of(
    rounded: Rounded, chain: Chain, weights: Array, exact_sums: bool, reads_sign: bool
) -> tuple[Array, Array]:
    """Return codes and steps of a layer: the chosen ones, or else the nearest ones."""
    result = rounded_in(rounded, chain, exact_sums, reads_sign)
    if result is not None:
        return result.codes, result.steps
    return weight_codes(chain.nodes[0], weights, exact_sums, reads_sign)


def rounded_weights(
    layer: Node, weights: Array, moments: InputMoments, exact_sums: bool, reads_sign: bool
) -> tuple[Array, Array]:
    """Return the codes and steps with the least change of the layer's outputs on samples.

    `moments` are those of its input; the other arguments are those of `weight_codes`.
    """
    if not moments.are_finite:
        return weight_codes(layer, weights, exact_sums, reads_sign)
    grid = weight_grid(layer, weights, exact_sums, reads_sign)
    step = grid.steps.astype(np.float64) * grid.apart
    if layer.op == "DepthwiseConv2dNative":
        high, wide, channels, outputs = weights.shape
        inputs = weights.reshape(high * wide, channels, outputs).transpose(1, 0, 2)
        scaled = inputs / step.reshape(channels, 1, outputs)
        levels = grid.levels.reshape(channels, outputs)
        multiples = round_channels(scaled, moments.central()[0], levels)
        multiples = multiples.transpose(1, 0, 2).reshape(weights.shape)
    else:
        is_transposed = channel_axes(layer) == (0,)
        matrix = weights.T if is_transposed else weights.reshape(-1, weights.shape[-1])
        scaled = matrix.astype(np.float64) / step
        multiples = np.empty_like(scaled)
        partners = _partners(moments.inputs, moments.channels) if grid.pair is not None else None
        for part, central in zip(moments.parts, moments.central(), strict=True):
            own = None if partners is None else partners[part] - part.start
            lattice = Lattice(grid.levels, own, grid.pair or 0)
            multiples[part] = round_product(scaled[part], central, lattice)
        multiples = multiples.T if is_transposed else multiples.reshape(weights.shape)
    return (multiples * grid.apart).astype(np.int8), grid.steps


def _partners(inputs: int, channels: int) -> Array:
    """Return for each input [position, channel] its neighbour in a pair of channels, or -1."""
    channel = np.arange(inputs) % channels
    partner = np.arange(inputs) + np.where(channel % 2, -1, 1)
    partner[(channel % 2 == 0) & (channel == channels - 1)] = -1
    return partner


OPS = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})


def add_to_bias(graph: Graph, chain: Chain, values: Array) -> None:
    """Add values to the bias of a layer, or add a bias after it."""
    layer = chain.nodes[0]
    const = graph.constant(chain.bias) if chain.bias else None
    if const is None:
        free = graph.add_copy(layer, f"{layer.name}/unbiased")
        graph.replace(layer, bias_add(graph, layer.name, free, values))
        return
    corrected = (const.value.astype(np.float64) + values).astype(np.float32)
    new = graph.constant_beside(const, corrected, f"{layer.name}/corrected_bias")
    bias = chain.nodes[1]
    graph.replace(bias, bias.reading({chain.bias: new.name}))
