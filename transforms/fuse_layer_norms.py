"""Subtracting the mean of a row and dividing by its deviation is one op of oneDNN."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.composites import Row, norm_of, row_of
from deploykit.transforms.shapes.static_shapes import Shapes

OP = "_MklLayerNorm"
FLOAT = DType("float32")
_RANKS = (2, 3)  # the kernel supports only these


def fuse_layer_norms(graph: Graph) -> None:
    """Replace layer norms over the last axis by one op each, in float32.

    Libraries apply scale and offset in different ways, so the transform matches the computed value:
    `scale * (x - mean) / sqrt(variance + epsilon) + offset`. The result runs on x86 CPUs in
    TensorFlow builds with oneDNN, as pip installs them, with and without its flag. The op is
    private to TensorFlow, so later versions may lack it.
    """
    shapes = Shapes(graph)
    for node in list(graph):
        row = row_of(graph, node) if node.op == "Rsqrt" and node.name in graph else None
        if row is None:
            continue
        shape = shapes.shape(row.x)
        if shape is None or len(shape) not in _RANKS or shape[-1] < 1:
            graph.skip(node, "the number of normed axes is unknown, or more than the kernel takes")
        elif not graph.skip(node, limit(OP, node)) and not _fuse(graph, row, shape[-1]):
            graph.skip(node, "it is not a layer norm, or another node reads a part of it")


def _fuse(graph: Graph, row: Row, channels: int) -> bool:
    """Replace a layer norm by one op; return whether the nodes are a layer norm."""
    result = norm_of(graph, row, channels)
    if result is None:
        return False
    steps, parts = result
    last = steps[-1]
    consts = [
        graph.constant_beside(last, array.astype(np.float32), f"{last.name}/{part}").name
        for part, array in zip(("scale", "offset"), parts, strict=True)
    ]
    norm = Node(last.name, OP, (row.x, *consts), {}, last.device)
    norm = norm.with_attrs(T=FLOAT, epsilon=row.epsilon)
    graph.absorb([*row.nodes, *steps], into=norm)
    return True
