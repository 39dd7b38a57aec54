"""Frozen graphs of a few nodes, made without a start of TensorFlow."""

from pathlib import Path

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.protos import AttrValue
from deploykit.transforms.ir.tensors import DType

FLOAT = DType("float32")


def placeholder(*shape: int, dtype: str = "float32") -> Node:
    return Node("x", "Placeholder").with_attrs(dtype=DType(dtype), shape=shape)


def dense(
    *others: Node, reads: tuple[str, ...] = ("y",), shape: tuple[int, ...] = (-1, 8)
) -> Graph:
    """Return a dense layer of 8 and its ReLU, which may wait for other nodes."""
    nodes = [
        placeholder(*shape),
        Node.constant("w", np.ones((shape[-1] if shape[-1] > 0 else 8, 8), np.float32)),
        Node("y", "MatMul", ("x", "w")).with_attrs(T=FLOAT, transpose_a=False, transpose_b=False),
        *others,
        Node("out", "Relu", reads).with_attrs(T=FLOAT),
    ]
    return Graph(nodes, ("x",), ("out",))


def aborting() -> Graph:
    """Return a net whose process ends itself with SIGABRT."""
    abort = Node("abort", "Abort").with_attrs(error_msg="planted", exit_without_error=False)
    return dense(abort, reads=("y", "^abort"))


def hanging() -> Graph:
    """Return a net that waits for an element of a queue that nobody fills."""
    types = AttrValue()
    types.list.type.append(1)  # float32
    queue = Node("queue", "FIFOQueueV2").with_attrs(component_types=types, capacity=1)
    taken = Node("taken", "QueueDequeueV2", ("queue",)).with_attrs(component_types=types)
    return dense(queue, taken, reads=("y", "^taken"))


def written(graph: Graph, path: Path) -> Path:
    path.write_bytes(b"".join(graph.serialized()))
    return path
