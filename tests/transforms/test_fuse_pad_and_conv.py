"""Mirror padding goes into the convolution; the check sees paddings in another order."""

import numpy as np
import pytest

from tests.support import because, error, transform
from tests.transforms.examples import Example
from tests.transforms.test_fuse_resize_pad_and_conv import (
    BAR,
    CONVS,
    PADDINGS,
    X,
    check_fuses,
    check_left_alone,
    net,
)

NAME = "fuse_pad_and_conv"


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_fuses(conv, mode):
    check_fuses(NAME, net(None, {"mode": mode}, conv), "FusedPadConv2D")


def test_the_resize_in_front_stays():
    graph = net({}, {})
    result = transform(graph, NAME)
    assert result["conv"].inputs == ("resize", "paddings", "weights")
    assert error(graph, result, X) <= 6e-6


@pytest.mark.parametrize(
    ("pad", "conv", "reason"),
    [
        ({}, {"dilations": [1, 2, 2, 1]}, because("kernel-no-dilations", op="FusedPadConv2D")),
        (
            {"paddings": ((1, 0), (0, 0), (0, 0), (0, 0))},
            {},
            because("pad-of-batch-or-channels", pad="pad"),
        ),
        (
            {"paddings": np.array(PADDINGS, np.int64)},
            {},
            because("paddings-not-int32", pad="pad"),
        ),
        (
            {},
            {"padding": "EXPLICIT", "explicit_paddings": [0, 0, 1, 1, 0, 0, 0, 0]},
            because("kernel-no-explicit-padding", op="FusedPadConv2D"),
        ),
    ],
)
def test_left_alone(pad, conv, reason):
    check_left_alone(NAME, net(None, pad, conv), reason)


def test_paddings_that_are_fed_are_left_alone():
    graph = net(None, {})
    graph.inputs = ("x", "paddings")
    check_left_alone(NAME, graph, because("paddings-not-constant", pad="pad"))


GRAPHS = [Example(NAME, lambda: net(None, {}), BAR, golden="pad")]
