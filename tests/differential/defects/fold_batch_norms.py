"""Scales that the original folds wrongly, or not."""

import numpy as np

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases import fold_batch_norms as scales
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, conv, placeholder
from tests.differential.judging import aborts, fails, gives, is_wrong, keeps, leaves, makes, stays
from tests.support import build, built, random, tf

FOLD = "fold_batch_norms"
ONE_FOLD = 6e-6
HALF = 2e-3  # float16 has 11 bits


def conv_layer(x):
    return conv(x, random(1, 2, 2, 2))


def scaled(scale, layer=conv_layer, shape=(1, 1, 6, 2), after=None):
    return scales.scaled(layer, *shape, scale=scale, after=after)


def matmul_transposed(rows, columns):
    def layer(x):
        weights = const(random(columns, rows), "w")
        return tf.raw_ops.MatMul(a=x, b=weights, transpose_b=True, name="layer")

    return layer


@built(["x"], ["out"])
def two_scales():
    """Return a layer with a scale per channel, and one with a single number."""
    y = conv(placeholder(1, 6, 6, 2), random(3, 3, 2, 4), "one")
    y = tf.raw_ops.Mul(x=y, y=const(random(4, low=0.5), "one/scale"), name="one/mul")
    y = conv(tf.nn.relu(y, name="relu"), random(2, 2, 4, 4), "two")
    tf.raw_ops.Mul(x=y, y=const(2.0, "two/scale"), name="out")


def of_type(dtype):
    def make():
        x = placeholder(2, 4, 4, 2, dtype=dtype)
        y = conv(x, const(random(2, 2, 2, 4).astype(dtype), "w"))
        y = tf.raw_ops.Mul(x=y, y=const(random(4, low=0.5).astype(dtype), "scale"), name="mul")
        tf.raw_ops.Relu(features=y, name="out")

    return lambda: build(make, ["x"], ["out"])


@built(["x"], ["out"])
def channels_first():
    """Return an NCHW convolution times a vector that lies along the columns."""
    y = conv(placeholder(1, 2, 5, 5), random(2, 2, 2, 4), data_format="NCHW")
    tf.raw_ops.Mul(x=y, y=const(random(4, low=0.5), "scale"), name="out")


def layer_is_output() -> Graph:
    graph = scaled(random(2, low=0.5))()
    graph.outputs = ("conv", "out")
    return graph


@built(["x"], ["out"])
def weights_are_waited_for():
    """Return the NoOp that TensorFlow 2 leaves behind for each variable that it freezes."""
    y = conv(placeholder(1, 1, 6, 2), const(random(1, 2, 2, 2), "w"))
    y = tf.raw_ops.Mul(x=y, y=const(random(2, low=0.5), "scale"), name="mul")
    graph = tf.compat.v1.get_default_graph()
    with tf.control_dependencies([graph.get_operation_by_name("w")]):
        done = tf.raw_ops.NoOp(name="done")
    with tf.control_dependencies([done]):
        tf.raw_ops.Identity(input=y, name="out")


@built(["x"], ["out"])
def shared_weights():
    x, w = placeholder(1, 4, 4, 2), const(random(1, 1, 2, 2), "w")
    y = tf.raw_ops.Mul(x=conv(x, w, "one"), y=const(random(2, low=0.5), "scale"), name="mul")
    conv(y, w, "out")


@built(["x"], ["out"])
def shared_scale():
    scale = const(random(2, low=0.5), "scale")
    y = conv(tf.raw_ops.AddV2(x=placeholder(1, 4, 4, 2), y=scale, name="sum"),
             random(1, 1, 2, 2))  # fmt: skip
    tf.raw_ops.Mul(x=y, y=scale, name="out")


@built(["x"], ["out"])
def turned_round():
    y = conv_layer(placeholder(1, 1, 6, 2))
    tf.raw_ops.Mul(x=const(random(2, low=0.5), "scale"), y=y, name="out")


@built(["x"], ["out"])
def divided():
    y = conv_layer(placeholder(1, 1, 6, 2))
    tf.raw_ops.RealDiv(x=y, y=const(random(2, low=0.5), "scale"), name="out")


def read_weights(x):
    w = tf.raw_ops.Identity(input=const(random(1, 2, 2, 2), "w"), name="w/read")
    return conv(x, w)


def biased(x):
    return tf.raw_ops.BiasAdd(value=conv_layer(x), bias=const(random(2), "b"), name="biased")


def shifted(x):
    return tf.raw_ops.AddV2(x=conv_layer(x), y=const(random(2), "b"), name="shifted")


def conv3d(x):
    w = const(random(2, 2, 2, 2, 3), "w")
    return tf.raw_ops.Conv3D(input=x, filter=w, strides=[1] * 5, padding="SAME", name="layer")


def transposed_conv(x):
    return tf.raw_ops.Conv2DBackpropInput(
        input_sizes=const([1, 8, 8, 3], "sizes"), filter=const(random(2, 2, 3, 2), "w"),
        out_backprop=x, strides=[1, 2, 2, 1], padding="SAME", name="layer",
    )  # fmt: skip


def unfolded(what, graph, op="Mul"):
    """Return a defect of a graph that the original leaves as it is, though it could be folded."""
    left = leaves(**{op: 1})
    right = keeps(ONE_FOLD, **{op: 0})
    return Defect(FOLD, what, graph, FOLD, "does not fold", left, "folds", right)


DEFECTS = [
    Defect(FOLD, "a scale of shape [1, 1, 1, C]", scaled(random(1, 1, 1, 2, low=0.5)), FOLD,
           "refuses the graph", fails("Mul constant input to batch norm has bad shape"),
           "folds", keeps(ONE_FOLD, Mul=0)),
    Defect(FOLD, "a scale of one number", scaled(np.float32(2)), FOLD,
           "refuses the graph", fails("Mul constant input to batch norm has bad shape"),
           "skips it with a reason", stays(Mul=1)),
    Defect(FOLD, "such a scale anywhere, with ignore_errors", two_scales,
           f"{FOLD}(ignore_errors=true)", "folds nothing at all", leaves(Mul=2),
           "folds all others", keeps(ONE_FOLD, Mul=1)),
    Defect(FOLD, "MatMul with transpose_b, square weights",
           scaled(random(4, low=0.5), matmul_transposed(4, 4), (3, 4)), FOLD,
           "scales the wrong axis: wrong outputs", is_wrong, "folds", keeps(ONE_FOLD, Mul=0)),
    Defect(FOLD, "MatMul with transpose_b, other weights",
           scaled(random(5, low=0.5), matmul_transposed(4, 5), (3, 4)), FOLD,
           "refuses the graph", fails("Mul constant input to batch norm has bad shape"), "folds",
           keeps(ONE_FOLD, Mul=0)),
    Defect(FOLD, "a vector along the columns of an NCHW convolution", channels_first, FOLD,
           "folds it as if along the channels", leaves(Mul=0), "skips it with a reason",
           gives(lambda before, after: str(after) == str(before) and after.skipped)),
    Defect(FOLD, "float64 weights", of_type("float64"), FOLD, "aborts",
           aborts("dtype() == expected_dtype"), "folds", keeps(1e-12, Mul=0)),
    Defect(FOLD, "float16 weights", of_type("float16"), FOLD, "aborts",
           aborts("dtype() == expected_dtype"), "folds", keeps(HALF, Mul=0)),
    Defect(FOLD, "a layer that is an output as well", layer_is_output, FOLD,
           "the output is missing", makes(lambda before, after: "conv" not in after),
           "skips it with a reason", stays(Mul=1)),
    Defect(FOLD, "a scale that another node reads", shared_scale, FOLD,
           "drops the scale, then fails as it is missing",
           fails("Invalid graph with inputs referring to nonexistent nodes"), "folds",
           keeps(ONE_FOLD, Mul=0)),
    unfolded("weights that a NoOp waits for, as TensorFlow 2 freezes them",
             weights_are_waited_for),
    unfolded("weights that another layer reads", shared_weights),
    unfolded("Mul of the scale and the layer, in this order", turned_round),
    unfolded("a division by a vector", divided, "RealDiv"),
    unfolded("weights behind an Identity", scaled(random(2, low=0.5), read_weights)),
    unfolded("a BiasAdd before the scale", scaled(random(2, low=0.5), biased)),
    unfolded("an Add before the scale", scaled(random(2, low=0.5), shifted)),
    unfolded("a shift after the scale",
             scaled(random(2, low=0.5), after=scales.plus("AddV2")), "AddV2"),
    unfolded("Conv3D", scaled(random(3, low=0.5), conv3d, (1, 3, 4, 4, 2))),
    unfolded("Conv2DBackpropInput", scaled(random(3, low=0.5), transposed_conv, (1, 4, 4, 2))),
]  # fmt: skip
