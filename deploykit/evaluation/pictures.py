"""Thumbnails of samples as data URIs, to show the images on which models disagree."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from deploykit.records.images import Decoder
from deploykit.storage.image_files import png
from deploykit.transforms.ir.tensors import Array

SIDE = 96
"""Maximum height and width of a thumbnail in pixels."""
BYTES = 3000
"""Maximum size of a thumbnail in bytes; base64 adds a third."""
_QUALITIES = (80, 60, 40, 25)  # of a JPEG
_RANGES = ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0))


def photo_like(array: Array) -> bool:
    """Return whether the samples of an array can be images.

    Images are [samples, height, width, 1 or 3] or [samples, 1 or 3, height, width].
    """
    return _as_rows(array) is not None


def pictures(photos: Sequence[bytes | Array], span: tuple[float, float] | None) -> list[str | None]:
    """Return a thumbnail of each image, at most 96 pixels high and wide; None: not an image.

    Args:
        photos: bytes of files, or arrays [height, width, 1 or 3].
        span: the values of black and white in arrays that are not uint8.

    Call it in a child process, as it may start TensorFlow.
    """
    return [_picture(photo, span) for photo in photos]


def span_of(array: Array) -> tuple[float, float]:
    """Return the values of black and white in an array of images, estimated from its range."""
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    if not finite.size:
        return _RANGES[0]
    low, high = float(finite.min()), float(finite.max())
    fits = [range_ for range_ in _RANGES if range_[0] <= low and high <= range_[1]]
    return fits[0] if fits else (low, high)


def _as_rows(array: Array) -> Array | None:
    """Return images with their channels last; None: not images."""
    if array.ndim != 4 or array.dtype.kind not in "uif" or not array.size:
        return None
    if array.shape[3] in (1, 3):
        return array
    return np.moveaxis(array, 1, 3) if array.shape[1] in (1, 3) else None


def samples_as_photos(array: Array, places: Sequence[int]) -> list[Array]:
    """Return some samples of an array that is `photo_like`, [height, width, 1 or 3]."""
    rows = _as_rows(array)
    assert rows is not None
    return [np.asarray(rows[place]) for place in places]


def _picture(photo: bytes | Array, span: tuple[float, float] | None) -> str | None:
    pixels: Any = Decoder().decode([photo])[0] if isinstance(photo, bytes) else photo
    if isinstance(pixels, str):
        return None
    if pixels.dtype != np.uint8:
        low, high = span or span_of(pixels)
        shares = (pixels.astype(np.float64) - low) / (high - low or 1)
        pixels = np.clip(np.nan_to_num(shares) * 255, 0, 255).round().astype(np.uint8)
    side, channels = SIDE, pixels.shape[2]
    pixels = pixels[:, :, : 1 if channels == 2 else min(channels, 3)]
    while side:
        small = shrunk(pixels, side)
        content = png(small)
        if len(content) <= BYTES:
            return _uri("png", content)
        for quality in _QUALITIES:
            content = _jpeg(small, quality)
            if len(content) <= BYTES:
                return _uri("jpeg", content)
        side //= 2
    return None


def shrunk(pixels: Array, most: int) -> Array:
    """Return pixels, uint8, downscaled by area means so that no side exceeds `most` pixels."""
    longest = max(*pixels.shape[:2], most)
    height, width = (max(1, round(size * most / longest)) for size in pixels.shape[:2])
    result = pixels.astype(np.float64)
    for axis, size in ((0, height), (1, width)):
        ends = np.arange(size + 1) * result.shape[axis] // size
        counts = np.diff(ends).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
        result = np.add.reduceat(result, ends[:-1], axis=axis) / counts
    return result.round().astype(np.uint8)


def _jpeg(pixels: Array, quality: int) -> bytes:
    import tensorflow as tf

    content: bytes = tf.io.encode_jpeg(pixels, quality=quality, optimize_size=True).numpy()
    return content


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
