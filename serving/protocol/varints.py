"""Whole numbers as protobuf writes them: 7 bits a byte, lowest first; bit 8 says more follow."""

import numpy as np

from deploykit.transforms.core.tensors import Array


def varint(number: int) -> bytes:
    """Return one number that is not negative."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def varints(numbers: Array) -> bytes:
    """Return the numbers of an array; those below zero take ten bytes."""
    bits = numbers.astype(np.int64).view(np.uint64)
    largest = int(bits.max(initial=0))
    bits = bits.astype(np.min_scalar_type(largest))
    width = -(-largest.bit_length() // 7)
    if width <= 1:
        return bits.tobytes()
    rest = bits[:, np.newaxis] >> np.arange(0, 7 * width, 7, dtype=bits.dtype)
    used = rest > 0
    written = (rest & 0x7F).astype(np.uint8)
    written[:, :-1] |= used[:, 1:].view(np.uint8) << 7
    used[:, 0] = True
    return written[used].tobytes()
