"""Whether an image file is whole, judged by its structure: no pixel is decoded.

A file that is cut short, or is something else, is found, and so is a segment that is broken; bits
that flipped among the coefficients of a JPEG are not, which TensorFlow's decoder lets pass as well.
"""

import re
import struct
import zlib

from deploykit.photos.image_files import too_large

ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")

_PNG = b"\x89PNG\r\n\x1a\n"
_MARKER = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]")  # among coefficients: neither stuffed nor RST
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers that begin with sizes
_ALONE = {0x01, *range(0xD0, 0xD8)}  # markers without a segment
_SCAN, _END = 0xDA, 0xD9


def image_problem(content: bytes) -> str:
    """Say in a phrase what is wrong with the bytes of a JPEG, PNG, BMP or GIF file, or nothing."""
    if not content:
        return "the file is empty"
    if refused := too_large(content):
        return str(refused)
    if content.startswith(b"\xff\xd8\xff"):
        return _jpeg_problem(content)
    if content.startswith(_PNG):
        return _png_problem(content)
    if content.startswith(b"GIF8"):
        whole = content.rstrip(b"\0").endswith(b"\x3b") and len(content) > 13
        return "" if whole else "the GIF is cut short"
    if content.startswith(b"BM"):
        size = struct.unpack_from("<I", content, 2)[0] if len(content) > 54 else len(content) + 1
        return "" if size <= len(content) else "the BMP is cut short"
    return "this is no JPEG, PNG, BMP or GIF image"


def _jpeg_problem(content: bytes) -> str:
    place, sized = 2, False
    while True:
        marker = content[place + 1 : place + 2]
        if content[place : place + 1] != b"\xff":
            return _cut("JPEG", place, content) or f"the JPEG has no marker at byte {place}"
        if not marker:
            return "the JPEG is cut short"
        code = marker[0]
        if code == 0xFF:  # a filler
            place += 1
        elif code in _ALONE:
            place += 2
        elif code == _END:
            return "" if sized else "the JPEG has no size"
        else:
            if len(content) < place + 4:
                return "the JPEG is cut short"
            length = struct.unpack_from(">H", content, place + 2)[0]
            if code in _FRAMES and length >= 8 and len(content) > place + 9:
                height, width = struct.unpack_from(">HH", content, place + 5)
                sized = height > 0 and width > 0
            place += 2 + length
            if place > len(content) or length < 2:
                return "the JPEG is cut short" if length >= 2 else "the JPEG has a broken segment"
            if code == _SCAN:
                found = _MARKER.search(content, place)
                if found is None:
                    return "the JPEG is cut short: it has no end marker"
                place = found.end() - 2


def _png_problem(content: bytes) -> str:
    place = len(_PNG)
    while place + 12 <= len(content):
        length = struct.unpack_from(">I", content, place)[0]
        end = place + 8 + length
        if end + 4 > len(content):
            break
        kind = content[place + 4 : place + 8]
        if zlib.crc32(content[place + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
            return f"the PNG has a wrong checksum at byte {place}"
        if place == len(_PNG) and kind != b"IHDR":
            return "the PNG has no header"
        if kind == b"IEND":
            return ""
        place = end + 4
    return "the PNG is cut short"


def _cut(kind: str, place: int, content: bytes) -> str:
    return f"the {kind} is cut short" if place >= len(content) else ""
