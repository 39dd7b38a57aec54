"""Image files: sizes from their headers, PNG encoding, and files of class names."""

import os
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from deploykit.transforms.common.errors import GraphError, counts_differ
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import read_text


def labels_from(labels: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    """Return class names; a path is read with `read_labels`."""
    return read_labels(labels) if isinstance(labels, str | os.PathLike) else list(labels)


def read_labels(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a file: line n is the name of class n. GraphError: the file is empty."""
    text = read_text(path, "file with a label on each line")
    lines = [line.strip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise GraphError("file-empty", source=path, expected="a label on each line")
    return lines


def check_labels(labels: Sequence[str], scores: int, output: str) -> None:
    """Raise GraphError if there are labels, but not one for each score of an output."""
    if labels and len(labels) != scores:
        raise counts_differ("labels", len(labels), scores, "scores")


HEAD = 1 << 18  # bytes read from a file; enough for the metadata that cameras write first
MAX_PIXELS = (1 << 29) // 3  # TensorFlow decodes at most 512 MiB; a pixel has 3 bytes
_ALONE = frozenset({0x01, *range(0xD0, 0xDA)})  # JPEG markers without a length
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_QUICK = 1  # zlib's fastest level


def too_large(content: bytes) -> GraphError | None:
    """Return the error for an image above the pixel limit, or None.

    The file header states the size, so no memory is allocated for pixels.
    """
    size = size_of(content[:HEAD])
    if size is None or size[0] * size[1] <= MAX_PIXELS:
        return None
    most = MAX_PIXELS // 10**6
    return GraphError("image-pixels", width=size[0], height=size[1], most=most)


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return width and height of a JPEG, PNG, BMP or GIF; None if the header has no size."""
    try:
        if head.startswith(b"\x89PNG"):
            width, height = struct.unpack_from(">II", head, 16)
        elif head.startswith(b"GIF8"):
            width, height = struct.unpack_from("<HH", head, 6)
        elif head.startswith(b"BM"):
            width, height = struct.unpack_from("<ii", head, 18)
        else:
            return _size_of_jpeg(head)
    except struct.error:
        return None
    return (width, abs(height)) if width > 0 and height else None


def _size_of_jpeg(head: bytes) -> tuple[int, int] | None:
    """Follow the JPEG markers to the frame header, which contains the size."""
    if not head.startswith(b"\xff\xd8"):
        return None
    at = 2
    while True:
        first, marker = struct.unpack_from(">BB", head, at)
        if first != 0xFF:
            return None
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", head, at + 2)[0]


def png(pixels: Array) -> bytes:
    """Encode an image [height, width] or [height, width, 1, 3 or 4] as PNG.

    GraphError: it has another shape, or values other than integers from 0 to 255.
    """
    rows = pixels[:, :, np.newaxis] if pixels.ndim == 2 else pixels
    if rows.ndim != 3 or rows.shape[2] not in _COLOUR_TYPES or not rows.size:
        raise GraphError("image-shape-not-writable", shape=pixels.shape)
    with np.errstate(invalid="ignore"):  # NaN and Inf are refused below
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
