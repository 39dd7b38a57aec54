"""MirrorPad and Conv2D become one op."""

from tests.differential.case import Case
from tests.differential.cases.fuse_resize_pad_and_conv import ONE_FUSION, net, plain_padding

NAME = "fuse_pad_and_conv"

CASES = [
    Case("both", net(None, {}), NAME, tolerance=ONE_FUSION),
    Case("SAME", net(None, {}, padding="SAME"), NAME, tolerance=ONE_FUSION),
    Case("strides", net(None, {}, strides=(1, 1, 2, 1)), NAME, tolerance=ONE_FUSION),
    Case("SYMMETRIC", net(None, {"mode": "SYMMETRIC"}), NAME, tolerance=ONE_FUSION),
    Case("resizing before", net({}, {}), NAME, tolerance=ONE_FUSION),
    Case("Pad", plain_padding, NAME),
    Case("a convolution alone", net(), NAME),
]  # fmt: skip
