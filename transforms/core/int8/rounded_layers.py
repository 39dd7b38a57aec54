"""Weights and biases of int8 layers that were chosen on samples, by the layer that they are for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.core.int8.gptq import Lattice, round_channels, round_product
from deploykit.transforms.core.int8.input_moments import InputMoments
from deploykit.transforms.core.int8.weights import weight_codes, weight_grid
from deploykit.transforms.core.layers.fused_chain import Chain
from deploykit.transforms.core.layers.layers import channel_axes
from deploykit.transforms.core.node import Node
from deploykit.transforms.core.tensors import Array


@dataclass(frozen=True)
class RoundedLayer:
    """The int8 weights of a layer, and what its bias gains so that its mean output stays."""

    codes: Array
    """int8, in the shape of the weights."""
    steps: Array
    """float32 [output channels]."""
    bias: Array
    """float64 [output channels], to be added to the bias where the layers before are int8 too."""
    own_bias: Array
    """The same where this layer alone is int8."""
    exact_sums: bool
    reads_sign: bool
    """For which kernel the codes are, as in `weight_codes`."""


Rounded = Mapping[str, RoundedLayer]
"""By `biased` of the chain of a layer."""


def rounded_in(
    rounded: Rounded, chain: Chain, exact_sums: bool, reads_sign: bool
) -> RoundedLayer | None:
    """Return what was chosen for a layer, if that is for the kernel that it gets."""
    found = rounded.get(chain.biased)
    if found is None or (found.exact_sums, found.reads_sign) != (exact_sums, reads_sign):
        return None
    return found


def codes_of(
    rounded: Rounded, chain: Chain, weights: Array, exact_sums: bool, reads_sign: bool
) -> tuple[Array, Array]:
    """Return codes and steps of a layer: those that were chosen, or else the nearest ones."""
    found = rounded_in(rounded, chain, exact_sums, reads_sign)
    if found is not None:
        return found.codes, found.steps
    return weight_codes(chain.nodes[0], weights, exact_sums, reads_sign)


def rounded_weights(
    layer: Node, weights: Array, moments: InputMoments, exact_sums: bool, reads_sign: bool
) -> tuple[Array, Array]:
    """Return codes and steps with which the layer's outputs change least on samples.

    Args:
        layer: a Conv2D, DepthwiseConv2dNative or MatMul.
        weights: float32, in the shape of its weights.
        moments: of its input.
        exact_sums: as in `weight_codes`.
        reads_sign: as in `weight_codes`.
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
