"""What the tests of 8-bit layers share: layers with random constants, and the ranges of a graph."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import producer_name
from deploykit.transforms.ir.ops import output_types
from tests.support import random, run, tf

C = 6


def image(shape=(None, 9, 8, C), name="x"):
    """Return an input."""
    return tf.compat.v1.placeholder(tf.float32, shape, name=name)


def layer(kind, y, name, channels=C, bias=True, weights=None, **attrs):
    """Return a layer with a bias (BIAS = NAME/bias), as TensorFlow 1 writes it."""
    raw, read = tf.raw_ops, y.shape[-1]
    window = {"strides": [1] * 4, "padding": "SAME"} | attrs
    if kind == "matmul":
        y = raw.MatMul(a=y, b=random(read, channels) if weights is None else weights, name=name)
    elif kind == "conv":
        weights = random(3, 3, read, channels) if weights is None else weights
        y = raw.Conv2D(input=y, filter=weights, name=name, **window)
    else:
        weights = random(3, 3, read, channels // read) if weights is None else weights
        y = raw.DepthwiseConv2dNative(input=y, filter=weights, name=name, **window)
    if not bias:
        return y
    return tf.nn.bias_add(y, random(y.shape[-1], seed=3), name=f"{name}/biased")


def relu(y, name=None):
    """Return what a Relu lets pass."""
    return tf.nn.relu(y, name=name)


def feeds_of(graph: Graph, batch: int, low: float = 0.0) -> dict[str, np.ndarray]:
    """Return uniform values from `low` to 1 for each input; without a sign unless asked for."""
    return {
        name: random(batch, *graph[name].attr("shape")[1:], seed=batch, low=low)
        for name in graph.inputs
    }


def ranges_of(graph: Graph, feeds: Sequence[dict[str, np.ndarray]]) -> Ranges:
    """Return the ranges of every float tensor that depends on an input, one value a channel."""
    depends = graph.descendants(map(producer_name, graph.inputs), control=False)
    depends |= set(graph.inputs)
    names = [n for n in graph.order() if n in depends and (output_types(graph[n]) or [""])[0]
             == "float32"]  # fmt: skip
    runs = [run(Graph(graph, graph.inputs, names), feed) for feed in feeds]
    found = {}
    for name, *values in zip(names, *runs, strict=True):
        rows = [value.reshape(-1, value.shape[-1]) for value in values if value.ndim > 1]
        if rows:
            all_ = np.concatenate(rows)
            lists = [each.tolist() for each in (all_.mean(0), all_.min(0), all_.max(0))]
            found[name] = TensorRange(
                float(all_.min()), float(all_.max()), *(tuple(each) for each in lists)
            )
    return Ranges("", len(feeds), found)


def calibrated(graph: Graph, folder: Path, low: float = 0.0) -> str:
    """Write the ranges of a graph for the values that the tests feed, and return the file."""
    path = folder / "net.ranges.json"
    path.write_text(ranges_of(graph, [feeds_of(graph, batch, low) for batch in (1, 3)]).text())
    return str(path)
