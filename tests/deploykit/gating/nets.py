"""Classifiers whose accuracy, size and work are known, and samples for them."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType

FLOAT = DType("float32")
INPUTS, CLASSES, WIDTH, COUNT = 16, 8, 256, 1000


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


def classifier(
    layers: int = 2, *, noise: float = 0.0, name: str = "x", classes: int = CLASSES,
    width: int = WIDTH, batch: int = -1, output: str = "scores",
) -> Graph:  # fmt: skip
    """Return x -> scores: a linear classifier, and so many wide layers that hardly change it."""
    linear = 10 * weights(INPUTS, CLASSES)
    linear = (linear + noise * np.random.default_rng(1).normal(size=linear.shape))[:, :classes]
    nodes = [
        Node(name, "Placeholder").with_attrs(dtype=FLOAT, shape=(batch, INPUTS)),
        Node.constant("linear", linear.astype(np.float32)),
        Node.constant("into", weights(INPUTS, width)),
        Node.constant("out_of", 1e-6 * weights(width, classes)),
        _matmul("h0", name, "into"),
    ]
    for number in range(layers):
        nodes += [
            Node.constant(f"w{number}", weights(width, width, seed=number)),
            _matmul(f"m{number}", f"h{number}", f"w{number}"),
            Node(f"h{number + 1}", "Tanh", (f"m{number}",)).with_attrs(T=FLOAT),
        ]
    nodes += [
        _matmul("few", name, "linear"),
        _matmul("many", f"h{layers}", "out_of"),
        Node(output, "AddV2", ("few", "many")).with_attrs(T=FLOAT),
    ]
    return Graph(nodes, (name,), (output,))


def _matmul(name: str, *reads: str) -> Node:
    return Node(name, "MatMul", reads).with_attrs(T=FLOAT, transpose_a=False, transpose_b=False)


def samples(count: int = COUNT) -> dict[str, np.ndarray]:
    """Return samples, and labels that the classifier without noise gives to nine of ten."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(count, INPUTS)).astype(np.float32)
    labels = (x @ weights(INPUTS, CLASSES)).argmax(1)
    labels[::10] = (labels[::10] + 1) % CLASSES
    return {"x": x, "labels": labels}


def with_sum(output: str) -> Graph:
    """Return a classifier whose only output is the sum of its scores, without an axis."""
    graph = classifier(output="each")
    nodes = [
        *graph,
        Node.constant("axes", np.array([0, 1], np.int32)),
        Node(output, "Sum", ("each", "axes")).with_attrs(T=FLOAT, Tidx=DType("int32")),
    ]
    return Graph(nodes, ("x",), (output,))
