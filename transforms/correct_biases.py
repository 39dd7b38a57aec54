"""Rounded weights shift each channel by E[x] (W - Wq) on average, which its bias takes back."""

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.int8.isa import sums_exactly
from deploykit.transforms.core.int8.plan import plan
from deploykit.transforms.core.int8.ranges import load_ranges
from deploykit.transforms.core.int8.weights import restored, weight_codes
from deploykit.transforms.core.layers.fused_chain import Chain
from deploykit.transforms.core.layers.layers import bias_add, weights_of
from deploykit.transforms.core.node import Node, normal
from deploykit.transforms.core.tensors import Array


def correct_biases(
    graph: Graph, *, ranges: str, isa: str = "auto", keep_float: tuple[str, ...] = ()
) -> None:
    """Prepare biases for `quantize_static`, which rounds the weights of each layer.

    To be run right before it with the same parameters, as it changes those layers alone that will
    be in 8 bits. Source: M. Nagel et al., Data-Free Quantization Through Weight Equalization and
    Bias Correction, 2019, section 4.2; the means are those of the calibration.

    GraphError: the ranges are another graph's, weights hold NaN or Inf, or `keep_float` names no
    node.

    Args:
        ranges: the file that `deploykit calibrate` wrote for this graph.
        isa: avx2, vnni or auto, as in `quantize_static`.
        keep_float: the name of a layer that stays float; may be given several times.
    """
    known, exact_sums = load_ranges(ranges), sums_exactly(isa)
    for chain in plan(graph, known, keep_float).chains.values():
        layer = chain.nodes[0]
        found = known.tensors.get(normal(layer.data_inputs[0]))
        weights = weights_of(graph, layer)
        assert weights is not None
        channels = weights.shape[-1 if layer.attr("transpose_b", False) else -2]
        if found is None or len(found.channel_mean) != channels:
            graph.skip(layer, "the means of its input's channels are not known")
            continue
        codes, steps = weight_codes(layer, weights.value, exact_sums)
        lost = weights.value.astype(np.float64) - restored(layer, codes, steps)
        _add(graph, chain, _answer(layer, lost, np.array(found.channel_mean)))


def _answer(layer: Node, weights: Array, means: Array) -> Array:
    """Return what a layer with these weights gives for an input of these means, one a channel."""
    if layer.op == "MatMul":
        return means @ (weights.T if layer.attr("transpose_b", False) else weights)
    window: Array = weights.sum((0, 1))
    if layer.op == "DepthwiseConv2dNative":
        return (window * means[:, np.newaxis]).reshape(-1)
    return means @ window


def _add(graph: Graph, chain: Chain, values: Array) -> None:
    """Add values to the bias of a layer, or a bias behind it."""
    layer = chain.nodes[0]
    const = graph.constant(chain.bias) if chain.bias else None
    if const is None:
        free = layer.with_name(graph.unique_name(f"{layer.name}/unbiased"))
        graph.replace(layer, bias_add(graph, layer.name, graph.add(free), values))
        return
    corrected = (const.value.astype(np.float64) + values).astype(np.float32)
    new = graph.constant_beside(const, corrected, f"{layer.name}/corrected_bias")
    bias = chain.nodes[1]
    inputs = [new.name if tensor == chain.bias else tensor for tensor in bias.data_inputs]
    graph.replace(bias, bias.with_data_inputs(*inputs))
