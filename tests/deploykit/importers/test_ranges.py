"""Ranges as people write them, and what a byte becomes in them."""

import numpy as np
import pytest

from deploykit.importers.image_range import BYTES, SIGNED, UNIT, PhotoRange, range_from


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0..1", UNIT), ("-1..1", SIGNED), ("0..255", BYTES),
        (" -0.5..0.5 ", PhotoRange(-0.5, 0.5)),
        ("-128..127", PhotoRange(-128, 127)), (".5..1", None), ("0.5..1", PhotoRange(0.5, 1)),
        ("1..0", None), ("0..0", None), ("0...1", None), ("0.1", None), ("..1", None), ("", None),
        ("a..b", None), ("0..1.json", None), ("nan..1", None),
    ],
)  # fmt: skip
def test_ranges(text, expected):
    assert range_from(text) == expected


@pytest.mark.parametrize("each", [UNIT, SIGNED, BYTES, PhotoRange(-128, 127)], ids=str)
def test_black_and_white_become_the_ends(each):
    values = np.array([0, 255]) * each.scale - (each.mean or (0,))
    np.testing.assert_allclose(values, each, atol=1e-12)
    assert range_from(str(each)) == each
