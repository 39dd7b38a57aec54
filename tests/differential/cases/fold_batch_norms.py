"""A Mul by a constant per output channel goes into the weights before it."""

from tests.differential.case import Case
from tests.differential.graphs import (
    const,
    conv,
    depthwise,
    fashion_keras,
    fashion_tf1,
    placeholder,
)
from tests.support import build, built, random, tf

ONE_FOLD = 1e-6  # float32 against float64 products, rounded once


def scaled(layer, *shape, scale, after=None):
    """Return a placeholder, a layer, a Mul by a Const, and what comes after it."""

    def make():
        y = layer(placeholder(*shape))
        y = tf.raw_ops.Mul(x=y, y=const(scale, "scale"), name="mul")
        if after is not None:
            y = after(y)
        tf.raw_ops.Relu(features=y, name="out")

    return lambda: build(make, ["x"], ["out"])


def matmul(rows, columns, transpose_a=False):
    def layer(x):
        weights = const(random(rows, columns), "w")
        return tf.raw_ops.MatMul(a=x, b=weights, transpose_a=transpose_a, name="layer")

    return layer


def plus(kind):
    def after(y):
        op = getattr(tf.raw_ops, kind)
        return op(x=y, y=const(random(y.shape[-1], seed=4), "shift"), name="shifted")

    return after


def plus_bias(y):
    return tf.raw_ops.BiasAdd(value=y, bias=const(random(y.shape[-1], seed=4), "b"), name="biased")


def per_channel(count):
    return random(count, seed=1, low=0.5, high=2.0)


@built(["x"], ["out"])
def layer_of_two():
    """Return two layers in a row, each with its scale."""
    y = conv(placeholder(1, 6, 6, 2), random(3, 3, 2, 4), "one")
    y = tf.raw_ops.Mul(x=y, y=const(per_channel(4), "one/scale"), name="one/mul")
    y = depthwise(tf.nn.relu(y, name="relu"), random(2, 2, 4, 1), "two")
    tf.raw_ops.Mul(x=y, y=const(per_channel(4), "two/scale"), name="out")


@built(["x", "scale"], ["out"])
def computed_scale():
    """Return a convolution times what is fed."""
    y = conv(placeholder(1, 4, 4, 2), random(3, 3, 2, 4))
    tf.raw_ops.Mul(x=y, y=placeholder(4, name="scale"), name="out")


@built(["x"], ["out"])
def read_twice():
    """Return a convolution that the Mul and another node read."""
    y = conv(placeholder(1, 4, 4, 2), random(3, 3, 2, 4))
    z = tf.raw_ops.Mul(x=y, y=const(per_channel(4), "scale"), name="mul")
    tf.raw_ops.AddV2(x=z, y=tf.raw_ops.Relu(features=y, name="relu"), name="out")


@built(["x", "w"], ["out"])
def computed_weights():
    """Return a convolution whose weights are fed."""
    y = conv(placeholder(1, 4, 4, 2), placeholder(3, 3, 2, 4, name="w"))
    tf.raw_ops.Mul(x=y, y=const(per_channel(4), "scale"), name="out")


NAME = "fold_batch_norms"
ADDED = ("more batch norms", "names of folded layers")


def conv_layer(x):
    return conv(x, random(1, 2, 2, 2))


CASES = [
    Case("convolution", scaled(conv_layer, 1, 1, 6, 2, scale=per_channel(2)), NAME,
         tolerance=ONE_FOLD),
    Case("convolution, stride 2, SAME",
         scaled(lambda x: conv(x, random(3, 3, 3, 8), strides=[1, 2, 2, 1], padding="SAME"),
                2, 7, 7, 3, scale=per_channel(8)), NAME, tolerance=ONE_FOLD),
    Case("convolution, explicit padding",
         scaled(lambda x: conv(x, random(3, 3, 3, 8), padding="EXPLICIT",
                               explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0]),
                2, 7, 7, 3, scale=per_channel(8)), NAME, tolerance=ONE_FOLD),
    Case("dilated convolution",
         scaled(lambda x: conv(x, random(3, 3, 3, 8), dilations=[1, 2, 2, 1]),
                2, 9, 9, 3, scale=per_channel(8)), NAME, tolerance=ONE_FOLD),
    Case("matrix product", scaled(matmul(2, 2), 6, 2, scale=per_channel(2)), NAME,
         tolerance=ONE_FOLD),
    Case("matrix product, not square", scaled(matmul(3, 5), 6, 3, scale=per_channel(5)), NAME,
         tolerance=ONE_FOLD),
    Case("matrix product, transpose_a",
         scaled(matmul(6, 5, transpose_a=True), 6, 2, scale=per_channel(5)), NAME,
         tolerance=ONE_FOLD),
    Case("depthwise", scaled(lambda x: depthwise(x, random(2, 2, 4, 1)), 1, 4, 4, 4,
                             scale=per_channel(4)), NAME, tolerance=ONE_FOLD),
    Case("depthwise, multiplier 2",
         scaled(lambda x: depthwise(x, random(2, 2, 4, 2)), 1, 4, 4, 4, scale=per_channel(8)),
         NAME, tolerance=ONE_FOLD),
    Case("two layers", layer_of_two, NAME, tolerance=2 * ONE_FOLD),
    Case("scale and AddV2", scaled(conv_layer, 1, 1, 6, 2, scale=per_channel(2),
                                   after=plus("AddV2")), NAME, deviations=ADDED,
         tolerance=ONE_FOLD),
    Case("scale and Add", scaled(conv_layer, 1, 1, 6, 2, scale=per_channel(2),
                                 after=plus("Add")), NAME, deviations=ADDED,
         tolerance=ONE_FOLD),
    Case("scale and Sub", scaled(conv_layer, 1, 1, 6, 2, scale=per_channel(2),
                                 after=plus("Sub")), NAME, deviations=ADDED,
         tolerance=ONE_FOLD),
    Case("matrix product, scale and AddV2", scaled(matmul(3, 5), 6, 3, scale=per_channel(5),
                                                   after=plus("AddV2")), NAME,
         deviations=ADDED, tolerance=ONE_FOLD),
    Case("depthwise, scale and AddV2",
         scaled(lambda x: depthwise(x, random(2, 2, 4, 1)), 1, 4, 4, 4, scale=per_channel(4),
                after=plus("AddV2")), NAME, deviations=ADDED, tolerance=ONE_FOLD),
    Case("scale and BiasAdd", scaled(conv_layer, 1, 1, 6, 2, scale=per_channel(2),
                                     after=plus_bias), NAME, deviations=ADDED[1:],
         tolerance=ONE_FOLD),
    Case("a scale that is fed", computed_scale, NAME),
    Case("weights that are fed", computed_weights, NAME),
    Case("a layer that is read twice", read_twice, NAME),
    Case("frozen Fashion, TF1", fashion_tf1, NAME, deviations=ADDED[:1], tolerance=1e-5),
    Case("frozen Fashion, Keras", fashion_keras, f"fold_constants {NAME}",
         deviations=("names behind Identity", *ADDED), tolerance=2e-5),
]  # fmt: skip
