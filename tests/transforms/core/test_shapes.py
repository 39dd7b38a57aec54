import numpy as np
import pytest

from tests.support import build, random
from transforms.core.graph import Graph
from transforms.core.node import Node
from transforms.core.shapes import Shapes, broadcast
from transforms.core.tensors import DType


def image(*shape):
    import tensorflow as tf

    return tf.compat.v1.placeholder(tf.float32, shape or (None, 9, 8, 6), name="x")


def nchw(tf, op, *arguments, **attrs):
    return getattr(tf.nn, op)(*arguments, data_format="NCHW", **attrs)


CASES = {
    "conv": lambda tf, x: tf.nn.conv2d(x, random(3, 2, 6, 5), 2, "SAME"),
    "conv_valid": lambda tf, x: tf.nn.conv2d(x, random(3, 2, 6, 5), [2, 3], "VALID"),
    "conv_dilated": lambda tf, x: tf.nn.conv2d(x, random(3, 2, 6, 5), 1, "VALID", dilations=[2, 3]),
    "conv_explicit": lambda tf, x: tf.nn.conv2d(
        x, random(3, 2, 6, 5), 2, [[0, 0], [1, 3], [2, 0], [0, 0]]
    ),
    "conv_nchw": lambda tf, x: nchw(tf, "conv2d", x, random(3, 2, 9, 5), strides=2, padding="SAME"),
    "depthwise": lambda tf, x: tf.nn.depthwise_conv2d(x, random(3, 3, 6, 2), [1, 2, 2, 1], "VALID"),
    "max_pool": lambda tf, x: tf.nn.max_pool2d(x, 3, 2, "SAME"),
    "avg_pool": lambda tf, x: tf.nn.avg_pool2d(x, [2, 3], [1, 2], "VALID"),
    "pool_nchw": lambda tf, x: nchw(tf, "max_pool2d", x, 2, 2, "SAME"),
    "bias": lambda tf, x: tf.nn.relu(tf.nn.bias_add(x, random(6))),
    "broadcast": lambda tf, x: tf.reshape(x, [-1, 1, 6]) * random(4, 1),
    "gate": lambda tf, x: x * tf.sigmoid(tf.reduce_mean(x, [1, 2], keepdims=True)),
    "mean": lambda tf, x: tf.reduce_mean(x, [1, -2]),
    "matmul": lambda tf, x: tf.matmul(tf.reshape(x, [-1, 12]), random(7, 12), transpose_b=True),
    "reshape": lambda tf, x: tf.reshape(tf.ones([4, 6]) * random(4, 6), [3, -1]),
    "flatten": lambda tf, x: tf.reshape(x, [tf.shape(x)[0], 432]),
    "pad": lambda tf, x: tf.pad(x, [[0, 0], [1, 2], [3, 4], [0, 0]]),
    "mirror_pad": lambda tf, x: tf.pad(x, [[0, 0], [1, 2], [3, 4], [0, 0]], "REFLECT"),
    "concat": lambda tf, x: tf.concat([x, x[..., :2], x], -1),
    "concat_batch": lambda tf, x: tf.concat([x, x], 0),
    "concat_old": lambda tf, x: tf.raw_ops.Concat(concat_dim=1, values=[x, x]),
    "squeeze": lambda tf, x: tf.squeeze(tf.reduce_mean(x, [1, 2], keepdims=True), [1, -2]),
    "expand": lambda tf, x: tf.expand_dims(tf.expand_dims(x, -1), 1),
    "transpose": lambda tf, x: tf.transpose(x, [0, 3, 1, 2]),
    "resize": lambda tf, x: tf.raw_ops.ResizeBilinear(images=x, size=[4, 5]),
    "split": lambda tf, x: tf.split(x, 3, -1)[1],
    "norm": lambda tf, x: tf.raw_ops.FusedBatchNormV3(
        x=x, scale=random(6), offset=random(6), mean=random(6), variance=random(6), epsilon=0.1,
        is_training=False,
    )[0],
    "dequantize": lambda tf, x: tf.raw_ops.Dequantize(
        input=tf.raw_ops.QuantizeV2(input=x, min_range=0.0, max_range=1.0, T=tf.quint8)[0],
        min_range=0.0, max_range=1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(None, 9, 8, 6), (2, 9, 8, 6), (None, 9, None, 6)])
@pytest.mark.parametrize("case", CASES)
def test_same_as_tensorflow(case, shape):
    import tensorflow as tf

    inferred = []

    def make():
        inferred.append(CASES[case](tf, image(*shape)))

    graph = build(make, ["x"])
    expected = tuple(-1 if size is None else size for size in inferred[0].shape)
    found = Shapes(graph).shape(inferred[0].name)
    if case == "concat" and found is not None:  # a slice has no rule
        found = tuple(b if a == -1 else a for a, b in zip(found, expected, strict=True))
    assert found == expected


def test_what_is_not_known():
    import tensorflow as tf

    def make():
        x = tf.compat.v1.placeholder(tf.float32, name="x")
        y = tf.compat.v1.placeholder(tf.int32, [3], name="y")
        tf.nn.relu(x, name="rank")
        tf.nn.conv2d(x, random(3, 3, 2, 5), 1, "SAME", name="channels")
        tf.reshape(x, y, name="reshape")
        tf.nn.top_k(image(4, 6), 2, name="top")

    shapes = Shapes(build(make))
    assert shapes.shape("rank") is None
    assert shapes.shape("channels") == (-1, -1, -1, 5)
    assert shapes.shape("reshape") == (-1, -1, -1)
    assert shapes.shape("top:1") is None


def test_attributes_that_do_not_fit():
    def make():
        import tensorflow as tf

        tf.nn.max_pool2d(image(), 2, 2, "SAME", name="pool")

    graph = build(make)
    graph.replace(graph["pool"], graph["pool"].with_attrs(strides=[2]))
    assert Shapes(graph).shape("pool") is None


def test_scalars_of_the_oldest_graphs_are_any_shape():
    placeholder = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=())
    assert Shapes(Graph([placeholder])).shape("x") is None
    graph = Graph([placeholder])
    graph.versions.producer = 27
    assert Shapes(graph).shape("x") == ()


@pytest.mark.parametrize(
    ("shapes", "result"),
    [
        (((2, 3), (3,)), (2, 3)),
        (((2, 1), (1, 3)), (2, 3)),
        (((-1, 3), (1, 3)), (-1, 3)),
        (((-1, 3), (4, 3)), (4, 3)),
        (((), (4, 3)), (4, 3)),
        (((1,), (1, 1)), (1, 1)),
        ((None, (4, 3)), None),
    ],
)
def test_broadcast(shapes, result):
    assert broadcast(shapes) == result
    if result is not None and -1 not in [size for shape in shapes for size in shape]:
        assert result == np.broadcast_shapes(*shapes)
