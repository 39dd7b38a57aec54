"""Resizing goes into the convolution; the check sees corners that are not kept."""

import pytest

from tests.support import because, error, transform
from tests.transforms.examples import Example
from tests.transforms.test_fuse_resize_pad_and_conv import (
    BAR,
    CONVS,
    X,
    check_fuses,
    check_left_alone,
    net,
)

NAME = "fuse_resize_and_conv"


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("align_corners", [False, True])
def test_fuses(conv, align_corners):
    graph = net({"align_corners": align_corners}, None, conv)
    result = check_fuses(NAME, graph, "FusedResizeAndPadConv2D")
    assert not result["conv_dummy_paddings"].value.any()


@pytest.mark.parametrize(
    ("resize", "conv", "reason"),
    [
        (
            {"half_pixel_centers": True},
            {},
            because("half-pixel-centers", resize="resize"),
        ),
        ({}, {"data_format": "NCHW"}, because("layout-unfit", layout="NCHW")),
        (
            {},
            {"dilations": [1, 2, 1, 1]},
            because("kernel-no-dilations", op="FusedResizeAndPadConv2D"),
        ),
        (
            {},
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1, 0, 0, 0, 0]},
            because("kernel-no-explicit-padding", op="FusedResizeAndPadConv2D"),
        ),
    ],
)
def test_left_alone(resize, conv, reason):
    if "data_format" in conv:  # three rows stand for the three channels
        resize = {"size": [3, 9]}
    check_left_alone(NAME, net(resize, None, conv), reason)


def test_a_dummy_of_that_name_is_not_overwritten():
    graph = net({})
    graph.add(graph["weights"].with_name("conv_dummy_paddings"))
    graph.redirect({"weights": "conv_dummy_paddings"})
    result = transform(graph, NAME)
    assert result["conv"].inputs == ("x", "size", "conv_dummy_paddings_1", "conv_dummy_paddings")
    assert error(graph, result, X) <= 6e-6


GRAPHS = [Example(NAME, lambda: net({}), BAR, golden="resize")]
