"""Second moments of a layer's inputs are those of what its op multiplies with its weights."""

import numpy as np
import pytest

from deploykit.transforms.int8 import gptq
from deploykit.transforms.int8.gptq import InputMoments
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import tf

SHAPE = (2, 9, 8, 3)


def convolution(op, padding, stride, dilation, explicit=()):
    attrs = {"T": DType("float32"), "padding": padding, "data_format": "NHWC"}
    attrs |= {"strides": [1, stride, stride, 1], "dilations": [1, dilation, dilation, 1]}
    if explicit:
        attrs["explicit_paddings"] = list(explicit)
    return Node("layer", op, ("x", "w")).with_attrs(**attrs)


@pytest.mark.parametrize(
    ("padding", "stride", "dilation", "explicit"),
    [
        ("SAME", 1, 1, ()), ("SAME", 2, 1, ()), ("VALID", 1, 2, ()), ("VALID", 3, 1, ()),
        ("EXPLICIT", 2, 1, (0, 0, 2, 1, 0, 3, 0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kernel", [(1, 1), (3, 2)])
def test_moments_give_the_outputs_of_the_op(kernel, padding, stride, dilation, explicit):
    """For weights w, the mean square of an output about its mean is w M w."""
    random = np.random.default_rng(1)
    images = random.normal(1, 1, SHAPE).astype(np.float32)
    weights = random.normal(size=(*kernel, 3, 4)).astype(np.float32)
    layer = convolution("Conv2D", padding, stride, dilation, explicit)
    found = InputMoments.of(layer, weights.shape, batches=2)
    for image in images:
        found.add(image[np.newaxis])
    pads = [[0, 0], list(explicit[2:4]), list(explicit[4:6]), [0, 0]] if explicit else padding
    outputs = tf.nn.conv2d(images, weights, stride, pads, dilations=dilation).numpy()
    flat = weights.reshape(-1, 4).astype(np.float64)
    (moments,) = found.central()
    expected = outputs.reshape(-1, 4).astype(np.float64).var(0)
    assert np.einsum("io,ij,jo->o", flat, moments, flat) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_a_depthwise_channel_has_its_own(padding):
    random = np.random.default_rng(2)
    images = random.normal(1, 1, SHAPE).astype(np.float32)
    weights = random.normal(size=(3, 3, 3, 2)).astype(np.float32)
    layer = convolution("DepthwiseConv2dNative", padding, 1, 1)
    found = InputMoments.of(layer, weights.shape, batches=1)
    found.add(images)
    outputs = tf.nn.depthwise_conv2d(images, weights, [1, 1, 1, 1], padding).numpy()
    flat = weights.reshape(9, 3, 2).transpose(1, 0, 2).astype(np.float64)
    (moments,) = found.central()
    variances = np.einsum("cio,cij,cjo->co", flat, moments, flat)
    expected = outputs.reshape(-1, 3, 2).astype(np.float64).var(0)
    assert variances == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_in_parts(monkeypatch, transposed):
    """What is too large for one matrix comes in parts of whole pairs."""
    monkeypatch.setattr(gptq, "LARGEST", 4)
    rows = np.random.default_rng(3).normal(size=(50, 10)).astype(np.float32)
    layer = Node("layer", "MatMul", ("x", "w")).with_attrs(
        T=DType("float32"), transpose_a=False, transpose_b=transposed
    )
    found = InputMoments.of(layer, (7, 10) if transposed else (10, 7), batches=1)
    found.add(rows)
    assert [(each.start, each.stop) for each in found.parts] == [(0, 4), (4, 8), (8, 10)]
    for part, moments in zip(found.parts, found.central(), strict=True):
        expected = np.cov(rows[:, part].astype(np.float64).T, bias=True)
        assert moments == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_of_many_rows_some_are_taken():
    rows = np.random.default_rng(4).normal(size=(90_000, 2)).astype(np.float32)
    layer = Node("layer", "MatMul", ("x", "w")).with_attrs(
        T=DType("float32"), transpose_a=False, transpose_b=False
    )
    found = InputMoments.of(layer, (2, 7), batches=1)
    found.add(rows)
    assert found.count == gptq.FEWEST_ROWS + 1
    assert found.central()[0] == pytest.approx(np.eye(2), abs=0.05)


def test_small_differences_of_large_values_keep_their_digits():
    random = np.random.default_rng(5)
    rows = (1000 + random.normal(0, 0.01, (4000, 30))).astype(np.float32)
    layer = Node("layer", "MatMul", ("x", "w")).with_attrs(
        T=DType("float32"), transpose_a=False, transpose_b=False
    )
    found = InputMoments.of(layer, (30, 7), batches=2)
    for part in np.split(rows, 2):
        found.add(part)
    (moments,) = found.central()
    expected = np.cov(rows.astype(np.float64).T, bias=True)
    assert moments == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert np.linalg.eigvalsh(moments).min() > 0


def test_batches_without_rows_and_values_that_overflow():
    layer = Node("layer", "MatMul", ("x", "w")).with_attrs(
        T=DType("float32"), transpose_a=False, transpose_b=False
    )
    found = InputMoments.of(layer, (3, 7), batches=2)
    found.add(np.zeros((0, 3), np.float32))
    assert not found.are_finite
    rows = np.random.default_rng(6).normal(size=(40, 3)).astype(np.float32)
    found.add(rows)
    assert found.are_finite
    assert found.central()[0] == pytest.approx(np.cov(rows.T, bias=True), rel=1e-4)
    found.add(rows * np.float32(1e30))
    assert not found.are_finite


def test_parts_of_an_odd_number_of_channels_split_no_pair(monkeypatch):
    monkeypatch.setattr(gptq, "LARGEST", 4)
    layer = convolution("Conv2D", "SAME", 1, 1)
    found = InputMoments.of(layer, (2, 1, 7, 3), batches=1)
    bounds = [(each.start, each.stop) for each in found.parts]
    assert bounds == [(0, 4), (4, 7), (7, 11), (11, 14)]


@pytest.mark.parametrize(("size", "dilation"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_a_kernel_that_is_larger_than_the_image_sees_nothing(size, dilation):
    layer = convolution("DepthwiseConv2dNative", "VALID", 1, dilation)
    found = InputMoments.of(layer, (3, 3, 3, 1), batches=1)
    found.add(np.ones((2, size, size, 3), np.float32))
    assert found.count == 0
    assert not found.are_finite
