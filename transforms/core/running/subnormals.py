"""Numbers so near to zero that they have fewer digits: TensorFlow's ops take and give 0 for them.

It sets its threads to flush them (FTZ and DAZ), which NumPy does not; so a graph with such numbers
is not computed here. Those of float16 count as others do: TensorFlow computes with float32.
"""

import functools
from typing import Any

import numpy as np

from deploykit.transforms.core.tensors import Array

_AT_ONCE = 1 << 16  # numbers that stay in the processor's cache

# Type: the unsigned type of the same size, and all bits of the fraction.
_FRACTIONS: dict[str, tuple[Any, int]] = {
    "float32": (np.uint32, (1 << 23) - 1),
    "float64": (np.uint64, (1 << 52) - 1),
    "bfloat16": (np.uint16, (1 << 7) - 1),
}


def has_subnormals(array: Array) -> bool:
    """Say whether an array holds numbers that TensorFlow takes for 0, in one pass."""
    if array.dtype.kind == "c":
        return has_subnormals(array.real) or has_subnormals(array.imag)
    unsigned, fraction = _fraction_of(array.dtype)
    if not fraction or not array.size:
        return False
    bits = array.view(unsigned)
    without_sign = unsigned(2 ** (8 * bits.itemsize - 1) - 1)
    parts: Any = [bits.reshape(-1)]
    if bits.size > _AT_ONCE:
        parts = np.nditer(bits, ["external_loop", "buffered"], buffersize=_AT_ONCE)
    # An exponent of 0 with a fraction that is not: 0 itself wraps around to the largest number.
    return any(((part & without_sign) - unsigned(1) < unsigned(fraction)).any() for part in parts)


@functools.lru_cache
def _fraction_of(dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Return what `_FRACTIONS` has of a type; a fraction of 0: nothing."""
    return _FRACTIONS.get(dtype.name, (None, 0))  # NumPy makes the name again each time


def refuse_subnormals(*arrays: Array) -> None:
    """Raise NotImplementedError where TensorFlow would take a number for 0 that NumPy does not."""
    if any(map(has_subnormals, arrays)):
        raise NotImplementedError("numbers that TensorFlow takes for 0")
