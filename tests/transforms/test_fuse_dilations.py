"""SpaceToBatchND, a convolution and BatchToSpaceND become one; the check sees other dilations."""

import numpy as np
import pytest

from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.support import because, building, built, error, ops, random, tf, transform
from tests.transforms.examples import Example

BAR = 1e-6 * 6  # design: 1e-6 * (5 + depth), one layer
SIZES = {"conv2d": (2, 9, 7, 3), "depthwise": (2, 9, 7, 3), "conv3d": (2, 6, 6, 6, 3)}


@built(["x"], ["out"])
def net(kind="conv2d", block=(2, 2), paddings=((2, 3), (2, 3)), crops=((0, 1), (0, 1)), **attrs):
    """Return a convolution between SpaceToBatchND and BatchToSpaceND; as here, that is SAME."""
    shape = SIZES[kind] if attrs.get("data_format") != "NCHW" else (2, 3, 9, 7)
    y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=shape, name="x")
    block_shape = tf.constant(block, name="block")
    y = tf.raw_ops.SpaceToBatchND(
        input=y, block_shape=block_shape, paddings=tf.constant(paddings, name="p"), name="split"
    )
    rank = len(SIZES[kind])
    multiplier = {"conv2d": 4, "depthwise": 2, "conv3d": 4}[kind]
    kernel = (3, 3, 3)[: rank - 2]
    weights = tf.constant(random(*kernel, 3, multiplier), name="weights")
    options = {"strides": [1] * rank, "padding": "VALID", "name": "layer"} | attrs
    op = {
        "conv2d": tf.raw_ops.Conv2D,
        "depthwise": tf.raw_ops.DepthwiseConv2dNative,
        "conv3d": tf.raw_ops.Conv3D,
    }[kind]
    y = op(input=y, filter=weights, **options)
    y = tf.raw_ops.BatchToSpaceND(
        input=y, block_shape=block_shape, crops=tf.constant(crops, name="c"), name="merge"
    )
    tf.raw_ops.Relu(features=y, name="out")


def feeds(graph: Graph) -> dict[str, np.ndarray]:
    return {"x": random(*graph["x"].attr("shape"), seed=9)}


def conv1d(padding="SAME") -> Graph:
    """Return a dilated Conv1D as TensorFlow writes it."""

    with building(["x"], ["out"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=(2, 12, 3), name="x")
        y = tf.nn.convolution(x, random(3, 3, 4), padding=padding, dilations=[2], name="layer")
        tf.raw_ops.Relu(features=y, name="out")
    return transform(graph, "fold_constants")


# What stands around the layer -> what its padding becomes.
PADDINGS = [
    ({}, "SAME"),
    ({"paddings": ((0, 1), (0, 1))}, "VALID"),
    ({"paddings": ((4, 1), (1, 2)), "crops": ((0, 0), (0, 1))}, "EXPLICIT"),
    ({"padding": "SAME", "paddings": ((0, 1), (0, 1))}, "SAME"),
    (
        {"block": (3, 1), "paddings": ((3, 3), (1, 1)), "crops": ((0, 0), (0, 0))},
        "SAME",
    ),
    (
        {
            "padding": "EXPLICIT",
            "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0],
            "paddings": ((0, 1), (1, 0)),
            "crops": ((1, 0), (0, 1)),
        },
        "EXPLICIT",
    ),
    ({"dilations": [1, 2, 1, 1], "paddings": ((2, 5), (2, 3))}, "EXPLICIT"),
    ({"block": (2,), "paddings": ((2, 3),), "crops": ((0, 1),)}, "EXPLICIT"),
]


@pytest.mark.parametrize(("around", "padding"), PADDINGS)
def test_fuses(around, padding):
    graph = net(**around)
    result = transform(graph, "fuse_dilations")
    assert ops(result) == {"Placeholder": 1, "Const": 1, "Conv2D": 1, "Relu": 1}
    assert result["merge"].attr("padding") == padding
    assert error(graph, result, feeds(graph)) <= BAR
    assert str(transform(result, "fuse_dilations")) == str(result)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_conv1d(padding):
    graph = conv1d(padding)
    result = transform(graph, "fuse_dilations")
    assert set(ops(graph)) - set(ops(result)) == {"SpaceToBatchND", "BatchToSpaceND"}
    assert error(graph, result, feeds(graph)) <= BAR
    assert str(transform(result, "fuse_dilations")) == str(result)


def test_channels_first_keeps_its_axes():
    """A processor runs it under oneDNN alone, so only the attributes are compared."""
    graph = net(
        block=(1, 2, 2),
        paddings=((0, 0), (2, 3), (2, 3)),
        crops=((0, 0), (0, 1), (0, 1)),
        data_format="NCHW",
    )
    layer = transform(graph, "fuse_dilations")["merge"]
    assert layer.attr("dilations") == [1, 1, 2, 2]
    assert (layer.attr("padding"), layer.attr("data_format")) == ("SAME", "NCHW")


LEFT_ALONE = {
    "depthwise": (
        {"kind": "depthwise"},
        because("kernel-dilations-onednn", op="DepthwiseConv2dNative"),
    ),
    "conv3d": (
        {
            "kind": "conv3d",
            "block": (2, 2, 2),
            "paddings": ((2, 2),) * 3,
            "crops": ((0, 0),) * 3,
        },
        because("kernel-dilations-onednn", op="Conv3D"),
    ),
    "strides": (
        {"strides": [1, 2, 2, 1], "crops": ((0, 0), (0, 0))},
        because("layer-has-strides"),
    ),
    "cropped": (
        {"paddings": ((0, 1), (0, 1)), "crops": ((1, 0), (0, 0))},
        because("crops-exceed-padding"),
    ),
}


def left_alone(graph: Graph, text: str = "fuse_dilations") -> list[str]:
    """Return why the graph stays as it is, which it must."""
    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse(text))
    assert str(done.graph) == str(graph)
    return [reason.split(": ", 1)[1] for reason in done.skipped]


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_left_alone(case):
    arguments, reason = LEFT_ALONE[case]
    assert left_alone(net(**arguments)) == [reason]


def test_blocks_that_differ_are_left_alone():
    graph = net(crops=((0, 0), (0, 0)))
    graph.add(graph["block"].with_name("other").with_attrs(value=np.array([2, 1], np.int32)))
    inputs = list(graph["merge"].inputs)
    graph.replace(graph["merge"], graph["merge"].with_data_inputs(inputs[0], "other", inputs[2]))
    assert left_alone(graph) == [because("blocks-differ")]


@pytest.mark.parametrize("name", ["split", "layer"])
@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_what_is_fed_or_fetched_is_left_alone(name, role):
    graph = net()
    setattr(graph, role, (*getattr(graph, role), name))
    reader = {"split": "layer", "layer": "merge"}[name]
    assert left_alone(graph) == [because("needed-elsewhere", node=name, reader=reader)]


@pytest.mark.parametrize("name", ["weights", "block", "p", "c"])
def test_what_is_fed_instead_of_constant_is_left_alone(name):
    graph = net()
    graph.inputs = ("x", name)
    left_alone(graph)


GRAPHS = [
    Example("fuse_dilations", net, BAR, golden="same"),
    Example("fuse_dilations", conv1d, BAR, golden="conv1d"),
]
