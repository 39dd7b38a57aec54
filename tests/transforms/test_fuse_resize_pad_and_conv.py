"""Resizing and mirror padding go into the convolution; the check sees a mode that is not kept."""

import numpy as np
import pytest

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.support import (
    assert_golden,
    because,
    building,
    built,
    error,
    ops,
    random,
    run,
    tf,
    transform,
)
from tests.transforms.examples import Example

X = {"x": random(1, 6, 5, 3, seed=9)}
PADDINGS = ((0, 0), (2, 1), (0, 3), (0, 0))
BAR = 1e-6 * 6  # design: 1e-6 * (5 + depth), one layer


@built(["x"], ["out"])
def net(resize=None, pad=None, conv=None, batch=1):
    """Return a Conv2D behind a ResizeBilinear and a MirrorPad, where their arguments are given."""
    y = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[batch, 6, 5, 3], name="x")
    if resize is not None:
        options = {"images": y, "size": tf.constant([11, 8], name="size")} | resize
        y = tf.raw_ops.ResizeBilinear(**options, name="resize")
    if pad is not None:
        options = {"paddings": tf.constant(PADDINGS, name="paddings"), "mode": "REFLECT"} | pad
        y = tf.raw_ops.MirrorPad(input=y, **options, name="pad")
    weights = tf.constant(random(3, 2, 3, 4), name="weights")
    options = {"strides": [1, 1, 1, 1], "padding": "VALID"} | (conv or {})
    y = tf.raw_ops.Conv2D(input=y, filter=weights, **options, name="conv")
    tf.raw_ops.Relu(features=y, name="out")


CONVS = [{}, {"padding": "SAME"}, {"strides": [1, 2, 1, 1]}]


def check_fuses(text: str, graph: Graph, op: str) -> Graph:
    """Check that all in front of the layer went into it, and that the numbers stayed."""
    result = transform(graph, text)
    assert set(ops(result)) == {"Placeholder", "Const", op, "Relu"}
    assert result["conv"].op == op
    assert error(graph, result, X) <= BAR
    assert str(transform(result, text)) == str(result)
    return result


def check_left_alone(text: str, graph: Graph, reason: str) -> None:
    """Check that the graph stays as it is, for this reason."""
    from deploykit.transforms.ir import pipeline

    graph.prune()
    (done,) = pipeline.run(graph, pipeline.parse(text))
    assert str(done.graph) == str(graph)
    assert done.skipped == (f"node 'conv': {reason}",)


@pytest.mark.golden("fuse_resize_pad_and_conv/symmetric")
def test_golden():
    graph = net({}, {"mode": "SYMMETRIC"})
    assert_golden(graph, transform(graph, "fuse_resize_pad_and_conv"))


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_fuses(conv, mode, align_corners):
    graph = net({"align_corners": align_corners}, {"mode": mode}, conv)
    check_fuses("fuse_resize_pad_and_conv", graph, "FusedResizeAndPadConv2D")


def test_half_pixel_centers_is_left_alone():
    reason = because("half-pixel-centers", resize="resize")
    check_left_alone("fuse_resize_pad_and_conv", net({"half_pixel_centers": True}, {}), reason)


def test_images_of_bytes_are_left_alone():
    with building(["x"], ["conv"]) as graph:
        x = tf.raw_ops.Placeholder(dtype=tf.uint8, shape=X["x"].shape, name="x")
        y = tf.raw_ops.ResizeBilinear(images=x, size=tf.constant([11, 8]), name="resize")
        y = tf.raw_ops.MirrorPad(input=y, paddings=PADDINGS, mode="REFLECT", name="pad")
        weights = tf.constant(random(3, 2, 3, 4), name="weights")
        tf.raw_ops.Conv2D(input=y, filter=weights, strides=[1] * 4, padding="SAME", name="conv")
    check_left_alone(
        "fuse_resize_pad_and_conv", graph, because("resize-type", resize="resize", type="uint8")
    )


@pytest.mark.parametrize("name", ["resize", "pad"])
@pytest.mark.parametrize("role", ["input", "output", "waited for"])
def test_what_others_need_is_left_alone(name, role):
    graph = net({}, {})
    if role == "waited for":
        graph.replace(graph["out"], graph["out"].with_control_inputs(f"^{name}"))
    else:
        setattr(graph, f"{role}s", (*getattr(graph, f"{role}s"), name))
    reader = {"resize": "pad", "pad": "conv"}[name]
    reason = because("needed-elsewhere", node=name, reader=reader)
    check_left_alone("fuse_resize_pad_and_conv", graph, reason)


@pytest.mark.parametrize("batch", [None, 2])
def test_other_batches_are_left_alone(batch):
    reason = because("batch-not-one")
    check_left_alone("fuse_resize_pad_and_conv", net({}, {}, batch=batch), reason)


def test_tensorflow_computes_the_fused_op_wrong_from_the_second_image_on():
    """When this fails, TensorFlow was mended, and other batches can be fused."""
    graph = net({}, {}, batch=2)
    fused = transform(net({}, {}), "fuse_resize_pad_and_conv")
    fused.replace(fused["x"], graph["x"])
    images = random(2, 6, 5, 3, seed=9)
    expected, found = (run(g, {"x": images})[0] for g in (graph, fused))
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    assert np.abs(found[1] - expected[1]).max() > 0.1


def test_a_fed_layer_is_left_alone():
    graph = net({}, {})
    graph.inputs = ("x", "conv")
    check_left_alone("fuse_resize_pad_and_conv", graph, because("fed"))


def test_control_inputs_are_kept():
    graph = net({}, {})
    graph.add(Node("before", "Neg", ("x",)).with_attrs(T=graph["conv"].attr("T")))
    for name in ("resize", "pad"):
        graph.replace(graph[name], graph[name].with_control_inputs("^weights", "^before"))
    result = transform(graph, "fuse_resize_pad_and_conv")
    assert result["conv"].control_inputs == ("^before",)
    assert error(graph, result, X) <= BAR


GRAPHS = [Example("fuse_resize_pad_and_conv", lambda: net({}, {}), BAR)]
