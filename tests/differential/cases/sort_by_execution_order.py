"""The order of the nodes: both orders are right, so here the graphs are compared as ever."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case
from tests.differential.graphs import const, fashion_keras, fashion_tf1, placeholder, two_layers
from tests.support import building, random, tf


def backwards(graph: Graph) -> Graph:
    """Return the graph with its nodes in the opposite order."""
    return Graph(reversed(list(graph)), graph.inputs, graph.outputs, graph.versions, graph.library)


def sum_of_two() -> Graph:
    with building(["x", "y"], ["out"]) as graph:
        tf.raw_ops.AddV2(x=placeholder(2, 3, name="x"), y=placeholder(2, 3, name="y"), name="out")
    return backwards(graph)


def line() -> Graph:
    with building(["x"], ["n19"]) as graph:
        y = placeholder(2, 3)
        for number in range(20):
            y = tf.raw_ops.Sin(x=y, name=f"n{number}")
    return backwards(graph)


def tree() -> Graph:
    with building(["x"], ["m2_0"]) as graph:
        leaves = [const(random(3, seed=i), f"leaf{i}") for i in range(7)] + [placeholder(3)]
        while len(leaves) > 1:
            level = len(leaves)
            pairs = zip(leaves[::2], leaves[1::2], strict=True)
            leaves = [
                tf.raw_ops.Mul(x=a, y=b, name=f"m{level}_{i}") for i, (a, b) in enumerate(pairs)
            ]
    return backwards(graph)


def common_ancestor() -> Graph:
    with building(["x"], ["out"]) as graph:
        raw = tf.raw_ops
        a = raw.Relu(features=placeholder(3), name="a")
        b = raw.Neg(x=a, name="b")
        with tf.control_dependencies([b]):
            c = raw.Exp(x=a, name="c")
        raw.Sub(x=c, y=b, name="out")
    return backwards(graph)


def while_loop() -> Graph:
    """Return a loop of TensorFlow 1, whose nodes form a cycle."""

    with building(["x"], ["out"]) as graph:
        tf.compat.v1.disable_control_flow_v2()
        try:
            i = tf.compat.v1.while_loop(
                lambda i, a: i < 3, lambda i, a: (i + 1, tf.nn.relu(a) - 0.5), [0, placeholder(4)]
            )
        finally:
            tf.compat.v1.enable_control_flow_v2()
        tf.identity(i[1], name="out")
    return backwards(graph)


NAME = "sort_by_execution_order"

CASES = [
    Case("sum", sum_of_two, NAME),
    Case("line", line, NAME),
    Case("tree", tree, NAME),
    Case("common ancestor", common_ancestor, NAME),
    Case("while loop", while_loop, NAME),
    Case("small net", two_layers, NAME, deviations=("pruned",)),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
    Case("frozen Fashion, Keras", fashion_keras, NAME),
]
