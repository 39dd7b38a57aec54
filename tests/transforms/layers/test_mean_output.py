"""What a layer gives for an input of constant channels is what TensorFlow computes of it."""

import numpy as np
import pytest

from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.affine import mean_output
from tests.support import random, tf

CONV = {"strides": [1] * 4, "padding": "VALID"}
CASES = {
    "matmul": ("MatMul", (6, 4), {}),
    "transposed": ("MatMul", (4, 6), {"transpose_b": True}),
    "conv": ("Conv2D", (3, 2, 6, 4), CONV),
    "two groups": ("Conv2D", (3, 2, 3, 4), CONV),
    "six groups": ("Conv2D", (1, 1, 1, 12), CONV),
    "depthwise": ("DepthwiseConv2dNative", (3, 2, 6, 2), CONV),
}


@pytest.mark.parametrize(("op", "shape", "attrs"), CASES.values(), ids=CASES)
def test_it_is_what_tensorflow_computes(op, shape, attrs):
    weights, means = random(*shape, seed=1), random(6, seed=2)
    if op == "MatMul":
        expected = tf.matmul(means[np.newaxis], weights, **attrs)
    else:
        image = np.broadcast_to(means, (1, *shape[:2], 6))
        kind = {"Conv2D": tf.nn.conv2d, "DepthwiseConv2dNative": tf.nn.depthwise_conv2d}[op]
        expected = kind(image, weights, **attrs)
    transposed = attrs.get("transpose_b", False)
    layer = Node("layer", op, ("x", "w")).with_attrs(transpose_b=transposed)
    found = mean_output(layer, weights, means.astype(np.float64))
    np.testing.assert_allclose(found, np.asarray(expected).reshape(-1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "shape", "channels"),
    [
        ("MatMul", (6, 4), 5),
        ("MatMul", (6, 4), 12),
        ("Conv2D", (1, 1, 4, 4), 6),
        ("Conv2D", (1, 1, 2, 5), 4),
        ("DepthwiseConv2dNative", (1, 1, 3, 1), 6),
    ],
)
def test_means_of_other_channels_give_none(op, shape, channels):
    assert mean_output(Node("layer", op, ("x", "w")), np.ones(shape), np.ones(channels)) is None
