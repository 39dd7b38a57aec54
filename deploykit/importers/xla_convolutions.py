"""Convolutions that Keras compiles with XLA, rewritten as ops with kernels for all CPUs.

TensorFlow has no kernel for grouped Conv3D, and only oneDNN kernels for channels first. So each
group becomes a convolution, and channels are transposed.
"""

from dataclasses import replace

import numpy as np

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.functions import Library, names_in
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, tensor_name
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.layers import channels_first
from deploykit.transforms.shapes.static_shapes import static_shapes

_COMPILED = "_XlaMustCompile"
_MARK = "_deploykit_xla"
_CONVOLUTIONS = {"Conv2D": "NHWC", "Conv3D": "NDHWC"}


def mark_convolutions(graph: Graph) -> None:
    """Mark convolutions in functions that XLA compiles, as inlining loses this information."""
    library = Library(graph)
    compiled = [name for name, item in library.functions.items() if item.attr[_COMPILED].b]
    for node in graph:
        if _COMPILED in node.attrs and node.attr(_COMPILED):
            compiled += [*names_in(node.attrs.values()), node.op]
    for name in library.below(compiled):
        for proto in library[name].node_def:
            if proto.op in _CONVOLUTIONS:
                proto.attr[_MARK].b = True


def rewrite_convolutions(graph: Graph) -> None:
    """Rewrite the marked convolutions: channels last, and one Conv3D per group.

    GraphError: the numbers of channels are unknown.
    """
    marked = [node for node in graph if _MARK in node.attrs]
    if not marked:
        return
    shapes = static_shapes(graph, {tensor for node in marked for tensor in node.data_inputs})
    for node in marked:
        image, weights = (shapes[tensor] for tensor in node.data_inputs)
        node = graph.replace(node, node.with_attrs(_output_shapes=None, **{_MARK: None}))
        axis = 1 if channels_first(node) else -1
        if not image or not weights or min(image[axis], weights[-2]) < 0:
            raise GraphError("xla-channels-unknown", node=node.name, op=node.op)
        groups = image[axis] // weights[-2]
        if axis == 1:
            node = _channels_last(graph, node)
        if groups > 1 and node.op == "Conv3D":
            _split(graph, node, groups)


def _channels_last(graph: Graph, node: Node) -> Node:
    """Convert a convolution to channels last, between two transpositions; return it."""
    rank = len(_CONVOLUTIONS[node.op])
    last = [0, *range(2, rank), 1]  # new axis -> old axis
    first = [0, rank - 1, *range(1, rank - 1)]
    attrs: dict[str, object] = {"data_format": _CONVOLUTIONS[node.op]}
    for name in ("strides", "dilations"):
        if node.attr(name):
            attrs[name] = [node.attr(name)[axis] for axis in last]
    if node.attr("explicit_paddings"):
        pairs = np.reshape(node.attr("explicit_paddings"), (rank, 2))
        attrs["explicit_paddings"] = pairs[last].reshape(-1).tolist()
    image, weights = node.data_inputs
    turned = _transposed(graph, f"{node.name}/channels_last", image, last, node)
    inner = replace(node, name=graph.unique_name(f"{node.name}/convolution"))
    inner = inner.with_data_inputs(turned, weights).with_attrs(**attrs)
    graph.add(inner)
    back = _transposed(graph, f"{node.name}/channels_first", inner.name, first, node)
    graph.replace(node, graph[back])
    graph.remove(graph[back])
    return inner


def _transposed(graph: Graph, name: str, tensor: str, order: list[int], like: Node) -> str:
    name = graph.unique_name(name)
    axes = graph.constant_beside(like, np.array(order, np.int32), f"{name}/axes")
    node = Node(name, "Transpose", (tensor, axes.name), device=like.device)
    return graph.add(node.with_attrs(T=like.attrs["T"], Tperm=DType("int32"))).name


def _split(graph: Graph, node: Node, groups: int) -> None:
    """Replace a channels-last convolution by one convolution per group."""
    parts = []
    for tensor, name in zip(node.data_inputs, ("image", "weights"), strict=True):
        axis = graph.constant_beside(node, np.array(4, np.int32), f"{node.name}/{name}/axis")
        split = Node(graph.unique_name(f"{node.name}/{name}"), "Split", (axis.name, tensor))
        parts.append(graph.add(split.with_attrs(num_split=groups, T=node.attrs["T"])).name)
    results = []
    for group in range(groups):
        inner = replace(node, name=graph.unique_name(f"{node.name}/group_{group}"))
        inputs = (tensor_name(part, group) for part in parts)
        results.append(graph.add(inner.with_data_inputs(*inputs)).name)
    axis = graph.constant_beside(node, np.array(4, np.int32), f"{node.name}/axis")
    joined = Node(node.name, "ConcatV2", (*results, axis.name), device=node.device)
    attrs = {"N": groups, "T": node.attrs["T"], "Tidx": DType("int32")}
    graph.replace(node, joined.with_attrs(**attrs))
