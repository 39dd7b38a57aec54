"""How large a photo is, as the head of its file says."""

import struct

from deploykit.transforms.core.errors import GraphError

HEAD = 1 << 18  # bytes that are read of a file; what cameras write ahead of the size fits
MOST_PIXELS = (1 << 29) // 3  # TensorFlow makes no more than 512 MiB of an image; a pixel has 3
_ALONE = frozenset({0x01, *range(0xD0, 0xDA)})  # markers of a JPEG that have no length
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def too_large(content: bytes) -> GraphError | None:
    """Return the error for an image that would be larger than any that is decoded, or None.

    The head says it, before any room is made for pixels.
    """
    size = size_of(content[:HEAD])
    if size is None or size[0] * size[1] <= MOST_PIXELS:
        return None
    most = MOST_PIXELS // 10**6
    return GraphError("image-pixels", width=size[0], height=size[1], most=most)


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return width and height of a JPEG, PNG, BMP or GIF; None: the head does not say it."""
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
    """Go from marker to marker until the one that begins the picture."""
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
        if marker == 0xFF:  # a filling byte
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", head, at + 2)[0]
