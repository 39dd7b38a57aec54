"""Sums over the windows of a convolution are those of the windows themselves, one by one."""

import itertools

import numpy as np
import pytest

from deploykit.transforms.int8.gptq import Windows
from tests.transforms.int8.test_input_moments import convolution

KERNELS = ((1, 1), (3, 3), (5, 5), (2, 3), (4, 1))
STRIDES, DILATIONS, PADDINGS = (1, 2, 3), (1, 2), ("SAME", "VALID")


@pytest.mark.sampled
@pytest.mark.parametrize("kernel", KERNELS)
def test_sums_and_squares(kernel):
    random = np.random.default_rng(3)
    for stride, apart, padding in itertools.product(STRIDES, DILATIONS, PADDINGS):
        values = random.normal(1, 1, (3, 10, 12, 4)).astype(np.float32)
        around = random.normal(1, 1, 4).astype(np.float32)
        layer = convolution("DepthwiseConv2dNative", padding, stride, apart)
        windows = Windows.of(layer, (*kernel, 4, 1), values, around)
        one_by_one = windows.views().astype(np.float64).reshape(-1, 4, kernel[0] * kernel[1])
        assert windows.count == len(one_by_one)
        assert windows.sums() == pytest.approx(one_by_one.sum(0), rel=1e-5)
        squares = np.einsum("ncp,ncq->cpq", one_by_one, one_by_one)
        scale = np.abs(squares).max()
        assert windows.squares() == pytest.approx(squares, abs=1e-5 * scale)


def test_what_is_around_is_seen_by_the_outer_windows_alone():
    layer = convolution("DepthwiseConv2dNative", "SAME", 1, 1)
    values, around = np.ones((1, 4, 4, 1), np.float32), np.array([9], np.float32)
    sums = Windows.of(layer, (3, 3, 1, 1), values, around).views().sum((-1, -2)).reshape(4, 4)
    assert sums[1:3, 1:3].tolist() == [[9, 9], [9, 9]]
    assert sums[0].tolist() == [49, 33, 33, 49]
    assert Windows.of(layer, (3, 3, 1, 1), values).views()[0, 0, 0, 0, 0].tolist() == [0, 0, 0]
