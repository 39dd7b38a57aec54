"""What subtracts the mean of a row and divides by its deviation is one op on oneDNN's kernel."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.kernel_limits import limit
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.layers.layer_norms import Row, norm_of, row_of
from deploykit.transforms.shapes.static_shapes import Shapes

OP = "_MklLayerNorm"
FLOAT = DType("float32")
_RANKS = (2, 3)  # the kernel takes no others


def fuse_layer_norms(graph: Graph) -> None:
    """Compute layer norms over the last axis in one op each, in float32.

    How scale and offset are applied differs from library to library, so it is looked at what is
    computed: scale * (x - mean) / sqrt(variance + epsilon) + offset. The result runs on x86 CPUs in
    TensorFlow builds with oneDNN, as pip installs them, with and without its flag; its op is
    private to TensorFlow, without a promise for later versions.
    """
    shapes = Shapes(graph)
    for node in list(graph):
        row = row_of(graph, node) if node.op == "Rsqrt" and node.name in graph else None
        if row is None:
            continue
        shape = shapes.shape(row.x)
        if shape is None or len(shape) not in _RANKS or shape[-1] < 1:
            graph.skip(node, "how many axes are normed is not known, or more than the kernel takes")
        elif reason := limit(OP, node):
            graph.skip(node, reason)
        elif not _fuse(graph, row, shape[-1]):
            graph.skip(node, "it is no layer norm, or a part of it is needed elsewhere")


def _fuse(graph: Graph, row: Row, channels: int) -> bool:
    """Put one op in the place of a layer norm, and say whether it is one."""
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
