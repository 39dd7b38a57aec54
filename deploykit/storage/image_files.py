"""Image files: formats, sizes from headers, checks, PNG encoding, and files of class names."""

import functools
import os
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import FileError, GraphError, counts_differ
from deploykit.transforms.ir.ops import other_release
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.untrusted.files import read_bytes, read_text


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


START_BYTES = 12
"""The number of bytes that tell the format of a file."""


@dataclass(frozen=True)
class ImageFormat:
    """An image format."""

    name: str
    ends: tuple[str, ...]
    start: bytes
    """A regular expression for the first bytes, in which `.` matches all bytes."""
    op: str = ""
    """The op that decodes it, if not all releases of TensorFlow have it."""
    magic: bytes = b""
    """Bytes by which TensorFlow tells the format, if these are fewer."""


FORMATS = (
    ImageFormat("JPEG", (".jpg", ".jpeg", ".jpe", ".jfif"), rb"\xff\xd8\xff"),
    ImageFormat("PNG", (".png",), rb"\x89PNG\r\n\x1a\n"),
    ImageFormat("GIF", (".gif",), rb"GIF8[79]a", magic=b"GIF8"),
    # A text may begin with BM, so the reserved bytes count too.
    ImageFormat("BMP", (".bmp",), rb"BM.{4}\0{4}", magic=b"BM"),
    ImageFormat("WebP", (".webp",), rb"RIFF.{4}WEBP", "DecodeWebP"),
    ImageFormat("JPEG XL", (".jxl",), rb"\xff\x0a|\0{3}\x0cJXL \r\n\x87\n", "DecodeJxl"),
)


@functools.cache
def image_formats() -> tuple[ImageFormat, ...]:
    """Return the formats that the installed TensorFlow decodes."""
    return tuple(each for each in FORMATS if not (each.op and other_release(each.op)))


@functools.cache
def image_ends() -> tuple[str, ...]:
    """Return the file name extensions of images, in lower case."""
    return tuple(end for each in image_formats() for end in each.ends)


@functools.cache
def _start() -> re.Pattern[bytes]:
    return re.compile(b"|".join(each.start for each in image_formats()), re.DOTALL)


def is_image_content(content: bytes) -> bool:
    """Return whether bytes begin like an image that the installed TensorFlow decodes."""
    return _start().match(content) is not None


def format_name(content: bytes) -> str:
    """Return the name of the format as which TensorFlow decodes bytes; empty: as none."""
    starts = ((each.name, each.magic or each.start) for each in FORMATS)
    return next((name for name, start in starts if re.match(start, content, re.DOTALL)), "")


HEAD = 1 << 18  # bytes read from a file; enough for the metadata that cameras write first
MAX_PIXELS = (1 << 29) // 3  # TensorFlow decodes at most 512 MiB; a pixel has 3 bytes
_MARKER = re.compile(rb"\xff+[^\x00\xff\xd0-\xd7]")  # in entropy-coded data: no stuffing, no RST
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # SOF markers, which contain the image size
_ALONE = {0x01, *range(0xD0, 0xD8)}  # markers without a segment
_SCAN, _END = 0xDA, 0xD9
_PNG = b"\x89PNG\r\n\x1a\n"
_SIDES = {"PNG": (">II", 16), "GIF": ("<HH", 6), "BMP": ("<ii", 18)}
"""The format and the offset of width and height in a header."""
_CODESTREAM = b"\xff\x0a"  # of JPEG XL
_ANIMATED = 2  # in the flags of an extended WebP
_SIDE_BITS = (9, 13, 18, 30)
_RATIOS = ((), (1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))  # width to height
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_QUICK = 1  # zlib's fastest level


def undecodable(content: bytes) -> GraphError | None:
    """Return the error for an image above the pixel limit or an animated WebP, or None.

    The file header states the size, so no memory is allocated for pixels. TensorFlow 2.21 writes
    four channels of an animated WebP into the memory of the three that it has.
    """
    is_extended = content[12:16] == b"VP8X" and format_name(content) == "WebP"
    if is_extended and any(flags & _ANIMATED for flags in content[20:21]):
        return GraphError("image-animated")
    size = size_of(content[:HEAD])
    if size is None or size[0] * size[1] <= MAX_PIXELS:
        return None
    most = MAX_PIXELS // 10**6
    return GraphError("image-pixels", width=size[0], height=size[1], most=most)


def size_of(head: bytes) -> tuple[int, int] | None:
    """Return width and height of an image in any known format; None if the header has no size."""
    name = format_name(head)
    try:
        if name in _SIDES:
            form, place = _SIDES[name]
            width, height = struct.unpack_from(form, head, place)
            return (width, abs(height)) if width > 0 and height else None
        if name == "JPEG":
            return _size_and_problem_of_jpeg(head, only_size=True)[0]
        if name == "WebP":
            return _size_of_webp(head)
        return _size_of_jpeg_xl(head) if name else None
    except struct.error:
        return None


def _size_of_webp(head: bytes) -> tuple[int, int] | None:
    """Return the size in the first chunk: lossy, lossless, or the canvas of an extended file."""
    kind = head[12:16]
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", head, 26))
        return (width, height) if width and height else None
    if kind == b"VP8L" and head[20:21] == b"\x2f":
        bits = struct.unpack_from("<I", head, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8X" and len(head) >= 30:
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    return None


def _size_of_jpeg_xl(head: bytes) -> tuple[int, int] | None:
    """Return the size at the start of the codestream, which may be in a container of boxes."""
    at = 0
    while head[at : at + 2] != _CODESTREAM:
        length, kind = struct.unpack_from(">I4s", head, at)
        start = at + 8
        if length == 1:
            length, start = struct.unpack_from(">Q", head, start)[0], start + 8
        if kind in (b"jxlc", b"jxlp"):
            at = start + 4 * (kind == b"jxlp")  # a part begins with its number
            if head[at : at + 2] != _CODESTREAM:
                return None
        elif length < 8:
            return None
        else:
            at += length
    bits = int.from_bytes(head[at + 2 : at + 14], "little")

    def read(count: int) -> int:
        nonlocal bits
        value, bits = bits & ((1 << count) - 1), bits >> count
        return value

    def side(is_small: bool) -> int:
        return 8 * (read(5) + 1) if is_small else read(_SIDE_BITS[read(2)]) + 1

    if len(head) < at + 5:
        return None
    is_small = bool(read(1))
    height = side(is_small)
    ratio = _RATIOS[read(3)]
    return (height * ratio[0] // ratio[1] if ratio else side(is_small)), height


def image_problem(content: bytes) -> str:
    """Return why the bytes are not a complete image that TensorFlow decodes, or an empty text."""
    if refused := undecodable(content):
        return str(refused)
    name, known = format_name(content), [each.name for each in image_formats()]
    if name not in known:
        return f"not a {', '.join(known[:-1])} or {known[-1]} image"
    if name == "JPEG":
        return _size_and_problem_of_jpeg(content)[1]
    if name == "PNG":
        return _png_problem(content)
    if name == "GIF":
        is_whole = len(content) > 13 and content.rstrip(b"\0").endswith(b";")
    elif name == "BMP":
        is_whole = len(content) > 54 and struct.unpack_from("<I", content, 2)[0] <= len(content)
    elif name == "WebP":
        is_whole = 12 < struct.unpack_from("<I", content, 4)[0] <= len(content) - 8
    else:
        is_whole = size_of(content) is not None
    return "" if is_whole else f"the {name} is truncated"


def _size_and_problem_of_jpeg(
    content: bytes, only_size: bool = False
) -> tuple[tuple[int, int] | None, str]:
    """Return the size in the header of a frame, and why the image is not complete.

    With `only_size`, what follows the first frame header is not looked at.
    """
    place = 2
    size: tuple[int, int] | None = None
    while True:
        marker = content[place + 1 : place + 2]
        if content[place : place + 1] != b"\xff":
            is_cut = place >= len(content)
            reason = "is truncated" if is_cut else f"has no marker at byte {place}"
            return size, f"the JPEG {reason}"
        if not marker:
            return size, "the JPEG is truncated"
        code = marker[0]
        if code == 0xFF:  # a fill byte
            place += 1
        elif code in _ALONE:
            place += 2
        elif code == _END:
            return size, "" if size and all(size) else "the JPEG has no size"
        else:
            if len(content) < place + 4:
                return size, "the JPEG is truncated"
            length = struct.unpack_from(">H", content, place + 2)[0]
            if code in _FRAMES and length >= 8 and len(content) >= place + 9:
                height, width = struct.unpack_from(">HH", content, place + 5)
                size = width, height
                if only_size:
                    return size, ""
            place += 2 + length
            if place > len(content) or length < 2:
                reason = "is truncated" if length >= 2 else "has an invalid segment"
                return size, f"the JPEG {reason}"
            if code == _SCAN:
                match = _MARKER.search(content, place)
                if match is None:
                    return size, "the JPEG is truncated: it has no end marker"
                place = match.end() - 2


def _png_problem(content: bytes) -> str:
    place = len(_PNG)
    while place + 12 <= len(content):
        length = struct.unpack_from(">I", content, place)[0]
        end = place + 8 + length
        if end + 4 > len(content):
            break
        kind = content[place + 4 : place + 8]
        if zlib.crc32(content[place + 4 : end]) != struct.unpack_from(">I", content, end)[0]:
            return f"the PNG has an invalid checksum at byte {place}"
        if place == len(_PNG) and kind != b"IHDR":
            return "the PNG has no header"
        if kind == b"IEND":
            return ""
        place = end + 4
    return "the PNG is truncated"


def read_image(path: str) -> tuple[bytes, str]:
    """Return the content of a file, and why it cannot be an image: it is unreadable, or empty."""
    try:
        content = read_bytes(path)
    except FileError as error:
        return b"", str(error).removeprefix(f"{path:.300}: ")
    return content, "" if content else "the file is empty"


def decoded(content: bytes, channels: int = 0) -> Array:
    """Return the pixels of an image, uint8 [height, width, channels]; of an animation, the first.

    0 channels means the number in the file. GraphError: there are too many pixels; TensorFlow may
    raise an OpError.
    """
    import tensorflow as tf

    if refused := undecodable(content):
        raise refused
    with tf.init_scope():
        array: Array = tf.io.decode_image(content, channels, expand_animations=False).numpy()
    return array


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
    return _PNG + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )
