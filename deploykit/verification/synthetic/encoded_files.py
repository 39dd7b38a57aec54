"""Small encoded files with random content: images, audio, and a tf.train.Example."""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping

import numpy as np

from deploykit.storage import image_files
from deploykit.transforms.ir.protos import Example
from deploykit.transforms.ir.tensors import Array

SIDE = 96  # pixels per side of an image
SOUND = 16000  # samples: one second at the usual rate of speech models


def png(random: "np.random.Generator") -> bytes:
    """Return an RGB image as PNG."""
    return image_files.png(_pixels(random))


def bmp(random: "np.random.Generator") -> bytes:
    """Return an image as BMP with 24 bits per pixel."""
    body = _pixels(random).tobytes()
    head = struct.pack("<IiiHHIIiiII", 40, SIDE, SIDE, 1, 24, 0, len(body), 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(body), 0, 0, 54) + head + body


def gif(random: "np.random.Generator") -> bytes:
    """Return an image as GIF with 128 colors.

    Each code has eight bits, because a clear code precedes the point at which codes get longer.
    """
    colours = random.integers(0, 256, (128, 3), np.uint8).tobytes()
    codes = random.integers(0, 128, (SIDE * SIDE // 64, 64), np.uint8)
    clear, end = 128, 129
    data = np.insert(codes, 0, clear, axis=1).tobytes() + bytes([end])
    blocks = (data[start : start + 255] for start in range(0, len(data), 255))
    size = struct.pack("<HH", SIDE, SIDE)
    return b"".join((
        b"GIF89a", size, b"\xf6\0\0", colours, b",\0\0\0\0", size, b"\0\x07",
        *(bytes([len(block)]) + block for block in blocks), b"\0;",
    ))  # fmt: skip


def jpeg(random: "np.random.Generator") -> bytes:
    """Return an image as JPEG, in which each 8x8 block has one color.

    Each block only stores its mean, as the difference from the previous block: four bits for the
    number of following bits, and one bit for the end of the block.
    """
    means = random.integers(-100, 101, ((SIDE // 8) ** 2, 3))
    steps = np.diff(means, axis=0, prepend=0)
    bits = []
    for step in steps.ravel().tolist():
        size = abs(step).bit_length()
        rest = step if step >= 0 else step + (1 << size) - 1
        bits.append(f"{size:04b}{rest:0{size}b}0" if size else "00000")
    written = "".join(bits)
    written += "1" * (-len(written) % 8)
    data = int(written, 2).to_bytes(len(written) // 8, "big").replace(b"\xff", b"\xff\0")
    frame = struct.pack(">BHHB", 8, SIDE, SIDE, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    segments = (
        (0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
        (0xDB, b"\0" + bytes([8]) * 64),
        (0xC0, frame),
        (0xC4, b"\0" + bytes([0, 0, 0, 9, *[0] * 12]) + bytes(range(9))),  # nine 4-bit codes
        (0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"),
        (0xDA, b"\3\1\0\2\0\3\0\0\x3f\0"),
    )
    headers = b"".join(
        struct.pack(">BBH", 0xFF, kind, len(body) + 2) + body for kind, body in segments
    )
    return b"\xff\xd8" + headers + data + b"\xff\xd9"


def wav(random: "np.random.Generator", samples: int = SOUND, channels: int = 1) -> bytes:
    """Return audio as WAV with 16 bits per sample at 16 kHz."""
    body = random.integers(-(2**15), 2**15, samples * channels).astype("<i2").tobytes()
    form = struct.pack("<HHIIHH", 1, channels, SOUND, 2 * channels * SOUND, 2 * channels, 16)
    inside = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    inside += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inside)) + inside


def example(features: Mapping[str, Array]) -> bytes:
    """Return a serialized tf.train.Example from values by name: strings, integers or floats."""
    result = Example()
    for name, array in features.items():
        feature, values = result.features.feature[name], array.ravel().tolist()
        if array.dtype.kind == "O":
            feature.bytes_list.value.extend(values)
        elif array.dtype.kind == "f":
            feature.float_list.value.extend(values)
        else:
            feature.int64_list.value.extend(values)
    return bytes(result.SerializeToString(deterministic=True))


def compressed(content: bytes, kind: str) -> bytes:
    """Compress bytes for DecodeCompressed; `kind` is ZLIB, GZIP or empty."""
    if not kind:
        return content
    packer = zlib.compressobj(1, wbits=31 if kind == "GZIP" else 15)
    return packer.compress(content) + packer.flush()


def web_base64(content: bytes) -> bytes:
    """Encode bytes for DecodeBase64: web-safe base64 without padding."""
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def _pixels(random: "np.random.Generator") -> Array:
    return random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)


PICTURES: Mapping[str, Callable[["np.random.Generator"], bytes]] = {
    "DecodeAndCropJpeg": jpeg,
    "DecodeBmp": bmp,
    "DecodeGif": gif,
    "DecodeImage": png,
    "DecodeJpeg": jpeg,
    "DecodePng": png,
    "ExtractJpegShape": jpeg,
}
