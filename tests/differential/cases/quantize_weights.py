"""Large float constants become 8 bits; deploykit writes the original's form with one range each."""

import numpy as np

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import (
    const,
    conv,
    depthwise,
    fashion_keras,
    fashion_tf1,
    placeholder,
    two_layers,
)
from tests.support import build, built, random, tf

NAME = "quantize_weights"
OURS = "quantize_weights(per_channel=false)"


def sum_with(value, dtype=None):
    """Return the sum of what is fed and a Const."""

    def make():
        c = const(value, "w", dtype)
        x = placeholder(*c.shape, dtype=c.dtype.name)
        tf.raw_ops.AddV2(x=x, y=c, name="out")

    return lambda: build(make, ["x"], ["out"])


def product_with(value, dtype=None):
    """Return the product of what is fed and the weights in a Const: a matrix, or one column."""

    def make():
        w = const(value if value.ndim > 1 else value[:, np.newaxis], "w", dtype)
        x = placeholder(2, w.shape[0], dtype=w.dtype.name)
        tf.raw_ops.MatMul(a=x, b=w, name="out")

    return lambda: build(make, ["x"], ["out"])


@built(["x"], ["out"])
def layers():
    """Return a convolution, a depthwise one and a matrix product, all large enough."""
    raw = tf.raw_ops
    y = conv(placeholder(2, 6, 6, 16), random(3, 3, 16, 32))
    y = depthwise(raw.Relu(features=y, name="relu"), random(3, 3, 32, 4), "depthwise")
    y = raw.Reshape(tensor=y, shape=const([2, 512], "form"), name="rows")
    w = raw.Identity(input=const(random(512, 40), "dense/w"), name="dense/w/read")
    y = raw.MatMul(a=y, b=w, name="dense")
    raw.BiasAdd(value=y, bias=const(random(40), "dense/b"), name="out")


@built(["x"], ["out"])
def shared_weights():
    w = const(random(40, 40), "w")
    y = tf.raw_ops.MatMul(a=placeholder(3, 40), b=w, name="one")
    tf.raw_ops.MatMul(a=y, b=w, transpose_b=True, name="out")


CASES = [
    Case("1,023 values", product_with(random(1023)), NAME, OURS),
    Case("1,024 values", product_with(random(1024)), NAME, OURS),
    Case("minimum_size", product_with(random(20)), f"{NAME}(minimum_size=16)",
         f"{NAME}(minimum_size=16, per_channel=false)"),
    Case("below minimum_size", product_with(random(2000)), f"{NAME}(minimum_size=2001)",
         f"{NAME}(minimum_size=2001, per_channel=false)"),
    Case("all positive", product_with(random(1024, low=0.5)), NAME, OURS),
    Case("all negative", product_with(-random(1024, low=0.5)), NAME, OURS,
         deviations=("range up to 0",)),
    Case("far from zero", product_with(random(1024, low=0.99)), NAME, OURS),
    Case("from tiny to huge", product_with(random(1024) * np.float32(1e30)), NAME, OURS),
    Case("zeros among them", product_with(np.maximum(random(1024), 0)), NAME, OURS),
    Case("halves", product_with(np.arange(1024, dtype=np.float32) / 2), NAME, OURS),
    Case("one value 1,024 times", product_with(np.full(1024, 2.5, np.float32)), NAME, OURS,
         deviations=("one value",)),
    Case("whole numbers", product_with(np.arange(2000, dtype=np.int32)), NAME, OURS),
    Case("float16", product_with(random(1024).astype(np.float16)), NAME, OURS),
    Case("float64", product_with(random(1024).astype(np.float64)), NAME, OURS),
    Case("a constant that is added", sum_with(random(1024)), NAME, OURS,
         deviations=("other roles",), tolerance=1 / 255),
    Case("layers", layers, NAME, OURS),
    Case("twice", layers, f"{NAME} {NAME}", f"{OURS} {OURS}"),
    Case("shared weights", shared_weights, NAME, OURS),
    Case("small net", two_layers, f"remove_device {NAME}(minimum_size=400)",
         f"remove_device {NAME}(minimum_size=400, per_channel=false)"),
    Case("frozen Fashion, TF1", fashion_tf1, NAME, OURS),
    Case("frozen Fashion, Keras", fashion_keras, NAME, OURS),
    Refusal("a size that is no whole number", layers, f"{NAME}(minimum_size=1.5)",
            "Couldn't interpret the minimum_size argument as a number:1.5",
            error_of("parameter-value", name="minimum_size", got="1.5")),
]  # fmt: skip
