import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.shapes.rules import RULES
from deploykit.transforms.shapes.static_shapes import Shapes
from tests.support import build, building, random, run, tf


def sizes(tf, x, *more):
    """Return [batch, more ...], computed from the shape of `x` as Keras does."""
    return tf.stack([tf.shape(x)[0], *more])


# By name: what reads x [?, 8, 8, 4] and s [?, 6], with the ops whose rules it is about.
CASES = {
    "Relu": lambda tf, x, s: tf.nn.relu(x),
    "IdentityN": lambda tf, x, s: tf.identity_n([s, x])[0] + 1.0,
    "Bitcast": lambda tf, x, s: tf.bitcast(tf.bitcast(x, tf.int32), tf.float32),
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
    "Einsum": lambda tf, x, s: tf.raw_ops.Einsum(
        inputs=[x, tf.constant(random(4, 2, 5))], equation="abcd,def->abfe"
    ),
    "Einsum of one": lambda tf, x, s: tf.raw_ops.Einsum(inputs=[x], equation="abcd->dba"),
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
        images=s[:, :3, None, None], size=[7, 2]
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
    "Conv2D, uneven": lambda tf, x, s: tf.nn.conv2d(x, random(3, 2, 4, 5), [2, 3], "VALID"),
    "MaxPool, channels": lambda tf, x, s: tf.raw_ops.MaxPool(
        input=x, ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2], padding="VALID"
    ),
    "Mul, gate": lambda tf, x, s: x * tf.sigmoid(tf.reduce_mean(x, [1, 2], keepdims=True)),
    "Reshape, flat": lambda tf, x, s: tf.reshape(s, [tf.shape(s)[0], 6]),
    "Reshape, constant": lambda tf, x, s: tf.reshape(random(4, 6) + random(6), [3, -1]),
    "ConcatV2, batch": lambda tf, x, s: tf.concat([x, x], 0),
    "ConcatV2, parts": lambda tf, x, s: tf.concat([x, x[..., :2], x], -1),
    "ExpandDims": lambda tf, x, s: tf.expand_dims(tf.expand_dims(x, -1), 1),
    "Squeeze, all": lambda tf, x, s: tf.squeeze(tf.ones([1, 3, 1]) * random(3, 1)),
    "StridedSlice, backwards": lambda tf, x, s: x[:, ::-3, -2:, 1:100],
    "StridedSlice, open": lambda tf, x, s: x[:1, :, 2:],
    "Shape, cast": lambda tf, x, s: tf.fill(tf.cast(tf.shape(x, tf.int64)[1:], tf.int32), 0.0),
    "Dequantize": lambda tf, x, s: tf.raw_ops.Dequantize(
        input=tf.raw_ops.QuantizeV2(input=s, min_range=-1.0, max_range=1.0, T=tf.qint8).output,
        min_range=-1.0, max_range=1.0,
    ),
}  # fmt: skip


SHAPES = {  # of x
    "closed": (1, 8, 8, 4),
    "open batch": (None, 8, 8, 4),
    "open width": (None, 8, None, 4),
}


def cases(shape) -> tuple[Graph, dict]:
    """Return a graph of all cases, and the shape that TensorFlow infers for each node."""
    inferred = {}

    def make():
        x = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        s = tf.compat.v1.placeholder(tf.float32, [shape[0], 6], name="s")
        for number, case in enumerate(CASES.values()):
            tf.identity(case(tf, x, s), name=f"result_{number}")
        for op in tf.compat.v1.get_default_graph().get_operations():
            sizes = op.outputs[0].shape
            known = sizes.rank is not None
            inferred[op.name] = tuple(-1 if n is None else n for n in sizes) if known else None

    names = [f"result_{number}" for number in range(len(CASES))]
    return build(make, ["x", "s"], names), inferred


@pytest.fixture(scope="module")
def open_batch() -> Graph:
    return cases(SHAPES["open batch"])[0]


@pytest.mark.sampled
@pytest.mark.parametrize("kind", SHAPES)
def test_same_as_tensorflow_infers(kind):
    graph, inferred = cases(SHAPES[kind])
    shapes = Shapes(graph)
    differ = {
        str(node): (shapes.shape(node.name), inferred[node.name])
        for node in graph
        if shapes.shape(node.name) != inferred[node.name]
    }
    assert not differ


def test_same_as_tensorflow_computes(open_batch):
    names = [node.name for node in open_batch]
    feeds = {"x": random(1, 8, 8, 4), "s": random(1, 6)}
    values = run(Graph(open_batch, open_batch.inputs, names), feeds)
    shapes = Shapes(open_batch, batch=1)
    differ = {
        str(open_batch[name]): (shapes.full_shape(name), value.shape)
        for name, value in zip(names, values, strict=True)
        if shapes.full_shape(name) != value.shape
    }
    assert not differ


def test_every_kind_of_rule_is_tried(open_batch):
    tried = {rule for node in open_batch if (rule := RULES.get(node.op)) is not None}
    tried.add(RULES["Variable"])  # in test_shapes.py
    untried = {op for op, rule in RULES.items() if rule not in tried}
    assert not untried


def test_channels_first():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 8, 9], name="x")
        y = tf.raw_ops.Conv2D(input=x, filter=random(3, 3, 4, 5), strides=[1, 1, 2, 3],
                              padding="SAME", data_format="NCHW")  # fmt: skip
        y = tf.raw_ops.MaxPool(input=y, ksize=[1, 1, 2, 2], strides=[1, 1, 1, 1], padding="VALID",
                               data_format="NCHW")  # fmt: skip
        y = tf.raw_ops.SpaceToDepth(input=y[:, :, :2, :2], block_size=2, data_format="NCHW")
        tf.identity(y, name="out")
    shapes = Shapes(graph)
    assert shapes.shape("Conv2D") == (-1, 5, 4, 3)
    assert shapes.shape("MaxPool") == (-1, 5, 3, 2)
    assert shapes.shape("out") == (-1, 20, 1, 1)


def test_what_is_not_known():
    with building() as graph:
        x = tf.compat.v1.placeholder(tf.float32, name="x")
        y = tf.compat.v1.placeholder(tf.int32, [3], name="y")
        z = tf.compat.v1.placeholder(tf.int32, [None], name="z")
        tf.nn.relu(x, name="relu")
        tf.nn.conv2d(x, random(3, 3, 2, 5), 1, "SAME", name="channels")
        tf.reshape(x, y, name="reshape")
        tf.reshape(x, z, name="rank")
        tf.fill([tf.shape(x)[0], 2], 1.0, name="fill")
        tf.fill(tf.shape(tf.reshape(x, y)) * -1, 1.0, name="computed")
        tf.strided_slice(tf.fill([7], 1.0), y[:1], [5], name="slice")
        tf.raw_ops.TopKV2(input=tf.fill([4, 6], 1.0), k=2, name="top")
    shapes = Shapes(graph)
    assert [shapes.shape(name) for name in ("x", "relu", "rank", "top", "top:1")] == [None] * 5
    assert shapes.shape("channels") == (-1, -1, -1, 5)
    assert shapes.shape("reshape") == shapes.shape("computed") == (-1, -1, -1)
    assert shapes.shape("fill") == (-1, 2)
    assert shapes.shape("slice") == (-1,)
    assert shapes.full_shape("fill") is None
