"""An array of pixels as the bytes of a PNG file, so that it is taken as any image is."""

import struct
import zlib

import numpy as np

from deploykit.transforms.core.errors import GraphError
from deploykit.transforms.core.tensors import Array

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_QUICK = 1  # of the levels of zlib


def png(pixels: Array) -> bytes:
    """Return an image [height, width] or [height, width, 1, 3 or 4] without loss.

    GraphError: it has another shape, or holds anything but whole numbers from 0 to 255.
    """
    rows = pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels
    if rows.ndim != 3 or rows.shape[2] not in _COLOUR_TYPES or not rows.size:
        raise GraphError("image-shape-not-writable", shape=pixels.shape)
    with np.errstate(invalid="ignore"):  # of NaN and Inf, which are refused below
        whole = rows.astype(np.uint8) if rows.dtype.kind in "uif" else None
    if whole is None or not np.array_equal(whole, rows):
        raise GraphError("image-values-not-pixels", dtype=rows.dtype)
    height, width, channels = rows.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    unfiltered = np.zeros((height, 1), np.uint8)
    data = np.hstack([unfiltered, whole.reshape(height, -1)]).tobytes()
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(data, _QUICK)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
