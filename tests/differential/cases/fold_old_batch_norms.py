"""Batch norm ops as files of TensorFlow 1 have them go into the layer before them."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.differential.case import Case
from tests.differential.graphs import const, conv, depthwise, fashion_tf1, placeholder
from tests.support import build, random, tf


def fused(y, name="bn", channels=None):
    """Add a FusedBatchNorm of version 1 in inference mode."""
    size = channels or y.shape[-1]
    gamma, beta, mean, variance = (
        const(random(size, seed=i, low=0.2), f"{name}/{n}")
        for i, n in enumerate(("gamma", "beta", "mean", "variance"))
    )
    return tf.raw_ops.FusedBatchNorm(
        x=y, scale=gamma, offset=beta, mean=mean, variance=variance, epsilon=1e-3,
        is_training=False, name=name,
    )[0]  # fmt: skip


def net(layer, *shape, inputs=("x",)):
    """Return a placeholder, layers with batch norms, and a Relu."""

    def make():
        tf.raw_ops.Relu(features=layer(placeholder(*shape)), name="out")

    return lambda: build(make, inputs, ["out"])


def global_norm(scaled):
    """Return a batch norm as GraphDefs up to version 8 have it."""

    def make() -> Graph:
        graph = net(lambda x: fused(conv(x, random(1, 2, 2, 2))), 1, 1, 6, 2)()
        values = {"mean": [10, 20], "variance": [0.25, 0.5], "beta": [0.1, 0.6], "gamma": [1, 2]}
        for name, value in values.items():
            old = graph[f"bn/{name}"]
            graph.replace(old, old.with_attrs(value=np.array(value, np.float32)))
        inputs = ("conv", *(f"bn/{name}" for name in values))
        node = Node("bn", "BatchNormWithGlobalNormalization", inputs).with_attrs(
            T=DType("float32"), variance_epsilon=1e-5, scale_after_normalization=scaled
        )
        graph.replace(graph["bn"], node)
        graph.versions.producer = 8
        return graph

    return make


def concatenated(axis):
    """Return a batch norm of two convolutions side by side (axis 3) or one behind the other."""

    def layer(x):
        a = conv(x, random(1, 2, 2, 2), "one")
        b = conv(placeholder(*x.shape, name="y"), random(1, 2, 2, 2, seed=1), "two")
        y = tf.raw_ops.ConcatV2(values=[a, b], axis=const(axis, "axis"), name="concat")
        return fused(y)

    return net(layer, 1, 1, 6, 2, inputs=("x", "y"))


def atrous(make_layer, weights):
    """Return a batch norm of a dilated convolution as TensorFlow 1 wrote it."""

    def layer(x):
        raw = tf.raw_ops
        block = const([2, 2], "block")
        y = raw.SpaceToBatchND(
            input=x, block_shape=block, paddings=const([[2, 3], [2, 3]], "pads"), name="split"
        )
        y = make_layer(y, weights)
        crops = const([[0, 1], [0, 1]], "crops")
        y = raw.BatchToSpaceND(input=y, block_shape=block, crops=crops, name="joined")
        return fused(y)

    return net(layer, 2, 7, 7, 2)


def not_constant(x):
    y = conv(x, random(2, 2, 2, 2))
    mean = tf.raw_ops.Mean(input=y, axis=const([0, 1, 2], "axes"), name="mean")
    return tf.raw_ops.FusedBatchNorm(
        x=y, scale=const(random(2), "gamma"), offset=mean, mean=const(random(2), "m"),
        variance=const(random(2, low=0.1), "v"), is_training=False, name="bn",
    )[0]  # fmt: skip


def no_layer(x):
    return fused(tf.raw_ops.Neg(x=x, name="minus"))


def fashion_of_old() -> Graph:
    """Return the embedded TF1 model with batch norms of version 1."""
    graph = fashion_tf1()
    for node in graph:
        if node.op == "FusedBatchNormV3":
            old = Node(node.name, "FusedBatchNorm", node.inputs, node.attrs)
            graph.replace(node, old.with_attrs(U=None))
    return graph


NAME = "fold_old_batch_norms"
ONE_FOLD = 6e-6  # the bar of one fold; the original computes in float32

CASES = [
    Case("convolution", net(lambda x: fused(conv(x, random(1, 2, 2, 2))), 1, 1, 6, 2), NAME,
         tolerance=ONE_FOLD),
    Case("convolution, global normalization", global_norm(True), NAME, tolerance=ONE_FOLD),
    Case("convolution, global normalization without gamma", global_norm(False), NAME,
         tolerance=ONE_FOLD),
    Case("convolution, stride 2, SAME",
         net(lambda x: fused(conv(x, random(3, 3, 3, 8), strides=[1, 2, 2, 1], padding="SAME")),
             2, 7, 7, 3), NAME, tolerance=ONE_FOLD),
    Case("depthwise", net(lambda x: fused(depthwise(x, random(2, 2, 4, 1))), 1, 4, 4, 4), NAME,
         tolerance=ONE_FOLD),
    Case("depthwise, multiplier 2",
         net(lambda x: fused(depthwise(x, random(2, 2, 4, 2))), 1, 4, 4, 4), NAME,
         tolerance=ONE_FOLD),
    Case("two layers",
         net(lambda x: fused(depthwise(fused(conv(x, random(2, 2, 2, 4), "one"), "one/bn"),
                                       random(2, 2, 4, 1), "two")), 1, 5, 5, 2), NAME,
         tolerance=2 * ONE_FOLD),
    Case("concatenated along the channels", concatenated(3), NAME, tolerance=ONE_FOLD),
    Case("concatenated along the columns", concatenated(2), NAME, tolerance=ONE_FOLD),
    Case("dilated convolution", atrous(conv, random(3, 3, 2, 4)), NAME, tolerance=ONE_FOLD),
    Case("dilated depthwise", atrous(depthwise, random(3, 3, 2, 2)), NAME, tolerance=ONE_FOLD),
    Case("a shift that is computed", net(not_constant, 1, 4, 4, 2), NAME),
    Case("no layer before it", net(no_layer, 1, 4, 4, 2), NAME),
    Case("frozen Fashion, TF1, before V3", fashion_of_old, f"fold_constants {NAME}",
         deviations=("names behind Identity",), tolerance=2e-5),
]  # fmt: skip
