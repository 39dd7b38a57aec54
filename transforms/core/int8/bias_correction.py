"""What a layer gives on average for the part of its weights that rounding takes, put in its bias.

Rounded weights Wq shift each output channel by E[x] (W - Wq) on average. Source: M. Nagel et al.,
Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.2.
"""

import numpy as np

from deploykit.transforms.core.graph import Graph
from deploykit.transforms.core.layers.fused_chain import Chain
from deploykit.transforms.core.layers.layers import bias_add
from deploykit.transforms.core.tensors import Array

OPS = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul"})


def add_to_bias(graph: Graph, found: Chain, values: Array) -> None:
    """Add values to the bias of a layer, or a bias behind it."""
    layer = found.nodes[0]
    const = graph.constant(found.bias) if found.bias else None
    if const is None:
        free = layer.with_name(graph.unique_name(f"{layer.name}/unbiased"))
        graph.replace(layer, bias_add(graph, layer.name, graph.add(free), values))
        return
    corrected = (const.value.astype(np.float64) + values).astype(np.float32)
    new = graph.constant_beside(const, corrected, f"{layer.name}/corrected_bias")
    bias = found.nodes[1]
    inputs = [new.name if tensor == found.bias else tensor for tensor in bias.data_inputs]
    graph.replace(bias, bias.with_data_inputs(*inputs))
