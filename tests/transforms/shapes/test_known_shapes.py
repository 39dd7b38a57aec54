import numpy as np

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.shapes.static_shapes import Shapes
from tests.support import building, random, tf


def test_sizes_that_are_computed_in_floats_are_known():
    """TensorFlow does not infer these."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 6, 4], name="x")
        size = tf.cast(tf.cast(tf.shape(x)[1:3], tf.float32) * 1.5, tf.int32)
        tf.raw_ops.ResizeBilinear(images=x, size=size, name="out")
    assert Shapes(graph).shape("out") == (-1, 12, 9, 4)


def test_other_ports_are_known_only_where_they_are_alike():
    with building() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [1, 8, 8, 4], name="x")
        tf.split(x, 2, 3, name="split")
        tf.raw_ops.FusedBatchNormV3(x=x, scale=random(4), offset=random(4), mean=random(4),
                                    variance=random(4), is_training=False, name="norm")  # fmt: skip
    shapes = Shapes(graph)
    assert shapes.full_shape("split:1") == shapes.full_shape("split") == (1, 8, 8, 2)
    assert shapes.full_shape("norm") == (1, 8, 8, 4)
    assert shapes.full_shape("norm:1") is None


def placeholder(name: str, shape: tuple[int, ...] | None) -> Node:
    node = Node(name, "Placeholder").with_attrs(dtype=DType("float32"))
    return node if shape is None else node.with_attrs(shape=shape)


def test_what_no_rule_covers_is_unknown():
    nodes = [placeholder("x", (2, 3)), Node("y", "Where", ("x",)), Node("z", "Relu", ("y",)),
             Node("a", "Add", ("x", "z")), Node("b", "Relu", ("x",))]  # fmt: skip
    shapes = Shapes(Graph(nodes))
    assert [shapes.shape(name) for name in "yzab"] == [None, None, None, (2, 3)]


def test_sizes_that_are_fed_are_not_known():
    """A constant that is fed may have any value."""
    nodes = [placeholder("x", (2, 3)), Node.constant("size", np.array([3, 2], np.int32)),
             Node("y", "Reshape", ("x", "size"))]  # fmt: skip
    assert Shapes(Graph(nodes, ["x"])).shape("y") == (3, 2)
    assert Shapes(Graph(nodes, ["x", "size"])).shape("y") == (-1, -1)


def test_what_tensorflow_would_refuse_is_unknown():
    nodes = [placeholder("x", (2, 3)), placeholder("w", (3, 3, 5, 7)), Node("a", "Add", ("x", "w")),
             Node("c", "Conv2D", ("x", "w")), Node("m", "Mean", ("x", "x"))]  # fmt: skip
    shapes = Shapes(Graph(nodes))
    assert [shapes.shape(name) for name in "acm"] == [None, None, None]


def test_a_loop_ends():
    with building(["x"]) as graph:
        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))
    assert Shapes(graph).shape("x") == (-1, 3)


def test_variables():
    def variable(op: str, *shape: int) -> Node:
        return Node(f"{op}{len(shape)}", op).with_attrs(dtype=DType("float32"), shape=shape)

    nodes = [variable("VariableV2", 2, -1), variable("Variable", 2), variable("Variable"),
             variable("VarHandleOp", 3, 4), Node("read", "ReadVariableOp", ("VarHandleOp2",)),
             Node("out", "Relu", ("read",))]  # fmt: skip
    shapes = Shapes(Graph(nodes))
    assert [shapes.shape(node.name) for node in nodes] == [
        (2, -1), (2,), None, (), (3, 4), (3, 4)
    ]  # fmt: skip


def test_attributes_that_do_not_fit():
    pool = Node("pool", "MaxPool", ("x",)).with_attrs(
        ksize=[1, 2, 2, 1], strides=[2], padding="SAME"
    )
    assert Shapes(Graph([placeholder("x", (1, 8, 8, 4)), pool])).shape("pool") is None


def test_scalars_of_the_oldest_graphs_are_any_shape():
    placeholder = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=())
    assert Shapes(Graph([placeholder])).shape("x") is None
    graph = Graph([placeholder])
    graph.versions.producer = 27
    assert Shapes(graph).shape("x") == ()
