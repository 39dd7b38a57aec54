"""An image file to ask a server with, where no image is given."""

import struct

import numpy as np


def random_bmp(height: int, width: int) -> bytes:
    """Return random pixels as a BMP file of 24 bits."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width * 3), dtype=np.uint8)
    rows = np.zeros((height, -(-width * 3 // 4) * 4), np.uint8)
    rows[:, : width * 3] = pixels
    sizes = b"BM", 54 + rows.size, 0, 0, 54, 40, width, height, 1, 24, 0, rows.size, 0, 0, 0, 0
    return struct.pack("<2sIHHIIiiHHIIiiII", *sizes) + rows.tobytes()
