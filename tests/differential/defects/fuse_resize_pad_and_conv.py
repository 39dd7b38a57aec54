"""Convolutions that the original fuses wrongly with what is in front, or not."""

from tests.differential.cases.fuse_resize_pad_and_conv import net, plain_padding
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, conv, placeholder
from tests.differential.judging import (
    does_not_run,
    fails,
    gives,
    is_wrong,
    keeps,
    leaves,
    makes,
    stays,
)
from tests.support import built, random, tf

THREE, RESIZE, PAD = "fuse_resize_pad_and_conv", "fuse_resize_and_conv", "fuse_pad_and_conv"
CONVOLUTIONS = "fuse_convolutions"
ONE_FUSION = 6e-6


@built(["x"], ["out"])
def padded(paddings, shape=(1, 4, 4, 2), dtype=None, **attrs):
    """Return a convolution behind a MirrorPad."""
    y = tf.raw_ops.MirrorPad(
        input=placeholder(*shape), paddings=const(paddings, "paddings", dtype),
        mode="REFLECT", name="pad",
    )  # fmt: skip
    width = y.shape[1] if attrs.get("data_format") == "NCHW" else y.shape[3]
    tf.raw_ops.Relu(features=conv(y, random(1, 2, width, 2), **attrs), name="out")


AROUND = ((0, 0), (1, 1), (2, 2), (0, 0))
FIRST = ((0, 0), (0, 0), (1, 1), (2, 2))
EXPLICIT = {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 0, 1, 0, 0]}


@built(["x"], ["out"])
def of_bytes():
    x = placeholder(1, 4, 4, 2, dtype="uint8")
    y = tf.raw_ops.ResizeBilinear(images=x, size=const([8, 8], "size"), name="resize")
    conv(y, random(1, 2, 2, 2), "out")


def pad_is_output():
    graph = padded(AROUND)
    graph.outputs = ("pad", "out")
    return graph


DEFECTS = [
    Defect(THREE, "half_pixel_centers", net({"half_pixel_centers": True}, {}), THREE,
           "drops it: wrong outputs", is_wrong, "skips it with a reason",
           stays(ResizeBilinear=1)),
    Defect(RESIZE, "half_pixel_centers", net({"half_pixel_centers": True}), RESIZE,
           "drops it: wrong outputs", is_wrong, "skips it with a reason",
           stays(ResizeBilinear=1)),
    Defect(PAD, "dilations", lambda: padded(AROUND, dilations=[1, 1, 2, 1]), PAD,
           "drops them: wrong shape", is_wrong, "skips it with a reason", stays(MirrorPad=1)),
    Defect(PAD, "data_format NCHW", lambda: padded(FIRST, (1, 2, 4, 4), data_format="NCHW"), PAD,
           "drops it: the graph no longer loads", does_not_run("cannot load"),
           "skips it with a reason",
           gives(lambda before, after: str(after) == str(before) and after.skipped)),
    Defect(PAD, "explicit_paddings", lambda: padded(AROUND, **EXPLICIT), PAD,
           "the graph no longer loads", does_not_run("padding"), "skips it with a reason",
           stays(MirrorPad=1)),
    Defect(PAD, "paddings of int64", lambda: padded(AROUND, dtype="int64"), PAD,
           "the graph no longer loads", does_not_run("int64"), "skips it with a reason",
           stays(MirrorPad=1)),
    Defect(PAD, "padding of the channels",
           lambda: padded(((0, 0), (1, 1), (2, 2), (1, 0))), PAD,
           "the graph no longer runs", does_not_run(""), "skips it with a reason",
           stays(MirrorPad=1)),
    Defect(PAD, "a padding that is an output as well", pad_is_output, PAD, "the output is missing",
           makes(lambda before, after: "pad" not in after), "skips it with a reason",
           stays(MirrorPad=1)),
    Defect(PAD, "Pad, which pads with zeros", plain_padding, PAD, "does not fuse",
           leaves(Pad=1), "fold_pads makes it the layer's own padding", keeps(ONE_FUSION, Pad=0),
           ours="fold_pads"),
    *(Defect(name, "a batch of more than one image", graph, name,
             "TensorFlow computes the second image wrongly", is_wrong, "skips it with a reason",
             stays(Conv2D=1))
      for name, graph in ((THREE, net({}, {}, batch=2)), (RESIZE, net({}, batch=2)),
                          (PAD, net(None, {}, batch=2)))),
    Defect(RESIZE, "uint8 images", of_bytes, RESIZE, "the graph no longer loads",
           does_not_run(""), "skips it with a reason", stays(ResizeBilinear=1)),
    Defect(CONVOLUTIONS, "the name that the README gave the three", net({}, {}), CONVOLUTIONS,
           "has no such transform", fails("Transform 'fuse_convolutions' not recognized"),
           "runs the three", keeps(ONE_FUSION, FusedResizeAndPadConv2D=1)),
]  # fmt: skip
