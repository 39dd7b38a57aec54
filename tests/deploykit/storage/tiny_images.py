"""Whole images of 7x5 pixels in formats that TensorFlow does not encode, and their sizes.

The bytes were written once with Pillow, and the JPEG XL image with libjxl.
"""

import base64
import struct

from tests.deploykit.client.test_label_image import PIXELS, encoded

WEBP = {
    "lossy": base64.b64decode(
        "UklGRjIAAABXRUJQVlA4ICYAAACwAQCdASoHAAUAAUAmJaQAAudaEWXAAP732F4/rLghvM973i4AAA=="
    ),
    "lossless": base64.b64decode(
        "UklGRiwAAABXRUJQVlA4TB8AAAAvBgABAM1lRP8DCtq2Ydo9MOMP8TMY/xGICZCDMnkBAA=="
    ),
    "extended": base64.b64decode(
        "UklGRm4AAABXRUJQVlA4WAoAAAAQAAAABgAABAAAQUxQSBkAAAABuYzof0BR2zZQf8VT/vSujUHEBEwAkpUXAFZQ"
        "OCAuAAAAsAEAnQEqBwAFAAFAJiWkAALmnH35AAD+9cD/MslpN1GLizt7HP98nrqW14uAAA=="
    ),
}
JPEG_XL = base64.b64decode("/wr6HwGRCAYBAGAASzgkunkeVbaSBu95EXDn0e7ABz2ShAMA")
"""An image of 1024x1024 pixels."""
GREY = {
    "GIF": base64.b64decode("R0lGODdhBAAEAIEAAAcHBwAAAAAAAAAAACwAAAAABAAEAAAICQABCBxIsCCAgAA7"),
    "GIF of several frames": base64.b64decode(
        "R0lGODlhBAAEAIEAAAcHBwAAAAAAAAAAACH5BAAKAAAALAAAAAAEAAQAAAgJAAEIHEiwIICAACH5BAEKAAEALAAAAAAE"
        "AAQAgQkJCQAAAAAAAAAAAAgJAAEIHEiwIICAACH5BAEKAAEALAAAAAAEAAQAgcjIyAAAAAAAAAAAAAgJAAEIHEiwIICA"
        "ADs="
    ),
    "WebP": base64.b64decode("UklGRh4AAABXRUJQVlA4TBEAAAAvA8AAAAfQgx70oP+BiOh/AAA="),
}
"""Images of 4x4 pixels whose channels are 7; later frames have other values."""
ANIMATED_WEBP = base64.b64decode(
    "UklGRogAAABXRUJQVlA4WAoAAAACAAAAAwAAAwAAQU5JTQYAAAAAAAAAAABBTk1GKgAAAAAAAAAAAAMAAAMAAGQAAAJWUDhM"
    "EQAAAC8DwAAAB9CDHvSg/4GI6H8AAEFOTUYqAAAAAAAAAAAAAwAAAwAAZAAAAFZQOEwRAAAALwPAAAAH0IQmNKH/gYjofwAA"
)
"""TensorFlow 2.21 writes beyond its memory when it decodes this one: do not let it."""
AVIF = base64.b64decode(
    "AAAAIGZ0eXBhdmlmAAAAAGF2aWZtaWYxbWlhZk1BMUIAAADrbWV0YQAAAAAAAAAhaGRscgAAAAAAAAAAcGljdAAAAAAAAAAA"
    "AAAAAAAAAAAOcGl0bQAAAAAAAQAAAB5pbG9jAAAAAEQAAAEAAQAAAAEAAAETAAAAFwAAAChpaW5mAAAAAAABAAAAGmluZmUC"
    "AAAAAAEAAGF2MDFDb2xvcgAAAABqaXBycAAAAEtpcGNvAAAAFGlzcGUAAAAAAAAABAAAAAQAAAAQcGl4aQAAAAADCAgIAAAA"
    "DGF2MUOBAAwAAAAAE2NvbHJuY2x4AAEADQAGgAAAABdpcG1hAAAAAAAAAAEAAQQBAoMEAAAAH21kYXQSAAoIGAR9ggIaDQgy"
    "CRAAAAAHyCS6Pg=="
)
"""An image of a format that TensorFlow does not decode."""
TIFF = b"II*\0\x08\0\0\0" + bytes(40)


def webp_head(kind: bytes, width: int, height: int) -> bytes:
    """Return the first bytes of a WebP image of a size, in one of its three kinds."""
    if kind == b"VP8 ":
        body = bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        sides = ((side - 1).to_bytes(3, "little") for side in (width, height))
        body = bytes(4) + b"".join(sides)
    chunk = kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def jpeg_xl_head(width: int, height: int, boxed: bool = False) -> bytes:
    """Return the first bytes of a JPEG XL image of a size, which may be in a container."""
    bits, used = 0, 1  # the first bit: the sides are no multiples of 8

    def put(value: int, count: int) -> None:
        nonlocal bits, used
        bits, used = bits | value << used, used + count

    for number, side in enumerate((height, width)):
        choice = next(n for n, size in enumerate((9, 13, 18, 30)) if side <= 1 << size)
        put(choice, 2)
        put(side - 1, (9, 13, 18, 30)[choice])
        if not number:
            put(0, 3)  # no ratio: the width follows
    stream = b"\xff\x0a" + bits.to_bytes(12, "little")
    if not boxed:
        return stream
    boxes = b"\0\0\0\x0cJXL \r\n\x87\n" + b"\0\0\0\x14ftypjxl \0\0\0\0jxl "
    return boxes + struct.pack(">I4s", 8 + len(stream), b"jxlc") + stream


def decodable() -> dict[str, bytes]:
    """Return an image in each format that TensorFlow decodes, by an extension."""
    kinds = {kind: encoded(kind, PIXELS) for kind in ("png", "jpeg", "gif", "bmp")}
    return {**kinds, "jpg": kinds["jpeg"], "jfif": kinds["jpeg"], "webp": WEBP["lossy"],
            "jxl": JPEG_XL}  # fmt: skip
