"""A convolution of every n-th pixel becomes one whose kernel has zeros in between."""

from tests.differential.case import Case
from tests.differential.graphs import const, conv, depthwise, placeholder
from tests.support import build, built, random, tf

NAME = "flatten_atrous_conv"
KEPT = ("attributes that are kept",)
ONE_LAYER = 6e-6  # the same products, added in another order


def atrous(layer, paddings=((1, 2), (1, 2)), crops=((0, 1), (0, 1)), block=(2, 2), size=(3, 3),
           after=None, shape=None):  # fmt: skip
    """Return a layer between SpaceToBatchND and BatchToSpaceND."""

    def make():
        raw = tf.raw_ops
        y = raw.SpaceToBatchND(
            input=placeholder(*(shape or (1, *size, 2))), block_shape=const(block, "block"),
            paddings=const(paddings, "paddings"), name="split",
        )  # fmt: skip
        y = raw.BatchToSpaceND(
            input=layer(y), block_shape=const(after or block, "block_after"),
            crops=const(crops, "crops"), name="merge",
        )  # fmt: skip
        raw.Relu(features=y, name="out")

    return lambda: build(make, ["x"], ["out"])


def conv2d(*kernel, **attrs):
    return lambda x: conv(x, random(*kernel), **attrs)


def depthwise_conv(*kernel, **attrs):
    return lambda x: depthwise(x, random(*kernel), **attrs)


@built(["x"], ["out"])
def without_blocks():
    conv(placeholder(1, 3, 3, 2), random(2, 2, 2, 1), "out")


def layer_read_twice():
    graph = atrous(conv2d(2, 2, 2, 1))()
    graph.add(graph["out"].with_name("other").with_data_inputs("conv"))
    graph.outputs = ("out", "other")
    return graph


CASES = [
    Case("a layer that is read twice", layer_read_twice, NAME),
    Case("a convolution alone", without_blocks, NAME),
    Case("convolution", atrous(conv2d(2, 2, 2, 1)), NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("depthwise", atrous(depthwise_conv(2, 2, 2, 1)),
         NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("depthwise, multiplier 3", atrous(depthwise_conv(2, 2, 2, 3)), NAME,
         deviations=KEPT, tolerance=ONE_LAYER),
    Case("3x3, 2x2", atrous(conv2d(3, 3, 2, 4), ((2, 3), (2, 2)), ((0, 1), (0, 0)), size=(7, 6)),
         NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("3x3, 3x2", atrous(conv2d(3, 3, 2, 4), ((3, 5), (2, 2)), ((0, 2), (0, 0)), (3, 2),
                            size=(7, 6)), NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("3x3, 4x4, batch 2", atrous(conv2d(3, 3, 2, 4), ((4, 4), (4, 4)), ((0, 0), (0, 0)),
                                     (4, 4), shape=(2, 8, 8, 2)),
         NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("1x3", atrous(conv2d(1, 3, 2, 4), ((0, 0), (2, 2)), ((0, 0), (0, 0)), (1, 2),
                       size=(5, 6)), NAME, deviations=KEPT, tolerance=ONE_LAYER),
    Case("blocks of one pixel", atrous(conv2d(3, 3, 2, 4), ((1, 1), (1, 1)), ((0, 0), (0, 0)),
                                       (1, 1), size=(5, 6)),
         NAME, deviations=KEPT, tolerance=ONE_LAYER),
]  # fmt: skip
