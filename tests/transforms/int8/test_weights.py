"""Codes and steps give the weights back, and no pair of inputs saturates without exact sums."""

import numpy as np
import pytest

from deploykit.transforms.int8.weights import LARGEST, restored, weight_codes
from deploykit.transforms.ir.node import Node
from deploykit.transforms.layers.layers import channel_axes, channel_shape
from tests.support import random

SHAPES = {
    "conv": ("Conv2D", (3, 3, 6, 7)),
    "conv, odd": ("Conv2D", (3, 2, 5, 4)),
    "conv, one channel": ("Conv2D", (5, 5, 1, 3)),
    "depthwise": ("DepthwiseConv2dNative", (3, 3, 6, 2)),
    "matmul": ("MatMul", (16, 9)),
    "matmul, odd": ("MatMul", (15, 9)),
}


def layer(op: str, transposed: bool = False) -> Node:
    return Node("layer", op, ("x", "w")).with_attrs(transpose_b=transposed)


def pair_sums(codes: np.ndarray) -> int:
    """Return the largest sum of one sign over two adjacent input channels."""
    codes = codes.astype(np.int64).reshape(-1, *codes.shape[-2:])
    sums = [
        np.maximum(sign * codes[:, i : i + 2], 0).sum(1).max()
        for sign in (1, -1)
        for i in range(0, codes.shape[1], 2)
    ]
    return int(max(sums))


@pytest.mark.parametrize(("op", "shape"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("exact", [False, True])
def test_weights_come_back_within_half_a_step(op, shape, exact):
    weights = random(*shape)
    node = layer(op)
    codes, steps = weight_codes(node, weights, exact)
    assert codes.dtype == np.int8
    assert steps.dtype == np.float32
    assert len(steps) == np.prod([shape[axis] for axis in channel_axes(node)])
    assert np.abs(codes.astype(int)).max() <= LARGEST
    half = steps.reshape(channel_shape(node, shape)) / 2
    assert (np.abs(restored(node, codes, steps) - weights) <= half * 1.0001).all()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("odd", [0, 1])
def test_pairs_sum_to_128_at_most(seed, odd):
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(3, 3, 8 - odd, 12)) * rng.uniform(0.01, 9, 12)
    weights = weights.astype(np.float32)
    node = layer("Conv2D")
    codes, steps = weight_codes(node, weights, exact_sums=False)
    assert pair_sums(codes) <= 128
    free, _ = weight_codes(node, weights, exact_sums=True)
    assert pair_sums(free) > 128  # else the limit would not be tried
    more = np.rint(weights / (steps * (np.abs(codes).max((0, 1, 2)) / LARGEST)))
    assert pair_sums(more) > 128
    dense, _ = weight_codes(layer("MatMul"), weights[0, 0], exact_sums=False)
    assert pair_sums(dense) <= 128
    turned, _ = weight_codes(layer("MatMul", transposed=True), weights[0, 0].T, False)
    assert np.array_equal(turned.T, dense)


def test_each_channel_has_as_many_levels_as_it_can():
    weights = np.array([[1, 1, 1], [1, -1, 0], [0, 0, 0]], np.float32)
    codes, _ = weight_codes(layer("MatMul"), weights, exact_sums=False)
    assert codes.max(0).tolist() == [64, 127, 127]


def test_depthwise_needs_no_limit():
    codes, _ = weight_codes(layer("DepthwiseConv2dNative"), np.ones((3, 3, 4, 1)), False)
    assert (codes == LARGEST).all()


@pytest.mark.parametrize("exact", [False, True])
def test_channels_of_zeros_and_of_tiny_values(exact):
    weights = np.zeros((1, 1, 4, 3), np.float32)
    weights[..., 1] = 1e-44
    weights[..., 2] = 3e38
    node = layer("Conv2D")
    codes, steps = weight_codes(node, weights, exact)
    assert np.isfinite(steps).all()
    assert not codes[..., :2].any()
    assert np.isfinite(restored(node, codes, steps)).all()
