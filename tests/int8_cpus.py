"""What int8 tests need of the CPU."""

import pytest

from deploykit.transforms.int8.int8_kernels import sums_exactly

needs_exact_sums = pytest.mark.skipif(
    not sums_exactly("auto"), reason="this CPU adds int8 products in pairs, which saturate"
)
"""For numbers of int8 layers of 8-bit weights, which hold where products are summed exactly."""
