"""Graphs that several cases use, built with TensorFlow's own ops, and values to feed them."""

import functools

import numpy as np

import deploykit
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import output_types
from deploykit.transforms.runtime.session import static_shapes
from deploykit.verification.synthetic.sample_inputs import made_up_feeds
from tests.deploykit.conftest import FASHION
from tests.support import build, building, built, random, tf


def placeholder(*shape, name="x", dtype="float32"):
    """Add a placeholder."""
    return tf.raw_ops.Placeholder(dtype=tf.as_dtype(dtype), shape=shape, name=name)


def const(value, name, dtype=None):
    """Add a Const under this very name."""
    return tf.constant(value, dtype=dtype, name=name)


def conv(x, weights, name="conv", strides=(1, 1, 1, 1), padding="VALID", **attrs):
    """Add a Conv2D whose weights are a Const named after it."""
    if isinstance(weights, np.ndarray):
        weights = const(weights, f"{name}/w")
    return tf.raw_ops.Conv2D(
        input=x, filter=weights, strides=strides, padding=padding, name=name, **attrs
    )


def depthwise(x, weights, name="conv", **attrs):
    """Add a DepthwiseConv2dNative whose weights are a Const named after it."""
    return tf.raw_ops.DepthwiseConv2dNative(
        input=x, filter=const(weights, f"{name}/w"), strides=[1, 1, 1, 1], padding="VALID",
        name=name, **attrs,
    )  # fmt: skip


def net(make, *shape, inputs=("x",), outputs=("out",)):
    """Return what builds a graph of what `make` does with TensorFlow's raw ops and a placeholder.

    Its shape is [2, 3] where none is given.
    """
    return lambda: build(lambda: make(tf.raw_ops, placeholder(*shape or (2, 3))), inputs, outputs)


def without_attrs(graph: Graph, name: str, *attrs: str) -> Graph:
    """Return the graph with attributes of a node left out, as old files leave out defaults."""
    graph.replace(graph[name], graph[name].with_attrs(**dict.fromkeys(attrs)))
    return graph


def marked() -> Graph:
    """Return a product and a LeakyRelu, each with an attribute that no op declares."""

    with building(["x"], ["out"]) as graph:
        weights = const(random(3, 3), "w")
        y = tf.raw_ops.MatMul(a=placeholder(2, 3), b=weights, transpose_b=True, name="product")
        tf.raw_ops.LeakyRelu(features=y, alpha=0.5, name="out")
    for name in ("product", "out"):
        graph.replace(graph[name], graph[name].with_attrs(_mark=name))
    return graph


@built(["x"], ["out"])
def colocated():
    """Return two nodes that are to run where a third one runs."""
    raw = tf.raw_ops
    first = raw.Relu(features=placeholder(2, 3), name="first")
    with tf.Graph.colocate_with(tf.compat.v1.get_default_graph(), first):
        second = raw.Neg(x=first, name="second")
        raw.Mul(x=second, y=first, name="out")


@built(["x"], ["out"])
def two_layers():
    """Return a small convolution net with everything that tidying up changes.

    An Identity behind each constant, a device, control inputs, a duplicate and an unused branch.
    """
    raw = tf.raw_ops
    x = placeholder(2, 8, 8, 3)
    with tf.device("/CPU:0"):
        w = raw.Identity(input=const(random(3, 3, 3, 16), "w"), name="w/read")
        y = conv(x, w, "conv")
    with tf.control_dependencies([y]):
        scale = raw.Identity(input=const(random(16, seed=1, low=0.5), "scale"), name="s")
    y = raw.Relu(features=raw.Mul(x=y, y=scale, name="mul"), name="relu")
    same = raw.Relu(features=raw.Mul(x=y, y=scale, name="a"), name="a/relu")
    twin = raw.Relu(features=raw.Mul(x=y, y=scale, name="b"), name="b/relu")
    y = raw.AddV2(x=same, y=twin, name="sum")
    checked = raw.CheckNumerics(tensor=y, message="no", name="checked")
    mean = raw.Mean(input=checked, axis=const([1, 2], "axes"), name="mean")
    dense = raw.MatMul(a=mean, b=const(random(16, 64, seed=2), "dense/w"), name="dense")
    raw.BiasAdd(value=dense, bias=const(random(64, seed=3), "dense/b"), name="out")
    raw.Softmax(logits=y, name="unused")


@functools.cache
def _fashion(name: str) -> Graph:
    return deploykit.freeze(FASHION / name)


def fashion_tf1() -> Graph:
    """Return the embedded TF1 checkpoint, frozen."""
    return _fashion("tf1/model.ckpt").copy()


def fashion_keras() -> Graph:
    """Return the embedded Keras model, frozen."""
    return _fashion("fashion.keras").copy()


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    """Return made-up values for the inputs, also for those that are inner nodes."""
    shapes = static_shapes(b"".join(graph.serialized()), list(graph.inputs))
    inputs = []
    for name in graph.inputs:
        (dtype,) = output_types(graph[name])
        inputs.append(Node(name, "Placeholder").with_attrs(dtype=dtype, shape=shapes[name]))
    found, reason = made_up_feeds(Graph(inputs, graph.inputs), (-1.0, 1.0))
    assert not reason
    return found[0]
