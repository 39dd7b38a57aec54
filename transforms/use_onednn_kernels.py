"""A float layer with its bias, residual sum and activation is one op on oneDNN's kernel."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from transforms.core.graph import Graph
from transforms.core.layers import channel_axes, channels_first, weights_of
from transforms.core.node import Node
from transforms.core.ops import FEEDABLE_OPS, with_op
from transforms.core.pattern import Op, needed_elsewhere
from transforms.core.shapes import Shapes
from transforms.core.tensors import Array, DType

FLOAT = DType("float32")
ADD_OPS = frozenset({"Add", "AddV2"})
WITHOUT_FLAG = {"_kernel": "MklNameChangeOp"}  # the label under which oneDNN registers its kernels
BATCHES = (5, 1009)  # sizes that are linear in the batch and equal at both are always equal


@dataclass(frozen=True)
class _Kernel:
    """A private op that computes a layer, and which activations it can end with."""

    op: str
    activations: frozenset[str]


KERNELS = {
    "Conv2D": _Kernel("_MklNativeFusedConv2D", frozenset({"Elu", "LeakyRelu", "Relu", "Relu6"})),
    "DepthwiseConv2dNative": _Kernel(
        "_MklNativeFusedDepthwiseConv2dNative", frozenset({"Elu", "Relu", "Relu6"})
    ),
    "MatMul": _Kernel(
        "_MklNativeFusedMatMul", frozenset({"Elu", "Relu", "Relu6", "Sigmoid", "Tanh"})
    ),
}


def use_onednn_kernels(graph: Graph, *, matmul: bool = False, skip: tuple[str, ...] = ()) -> None:
    """Run float convolutions on oneDNN's kernels without TF_ENABLE_ONEDNN_OPTS, fused.

    The result runs on x86 CPUs in TensorFlow builds with oneDNN, as pip installs them; its ops are
    private to TensorFlow, without a promise for later versions. It pays where layers are large and
    oneDNN is off: each op costs 55 to 85 us whatever its size, so nets of a few small layers get
    slower, and TensorFlow turns oneDNN on by itself on newer CPUs. Fold batch norms first. A NaN
    before a Relu becomes 0, as under that flag. GraphError: `skip` names no node.

    Args:
        matmul: also MatMul, which pays at batches of 8 or more; at batch 1 it is mostly slower.
        skip: the name of a layer that stays as it is; may be given several times.
    """
    listed = {graph[name].name for name in skip}
    ops = [op for op in KERNELS if matmul or op != "MatMul"]
    same_shape = _comparison(graph)
    for match in graph.match(Op("|".join(ops), name="layer")):
        layer = match["layer"]
        reason = "it is listed in skip" if layer.name in listed else _reason(graph, layer)
        if reason:
            graph.skip(layer, reason)
            continue
        chain = _chain(graph, layer, same_shape)
        graph.replace(chain.nodes[-1], _fused(graph, chain))


def _reason(graph: Graph, layer: Node) -> str:
    """Return why a layer has no kernel, or an empty string."""
    weights = weights_of(graph, layer)
    if layer.attr("T") != FLOAT:
        return f"its type is {layer.attr('T')}, not float32"
    if weights is None:
        return "its weights are not constant"
    if graph.is_input(layer.name):
        return "it is fed"
    if "GPU" in layer.device.upper():
        return f"it is placed on {layer.device}, and the kernels run on CPUs"
    if channels_first(layer):
        return "its data format is NCHW; convert_layout makes it NHWC"
    if layer.op == "DepthwiseConv2dNative" and layer.attr("padding") == "EXPLICIT":
        return "the depthwise kernel takes no explicit padding"
    if layer.attr("transpose_a", False):
        return "the kernel does not transpose its input"
    return ""


@dataclass(frozen=True)
class _Chain:
    """A layer and what is computed with it."""

    nodes: tuple[Node, ...]
    bias: str = ""
    summand: str = ""
    activation: Node | None = None


def _chain(graph: Graph, layer: Node, same_shape: Callable[[str, str], bool]) -> _Chain:
    """Return the layer with the nodes behind it that its kernel computes too."""
    nodes, bias, summand = [layer], "", ""
    activations = KERNELS[layer.op].activations
    while (reader := _only_reader(graph, nodes[-1])) is not None:
        last = nodes[-1].name
        others = [tensor for tensor in reader.data_inputs if tensor != last]
        if reader.op in activations:
            return _Chain((*nodes, reader), bias, summand, reader)
        if nodes == [layer] and _is_bias(graph, layer, reader):
            (bias,) = others
        elif layer.op == "Conv2D" and reader.op in ADD_OPS and not summand:
            if not same_shape(last, others[0]):
                break
            (summand,) = others
        else:
            break
        nodes.append(reader)
    return _Chain(tuple(nodes), bias, summand)


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the one node that needs another one's value, or None."""
    readers = graph.readers(node.name)
    if len(readers) != 1 or needed_elsewhere(graph, [node, readers[0]]):
        return None
    return readers[0] if node.name in readers[0].data_inputs else None


def _is_bias(graph: Graph, layer: Node, step: Node) -> bool:
    """Say whether a step adds one constant to each channel of a layer."""
    if step.op not in ADD_OPS | {"BiasAdd"} or channels_first(step):
        return False
    constants = [graph.constant(t) for t in step.data_inputs if t != layer.name]
    return [c.shape for c in constants if c is not None] == [(_channels(graph, layer),)]


def _channels(graph: Graph, layer: Node) -> int:
    weights = weights_of(graph, layer)
    assert weights is not None
    return int(np.prod([weights.shape[axis] for axis in channel_axes(layer)]))


def _comparison(graph: Graph) -> Callable[[str, str], bool]:
    """Return what says whether two tensors have one shape at every batch.

    A kernel that is given a smaller summand writes beyond its memory. So what two inputs could be
    fed with in different batches is not added there.
    """
    fed = [node for node in graph if node.op in FEEDABLE_OPS or graph.is_input(node.name)]
    if len(fed) > 1 or any(node.op not in FEEDABLE_OPS for node in fed):
        return lambda _, __: False
    at_batches = [Shapes(graph.copy(), batch) for batch in BATCHES]

    def same(one: str, other: str) -> bool:
        shapes = [(at.full_shape(one), at.full_shape(other)) for at in at_batches]
        return all(a is not None and a == b for a, b in shapes)

    return same


def _fused(graph: Graph, chain: _Chain) -> Node:
    """Return the op that computes a chain; a bias of zeros is added where it has none."""
    layer = chain.nodes[0]
    bias = chain.bias or _zeros(graph, layer)
    args = [bias, chain.summand] if chain.summand else [bias]
    fused_ops = ["BiasAdd"] + ["Add"] * bool(chain.summand)
    attrs: dict[str, Any] = {"num_args": len(args), "is_filter_const": True}
    if chain.activation is not None:
        fused_ops.append(chain.activation.op)
        if chain.activation.op == "LeakyRelu":
            attrs["leakyrelu_alpha"] = chain.activation.attr("alpha", 0.2)
    if layer.op == "Conv2D":
        attrs["TArgs"] = [FLOAT] * len(args)
    control = [tensor for node in chain.nodes for tensor in node.control_inputs]
    fused = with_op(layer, KERNELS[layer.op].op).with_attrs(
        **attrs, **WITHOUT_FLAG, fused_ops=fused_ops
    )
    return fused.with_inputs(*layer.data_inputs, *args, *control)


def _zeros(graph: Graph, layer: Node) -> str:
    weights = graph.constant(layer.data_inputs[1])
    assert weights is not None
    zeros: Array = np.zeros(_channels(graph, layer), np.float32)
    const = Node.constant(graph.unique_name(f"{layer.name}/no_bias"), zeros, device=layer.device)
    return graph.add(const.with_control_inputs(*weights.control_inputs)).name
