"""ResizeBilinear, MirrorPad and Conv2D become one op, all three or two of them."""

import functools

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case
from tests.differential.graphs import const, conv, placeholder, without_attrs
from tests.support import built, random, tf

NAME = "fuse_resize_pad_and_conv"
CONVOLUTIONS = "fuse_convolutions"  # the README's name for the three; the original knows it not
ALL = f"{NAME} fuse_resize_and_conv fuse_pad_and_conv"
ONE_FUSION = 6e-6  # the same products, added in another order
PADDINGS = ((0, 0), (1, 1), (2, 2), (0, 0))


@built(["x"], ["out"])
def before_conv(resize=None, pad=None, batch=1, weights=(1, 2, 2, 2), **attrs):
    """Return a convolution behind a ResizeBilinear and a MirrorPad, where these have arguments."""
    y = placeholder(batch, 2, 3, weights[2])
    if resize is not None:
        size = const([12, 4], "size")
        y = tf.raw_ops.ResizeBilinear(images=y, size=size, name="resize", **resize)
    if pad is not None:
        paddings = const(PADDINGS, "paddings")
        options = {"mode": "REFLECT"} | pad
        y = tf.raw_ops.MirrorPad(input=y, paddings=paddings, name="pad", **options)
    tf.raw_ops.Relu(features=conv(y, random(*weights), **attrs), name="out")


def net(*arguments, **attrs):
    """Return a function that returns such a graph."""
    return functools.partial(before_conv, *arguments, **attrs)


@built(["x"], ["out"])
def plain_padding():
    """Return a convolution behind a Pad, which fills up with zeros."""
    paddings = const(((0, 0), (1, 1), (1, 1), (0, 0)), "paddings")
    y = tf.raw_ops.Pad(input=placeholder(1, 4, 4, 2), paddings=paddings, name="pad")
    conv(y, random(3, 3, 2, 2), "out")


def old_file() -> Graph:
    """Return all three ops as TensorFlow 1.0 wrote them."""
    graph = before_conv({}, {})
    without_attrs(graph, "resize", "half_pixel_centers")
    return without_attrs(graph, "conv", "dilations", "explicit_paddings", "data_format")


@built(["x"], ["out"])
def two_layers():
    """Return two layers, each with another of the forms in front."""
    raw = tf.raw_ops
    y = raw.ResizeBilinear(images=placeholder(1, 4, 4, 2), size=const([8, 8], "size"))
    y = raw.Relu(features=conv(y, random(3, 3, 2, 4), "one"), name="relu")
    y = raw.MirrorPad(input=y, paddings=const(PADDINGS, "paddings"), mode="SYMMETRIC")
    conv(y, random(3, 3, 4, 2), "out")


CASES = [
    Case("all three", net({}, {}), NAME, tolerance=ONE_FUSION),
    Case("SAME", net({}, {}, padding="SAME"), NAME, tolerance=ONE_FUSION),
    Case("strides", net({}, {}, strides=(1, 2, 1, 1)), NAME, tolerance=ONE_FUSION),
    Case("align_corners", net({"align_corners": True}, {}), NAME, tolerance=ONE_FUSION),
    Case("SYMMETRIC", net({}, {"mode": "SYMMETRIC"}), NAME, tolerance=ONE_FUSION),
    Case("no resizing", net(None, {}), NAME),
    Case("no padding", net({}), NAME),
    Case("as TensorFlow 1.0 wrote it", old_file, f"add_default_attributes {NAME}",
         tolerance=ONE_FUSION),
    Case("all three, by each transform", net({}, {}), ALL, tolerance=ONE_FUSION),
    Case("under the README's name, all three", net({}, {}), ALL, CONVOLUTIONS,
         tolerance=ONE_FUSION),
    Case("under the README's name, two layers", two_layers, ALL, CONVOLUTIONS,
         tolerance=2 * ONE_FUSION),
]  # fmt: skip
