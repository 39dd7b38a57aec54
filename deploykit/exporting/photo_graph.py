"""Image preprocessing as a graph: files are decoded, resized and scaled for a model.

TensorFlow traces the steps of `deploykit.data.apply_preprocessing`; this runs in a child process.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deploykit.data.apply_preprocessing import in_graph
from deploykit.data.preprocessing import Steps
from deploykit.data.preprocessing_plan import result_of
from deploykit.records.examples import Feature
from deploykit.serving.protocol.signatures import BYTES, KINDS, PIXELS, PLACE, READY

FILE = Feature("string", (), "image")
_AT_ONCE = 8  # files of a batch decoded in parallel
_JPEG, _PNG, _GIF, _BMP = _MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"BM")
_HEAD = 26  # bytes that contain the image size in all formats but JPEG


@dataclass(frozen=True)
class PhotoInput:
    """An input that accepts images."""

    alias: str
    scope: str
    """Name scope of its nodes."""
    steps: Steps
    batch: int | None
    """Fixed batch size; None if it is unknown."""


def photo_graph(inputs: Sequence[PhotoInput], most_pixels: int) -> bytes:
    """Return a serialized GraphDef with the nodes `bytes`, `pixels` and `ready` of each input.

    Clients feed `bytes` or `pixels`. The graph rejects other file types and images above
    `most_pixels` before it decodes them.
    """
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        for input_ in inputs:
            with tf.name_scope(f"{input_.scope}/"):
                _add(input_, most_pixels)
    data: bytes = graph.as_graph_def().SerializeToString(deterministic=True)
    return data


def _add(input_: PhotoInput, most_pixels: int) -> None:
    import tensorflow as tf

    steps = input_.steps
    channels = steps.channels or 3
    decoded = Feature("uint8", (None, None, channels))
    result = result_of(steps, FILE)
    files = tf.compat.v1.placeholder_with_default(
        tf.constant([], tf.string, [0]), [None], name=BYTES
    )
    pixels = tf.compat.v1.placeholder_with_default(
        np.zeros((0, 1, 1, channels), np.uint8), [None, *decoded.shape], name=PIXELS
    )

    def of_files() -> Any:
        checked, sizes = _checked(files), _pixels_by_head(files)
        return tf.map_fn(
            lambda item: in_graph(steps, FILE, _bounded(item, most_pixels), optimized=True),
            (tf.range(tf.size(files)), checked, sizes),
            fn_output_signature=tf.TensorSpec(result.shape, result.dtype),
            parallel_iterations=_AT_ONCE,
        )

    def of_pixels() -> Any:
        return tf.ensure_shape(
            in_graph(steps, decoded, pixels, optimized=True), [None, *result.shape]
        )

    ready = tf.cond(tf.size(files) > 0, of_files, of_pixels)
    tf.identity(tf.ensure_shape(ready, [input_.batch, *result.shape]), name=READY)


def _checked(files: Any) -> Any:
    """Return the files [n] with an assertion that all are of a known type."""
    import tensorflow as tf

    known = functools.reduce(tf.logical_or, (_begin(files, magic) for magic in _MAGIC))
    unknown = tf.boolean_mask(tf.range(tf.size(files)), ~known)
    text = f"this file is not a {KINDS}{PLACE}"
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(known), [text, unknown])]):
        return tf.identity(files)


def _bounded(results: tuple[Any, Any, Any], most: int) -> Any:
    """Return a file with an assertion that its image is not too large.

    `results` are its index, contents and number of pixels, which is not valid for a JPEG.
    """
    import tensorflow as tf

    place, file, pixels = results

    def of_jpeg() -> Any:
        shape = tf.io.extract_jpeg_shape(file, tf.int64)
        return shape[0] * shape[1]

    count = tf.cond(_begin(file, _JPEG), of_jpeg, lambda: pixels)
    text = f"this image has more than {most} pixels, the limit for decoding{PLACE}"
    with tf.control_dependencies([tf.debugging.Assert(count <= most, [text, place])]):
        return tf.identity(file)


def _begin(files: Any, magic: bytes) -> Any:
    """Return whether a file, or each of several, begins with `magic`, as a bool tensor."""
    import tensorflow as tf

    return tf.equal(tf.strings.substr(files, 0, len(magic)), magic)


def _pixels_by_head(files: Any) -> Any:
    """Return the number of pixels of each image from its file header; not valid for JPEGs.

    Sources: PNG specification, 11.2.2 IHDR; GIF89a, 18; BITMAPINFOHEADER.
    """
    import tensorflow as tf

    heads = tf.strings.substr(files, 0, _HEAD) + bytes(_HEAD)
    bytes_ = tf.cast(tf.io.decode_raw(tf.strings.substr(heads, 0, _HEAD), tf.uint8), tf.int64)

    def number(start: int, size: int, big: bool = False) -> Any:
        places = [size - 1 - n if big else n for n in range(size)]
        weights = np.array([256**n for n in places], np.int64)
        return tf.reduce_sum(bytes_[:, start : start + size] * weights, 1)

    png = number(16, 4, big=True) * number(20, 4, big=True)
    gif = number(6, 2) * number(8, 2)
    rows = number(22, 4)  # negative: the first row is at the top
    bmp = number(18, 4) * tf.minimum(rows, (1 << 32) - rows)
    result = tf.where(_begin(files, _PNG), png, tf.where(_begin(files, _GIF), gif, bmp))
    # A negative product has overflowed.
    return tf.where(result < 0, np.int64(np.iinfo(np.int64).max), result)
