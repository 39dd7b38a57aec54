"""A picture file as image networks want it: the middle square, resized, scaled to about [-1, 1]."""

import numpy as np

SIZE = 224


def decode(content: bytes) -> np.ndarray:
    """Return a JPEG, PNG or WebP file's pixels, RGB in 0 to 255 [height, width, 3], on white."""
    import tensorflow as tf

    if content.startswith(b"\xff\xd8\xff"):
        return tf.io.decode_jpeg(content, channels=3).numpy()
    if content.startswith(b"\x89PNG"):
        return on_white(tf.io.decode_png(content, channels=4).numpy())
    pixels = tf.io.decode_webp(content)[0].numpy()  # the first frame; with its own channels alone
    return on_white(pixels) if pixels.shape[-1] == 4 else pixels


def on_white(pixels: np.ndarray) -> np.ndarray:
    """Return RGBA pixels as float32 RGB over a white ground."""
    alpha = pixels[..., 3:] / np.float32(255)
    return pixels[..., :3] * alpha + 255 * (1 - alpha)


def scale(pixels: np.ndarray) -> np.ndarray:
    """Return the middle square, float32 [224, 224, 3], as (x - 127) / 128."""
    import tensorflow as tf

    side = min(pixels.shape[:2])
    square = tf.image.resize_with_crop_or_pad(pixels, side, side)
    resized = tf.image.resize(square, [SIZE, SIZE], "bicubic", antialias=True)
    return ((tf.clip_by_value(resized, 0, 255) - 127) / 128).numpy()
