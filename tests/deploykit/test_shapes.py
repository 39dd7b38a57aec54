"""Shapes without TensorFlow are those that TensorFlow computes; what does not follow is unknown."""

import numpy as np
import pytest

from deploykit.shapes import _RULES, Shapes
from tests.support import build, random, run, transform
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.tensors import DType


def sizes(tf, x, *more):
    """Return [batch, more ...], computed from the shape of `x` as Keras does."""
    return tf.stack([tf.shape(x)[0], *more])


# By name: what reads x [?, 8, 8, 4] and s [?, 6], with the ops whose rules it is about.
BUILT = {
    "Relu": lambda tf, x, s: tf.nn.relu(x),
    "IdentityN": lambda tf, x, s: tf.identity_n([s, x])[0] + 1.0,
    "BiasAdd": lambda tf, x, s: tf.nn.bias_add(x, random(4)),
    "FusedBatchNormV3": lambda tf, x, s: tf.raw_ops.FusedBatchNormV3(
        x=x, scale=random(4), offset=random(4), mean=random(4), variance=random(4, low=0.5),
        is_training=False,
    )[0],
    "ClipByValue": lambda tf, x, s: tf.raw_ops.ClipByValue(
        t=x, clip_value_min=0.0, clip_value_max=1.0
    ),
    "AddV2": lambda tf, x, s: x + random(8, 1),
    "AddN": lambda tf, x, s: tf.add_n([s, s]),
    "SquaredDifference": lambda tf, x, s: tf.math.squared_difference(random(5, 1, 1), s),
    "SelectV2": lambda tf, x, s: tf.where(s > 0, s, random(6)),
    "Select": lambda tf, x, s: tf.raw_ops.Select(condition=s > 0, x=s, y=s),
    "Conv2D": lambda tf, x, s: tf.nn.conv2d(x, random(3, 3, 4, 5), 2, "SAME"),
    "Conv2D, narrow": lambda tf, x, s: tf.nn.conv2d(x, random(3, 2, 4, 5), 1, "VALID"),
    "Conv2D, padded": lambda tf, x, s: tf.nn.conv2d(
        x, random(3, 3, 4, 5), 2, [[0, 0], [1, 2], [3, 4], [0, 0]]
    ),
    "Conv2D, dilated": lambda tf, x, s: tf.raw_ops.Conv2D(
        input=x, filter=random(3, 3, 4, 5), strides=[1, 1, 1, 1], padding="VALID",
        dilations=[1, 2, 3, 1],
    ),
    "Conv2D, groups": lambda tf, x, s: tf.nn.conv2d(x, random(3, 3, 2, 6), 1, "SAME"),
    "DepthwiseConv2dNative": lambda tf, x, s: tf.nn.depthwise_conv2d(
        x, random(3, 3, 4, 2), [1, 2, 2, 1], "SAME"
    ),
    "Conv3D": lambda tf, x, s: tf.nn.conv3d(
        tf.expand_dims(x, -1), random(2, 3, 3, 1, 2), [1, 2, 1, 1, 1], "VALID"
    ),
    "Conv2DBackpropInput": lambda tf, x, s: tf.nn.conv2d_transpose(
        x, random(3, 3, 7, 4), sizes(tf, x, 16, 16, 7), 2
    ),
    "MaxPool": lambda tf, x, s: tf.nn.max_pool2d(x, 3, 2, "VALID"),
    "AvgPool": lambda tf, x, s: tf.nn.avg_pool2d(x, [3, 2], [1, 3], "SAME"),
    "MaxPool3D": lambda tf, x, s: tf.nn.max_pool3d(tf.expand_dims(x, -1), 2, 2, "VALID"),
    "MatMul": lambda tf, x, s: tf.matmul(s, random(3, 6), transpose_b=True),
    "MatMul, transposed": lambda tf, x, s: tf.raw_ops.MatMul(
        a=s, b=random(1, 5), transpose_a=True
    ),
    "BatchMatMulV2": lambda tf, x, s: tf.matmul(x, random(2, 1, 1, 5, 4), transpose_b=True),
    "BatchMatMulV3": lambda tf, x, s: tf.raw_ops.BatchMatMulV3(
        x=x, y=random(1, 8, 8, 3), Tout=tf.float32, adj_x=True
    ),
    "Mean": lambda tf, x, s: tf.reduce_mean(x, [1, 2]),
    "Sum": lambda tf, x, s: tf.reduce_sum(x, -1, keepdims=True),
    "Reshape": lambda tf, x, s: tf.reshape(x, [-1, 32]),
    "Reshape, computed": lambda tf, x, s: tf.reshape(x, sizes(tf, x, 2, -1)),
    "Pad": lambda tf, x, s: tf.pad(x, [[0, 0], [1, 2], [3, 4], [0, 0]]),
    "MirrorPad": lambda tf, x, s: tf.pad(s, [[0, 0], [2, 1]], "REFLECT"),
    "PadV2": lambda tf, x, s: tf.pad(s, [[0, 0], [2, 1]], constant_values=3.0),
    "ResizeBilinear": lambda tf, x, s: tf.raw_ops.ResizeBilinear(images=x, size=[5, 17]),
    "ResizeNearestNeighbor": lambda tf, x, s: tf.raw_ops.ResizeNearestNeighbor(
        images=x, size=tf.cast(tf.cast(tf.shape(x)[1:3], tf.float32) * 1.5, tf.int32)
    ),
    "SpaceToBatchND": lambda tf, x, s: tf.space_to_batch(x, [2, 3], [[1, 1], [0, 1]]),
    "BatchToSpaceND": lambda tf, x, s: tf.batch_to_space(
        tf.space_to_batch(x, [2, 3], [[1, 1], [0, 1]]), [2, 3], [[1, 1], [0, 1]]
    ),
    "DepthToSpace": lambda tf, x, s: tf.nn.depth_to_space(x, 2),
    "SpaceToDepth": lambda tf, x, s: tf.nn.space_to_depth(x, 4),
    "Split": lambda tf, x, s: tf.split(x, 2, 3)[1] + 1.0,
    "Unpack": lambda tf, x, s: tf.unstack(x, axis=-1)[3] + 1.0,
    "Gather": lambda tf, x, s: tf.raw_ops.Gather(params=x, indices=[[0, 0, 0]]),
    "GatherV2": lambda tf, x, s: tf.gather(x, [[1], [2]], axis=2),
    "Shape": lambda tf, x, s: tf.shape(x),
    "Size": lambda tf, x, s: tf.size(x),
    "Pack": lambda tf, x, s: tf.stack([s, s], 1),
    "Squeeze": lambda tf, x, s: tf.squeeze(tf.expand_dims(s, 1), 1),
    "ConcatV2": lambda tf, x, s: tf.concat([x, x * 2.0, random(1, 8, 8, 1)], -1),
    "Concat": lambda tf, x, s: tf.raw_ops.Concat(concat_dim=1, values=[s, s]),
    "BroadcastTo": lambda tf, x, s: tf.broadcast_to(s, [3, 1, 6]),
    "Fill": lambda tf, x, s: tf.fill(sizes(tf, x, 3), 1.0),
    "Tile": lambda tf, x, s: tf.tile(x, [1, 2, 1, 3]),
    "Transpose": lambda tf, x, s: tf.transpose(x, [0, 3, 1, 2]),
    "Slice": lambda tf, x, s: tf.slice(x, [0, 1, 2, 0], [-1, 3, -1, 2]),
    "StridedSlice": lambda tf, x, s: x[:, 1:7:2, tf.newaxis, ..., 2],
    "Range": lambda tf, x, s: tf.range(0, tf.shape(x)[1], 3),
    "Dequantize": lambda tf, x, s: tf.raw_ops.Dequantize(
        input=tf.raw_ops.QuantizeV2(input=s, min_range=-1.0, max_range=1.0, T=tf.qint8).output,
        min_range=-1.0, max_range=1.0,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def graph() -> Graph:
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 4], name="x")
        s = tf.compat.v1.placeholder(tf.float32, [None, 6], name="s")
        for number, make in enumerate(BUILT.values()):
            tf.identity(make(tf, x, s), name=f"result_{number}")

    return build(body, ["x", "s"], [f"result_{number}" for number in range(len(BUILT))])


def test_every_shape_is_what_tensorflow_computes(graph):
    feeds = {"x": random(1, 8, 8, 4), "s": random(1, 6)}
    names = [node.name for node in graph]
    whole = Graph(graph, graph.inputs, names)
    computed = dict(zip(names, run(whole, feeds), strict=True))
    shapes = Shapes(graph)
    wrong = {
        str(graph[name]): (shapes.of(name), value.shape)
        for name, value in computed.items()
        if shapes.of(name) != value.shape
    }
    assert not wrong


def test_other_ports_are_known_only_where_they_are_alike(graph):
    shapes = Shapes(graph)
    (split,) = (node.name for node in graph if node.op == "Split")
    assert shapes.of(f"{split}:1") == shapes.of(split) == (1, 8, 8, 2)
    (norm,) = (node.name for node in graph if node.op == "FusedBatchNormV3")
    assert shapes.of(norm) == (1, 8, 8, 4)
    assert shapes.of(f"{norm}:1") is None


def test_every_kind_of_rule_is_tried(graph):
    tried = {rule for node in graph if (rule := _RULES.get(node.op)) is not None}
    untried = {op for op, rule in _RULES.items() if rule not in tried}
    assert not untried


def test_channels_first():
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 8, 9], name="x")
        y = tf.raw_ops.Conv2D(input=x, filter=random(3, 3, 4, 5), strides=[1, 1, 2, 3],
                              padding="SAME", data_format="NCHW")  # fmt: skip
        tf.raw_ops.MaxPool(input=y, ksize=[1, 1, 2, 2], strides=[1, 1, 1, 1], padding="VALID",
                           data_format="NCHW", name="out")  # fmt: skip

    shapes = Shapes(build(body, ["x"], ["out"]))
    assert shapes.of("Conv2D") == (1, 5, 4, 3)
    assert shapes.of("out") == (1, 5, 3, 2)


def placeholder(name: str, shape: tuple[int, ...] | None) -> Node:
    node = Node(name, "Placeholder").with_attrs(dtype=DType("float32"))
    return node if shape is None else node.with_attrs(shape=shape)


def test_what_an_input_leaves_open_is_unknown():
    for shape in ((-1, -1, 3), None):
        nodes = [placeholder("x", shape), Node("y", "Relu", ("x",)), Node("n", "Shape", ("y",))]
        shapes = Shapes(Graph(nodes))
        assert [shapes.of(name) for name in "xyn"] == [None, None, None]


def test_what_no_rule_covers_is_unknown():
    nodes = [placeholder("x", (2, 3)), Node("y", "Where", ("x",)), Node("z", "Relu", ("y",)),
             Node("a", "Add", ("x", "z")), Node("b", "Relu", ("x",))]  # fmt: skip
    shapes = Shapes(Graph(nodes))
    assert [shapes.of(name) for name in "yzab"] == [None, None, None, (2, 3)]


def test_sizes_that_are_fed_are_not_known():
    """A constant that is fed may have any value."""
    nodes = [placeholder("x", (2, 3)), Node.constant("size", np.array([3, 2], np.int32)),
             Node("y", "Reshape", ("x", "size"))]  # fmt: skip
    assert Shapes(Graph(nodes, ["x"])).of("y") == (3, 2)
    assert Shapes(Graph(nodes, ["x", "size"])).of("y") is None


def test_what_tensorflow_would_refuse_is_unknown():
    nodes = [placeholder("x", (2, 3)), placeholder("w", (3, 3, 5, 7)), Node("a", "Add", ("x", "w")),
             Node("c", "Conv2D", ("x", "w")), Node("m", "Mean", ("x", "x"))]  # fmt: skip
    shapes = Shapes(Graph(nodes))
    assert [shapes.of(name) for name in "acm"] == [None, None, None]


def test_a_loop_ends():
    def body():
        import tensorflow as tf

        tf.compat.v1.disable_control_flow_v2()
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))

    shapes = Shapes(build(body, ["x"]))
    assert shapes.of("x") == (1, 3)


def test_a_rewritten_graph_has_the_same_shapes(small_bytes):
    from transforms.core.protos import GraphDef

    before = Graph.from_graph_def(GraphDef.FromString(small_bytes), ["x"], ["out"])
    after = transform(before, "fold_batch_norms quantize_weights(minimum_size=2)")
    shapes = Shapes(before), Shapes(after)
    for name in ("conv", "Relu", "MatMul", "out"):
        assert shapes[0].of(name) == shapes[1].of(name) is not None
