"""ResizeBilinear and Conv2D become one op, with a padding of nothing in between."""

from tests.differential.case import Case
from tests.differential.cases.fuse_resize_pad_and_conv import ONE_FUSION, net

NAME = "fuse_resize_and_conv"

CASES = [
    Case("both", net({}), NAME, tolerance=ONE_FUSION),
    Case("SAME", net({}, padding="SAME", weights=(3, 3, 2, 4)), NAME, tolerance=ONE_FUSION),
    Case("strides", net({}, strides=(1, 2, 2, 1)), NAME, tolerance=ONE_FUSION),
    Case("align_corners", net({"align_corners": True}), NAME, tolerance=ONE_FUSION),
    Case("padding in between", net({}, {}), NAME),
    Case("a convolution alone", net(), NAME),
]  # fmt: skip
