"""Sizes of photos, read from the heads that TensorFlow's encoders write."""

import numpy as np
import pytest

from deploykit.photos.sizes import size_of
from tests.deploykit.calling.test_label_image import PIXELS, encoded, gif


@pytest.mark.parametrize("kind", ["png", "jpeg", "bmp"])
@pytest.mark.parametrize("size", [(7, 5), (300, 200), (1, 260)])
def test_width_and_height(kind, size):
    width, height = size
    content = encoded(kind, np.full((height, width, 3), 90, np.uint8))
    assert size_of(content) == size
    assert size_of(content[:8]) is None


def test_a_gif():
    assert size_of(gif(PIXELS, PIXELS)) == (4, 4)


@pytest.mark.parametrize("form", ["progressive", "optimize_size"])
def test_jpegs_of_other_makes(form):
    import tensorflow as tf

    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    content = tf.io.encode_jpeg(pixels, **{form: True}, xmp_metadata="x" * 9000).numpy()
    assert size_of(content) == (30, 40)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00", b"no image", b"BM"])
def test_what_is_no_photo_has_no_size(content):
    assert size_of(content) is None
