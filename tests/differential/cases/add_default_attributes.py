"""Defaults as the op registry has them."""

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import (
    const,
    conv,
    fashion_keras,
    fashion_tf1,
    placeholder,
    without_attrs,
)
from tests.support import building, random, tf


def two_lrns() -> Graph:
    with building(["x"], ["all_set"]) as graph:
        x = placeholder(1, 2, 2, 6)
        bare = tf.raw_ops.LRN(input=x, name="bare")
        tf.raw_ops.LRN(input=bare, depth_radius=7, bias=2.0, alpha=3.0, beta=1.0, name="all_set")
    return without_attrs(graph, "bare", "depth_radius", "bias", "alpha", "beta")


def old_layers() -> Graph:
    with building(["x"], ["out"]) as graph:
        x = placeholder(2, 5, 5, 3)
        y = conv(x, random(3, 3, 3, 4))
        y = tf.raw_ops.MaxPool(
            input=y, ksize=[1, 3, 3, 1], strides=[1] * 4, padding="VALID", name="pool"
        )
        y = tf.raw_ops.Squeeze(input=y, axis=[1, 2], name="squeeze")
        tf.raw_ops.MatMul(a=y, b=const(random(4, 3), "w"), name="out")
    without_attrs(graph, "conv", "dilations", "data_format", "use_cudnn_on_gpu")
    without_attrs(graph, "conv", "explicit_paddings")
    without_attrs(graph, "pool", "data_format")
    without_attrs(graph, "x", "shape")
    graph.replace(graph["x"], graph["x"].with_attrs(shape=(2, 5, 5, 3)))
    return without_attrs(graph, "out", "transpose_a", "transpose_b")


def call_of_a_function() -> Graph:
    with building(["x"], ["out"]) as graph:
        x = placeholder(2, 3)
        tf.identity(tf.function(lambda a: tf.nn.relu(a) * 2.0)(x), name="out")
    (call,) = (node.name for node in graph if node.op == "PartitionedCall")
    return without_attrs(graph, call, "config", "config_proto", "executor_type")


def unknown_op() -> Graph:
    with building(["x"], ["out"]) as graph:
        tf.raw_ops.Relu(features=placeholder(2, 3), name="out")
    graph.replace(graph["out"], Node("out", "NoSuchOp", ("x",)))
    return graph


NAME = "add_default_attributes"

CASES = [
    Case("of two LRN nodes one is bare", two_lrns, NAME),
    Case("layers of an old file", old_layers, NAME),
    Case("call of a function", call_of_a_function, NAME),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
    Refusal("unknown op", unknown_op, NAME, "Op type not registered 'NoSuchOp'",
            error_of("unknown-op-of-node", op="NoSuchOp")),
]  # fmt: skip
