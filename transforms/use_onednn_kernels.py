"""A float layer with its bias, residual sum and activation can be one op of oneDNN."""

from typing import Any

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import with_op
from deploykit.transforms.ir.pattern import Op
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.layers.fused_ops import (
    Chain,
    chain,
    channel_count,
    shape_comparison,
    unfit,
)

FLOAT = DType("float32")
WITHOUT_FLAG = {"_kernel": "MklNameChangeOp"}  # the label under which oneDNN registers kernels


# For each layer: the private op, and the activations that can be fused into it.
KERNELS = {
    "Conv2D": ("_MklNativeFusedConv2D", ("Elu", "LeakyRelu", "Relu", "Relu6")),
    "DepthwiseConv2dNative": ("_MklNativeFusedDepthwiseConv2dNative", ("Elu", "Relu", "Relu6")),
    "MatMul": ("_MklNativeFusedMatMul", ("Elu", "Gelu", "Relu", "Relu6", "Sigmoid", "Tanh")),
}


def use_onednn_kernels(graph: Graph, *, matmul: bool = False, skip: tuple[str, ...] = ()) -> None:
    """Run float convolutions on oneDNN's kernels without TF_ENABLE_ONEDNN_OPTS, fused.

    The result runs on x86 CPUs in TensorFlow builds with oneDNN, as pip installs them. The ops are
    private to TensorFlow, so later versions may lack them. Use it for large layers where oneDNN is
    off. Each op costs 55 to 85 us for any size, so networks of a few small layers become slower,
    and TensorFlow enables oneDNN itself on newer CPUs. Fold batch norms first. As with that flag, a
    NaN before a Relu becomes 0. A convolution gives a batch of 0 the shape of its input, so later
    layers may fail. GraphError: `skip` names an unknown node.

    Args:
        matmul: also MatMul, which is faster at batches of 8 or more and mostly slower at batch 1.
        skip: name of a layer that is not changed; may be given several times.
    """
    listed = {graph[name].name for name in skip}
    ops = [op for op in KERNELS if matmul or op != "MatMul"]
    same_shape = shape_comparison(graph)
    for match in graph.match(Op("|".join(ops), name="layer")):
        layer = match["layer"]
        op, activations = KERNELS[layer.op]
        reason = "it is listed in skip" if layer.name in listed else unfit(graph, op, layer)
        if graph.skip(layer, reason):
            continue
        result = chain(graph, layer, activations, same_shape)
        graph.absorb(result.nodes, into=_fused(graph, result))


def _fused(graph: Graph, chain: Chain) -> Node:
    """Return the op of a chain; a chain without a bias gets a bias of zeros."""
    layer, bias = chain.nodes[0], chain.bias
    if not bias:
        zeros: Array = np.zeros(channel_count(graph, layer), np.float32)
        bias = graph.constant_beside(layer, zeros, f"{layer.name}/no_bias").name
    args = [bias, chain.summand] if chain.summand else [bias]
    fused_ops = ["BiasAdd"] + ["Add"] * bool(chain.summand)
    attrs: dict[str, Any] = {"num_args": len(args), "is_filter_const": True}
    if chain.activation is not None:
        fused_ops.append(chain.activation_op)
        if chain.activation.op == "LeakyRelu":
            attrs["leakyrelu_alpha"] = chain.activation.attr("alpha", 0.2)
    if layer.op == "Conv2D":
        attrs["TArgs"] = [FLOAT] * len(args)
    attrs |= {**WITHOUT_FLAG, "fused_ops": fused_ops}
    fused = with_op(layer, KERNELS[layer.op][0]).with_attrs(**attrs)
    fused = fused.with_name(chain.nodes[-1].name)
    return fused.with_data_inputs(*layer.data_inputs, *args)
