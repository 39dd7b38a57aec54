"""A dilated convolution is a convolution whose kernel has zeros between its weights."""

import numpy as np

from deploykit.transforms.fuse_dilations import Atrous, atrous_layers, replace_atrous
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.layers.layers import weights_of


def flatten_atrous_conv(graph: Graph) -> None:
    """Replace SpaceToBatchND, a convolution and BatchToSpaceND by one with a larger kernel.

    The op multiplies the zeros in the kernel as well: a depthwise convolution is up to twice as
    fast under oneDNN and slower without; a Conv2D is slower, so use fuse_dilations for it.
    """
    for atrous in atrous_layers(graph):
        weights = weights_of(graph, atrous.layer)
        if weights is None:
            graph.skip(atrous.layer, "its weights are not constant; run fold_constants first")
            continue
        upsampled = _upsampled(atrous, weights.value)
        replace_atrous(graph, atrous, atrous.layer, upsampled.shape, upsampled)


def _upsampled(atrous: Atrous, weights: Array) -> Array:
    """Return the weights with rate - 1 zeros between neighbours along each spatial axis."""
    rates = atrous.rates.values()
    sizes = [(size - 1) * rate + 1 for size, rate in zip(weights.shape, rates, strict=False)]
    result = np.zeros((*sizes, *weights.shape[len(sizes) :]), weights.dtype)
    result[tuple(slice(None, None, rate) for rate in rates)] = weights
    return result
