"""Sizes of photos, read from the heads that TensorFlow's encoders write."""

import re
import struct

import numpy as np
import pytest

from deploykit.storage.image_files import image_problem, size_of
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.client.test_label_image import PIXELS, encoded, gif
from tests.deploykit.storage.tiny_images import jpeg_xl_head, webp_head
from tests.support import says, tf


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
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3)).astype(np.uint8)
    content = tf.io.encode_jpeg(pixels, **{form: True}, xmp_metadata="x" * 9000).numpy()
    assert size_of(content) == (30, 40)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00", b"no image", b"BM"])
def test_what_is_no_photo_has_no_size(content):
    assert size_of(content) is None


BOMBS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000) + bytes(20),
    "gif": b"GIF89a" + struct.pack("<HH", 60_000, 60_000) + bytes(20),
    "bmp": b"BM" + bytes(16) + struct.pack("<ii", 60_000, -60_000) + bytes(40),
    "jpg": b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", 60_000, 60_000) + bytes(20),
    "webp": webp_head(b"VP8X", 60_000, 60_000) + bytes(20),
    "jxl": jpeg_xl_head(60_000, 60_000) + bytes(20),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_images_that_say_they_are_huge(tmp_path, kind):
    """They are refused by their heads, wherever an image is decoded."""
    from deploykit.client.label_image import open_image
    from deploykit.data.apply_preprocessing import in_python
    from deploykit.data.preprocessing import Steps
    from deploykit.records.examples import Feature
    from deploykit.records.images import Decoder

    said = says("image-pixels", width=60000, height=60000, most=178)
    assert re.search(said, image_problem(BOMBS[kind]))
    (found,) = Decoder().decode([BOMBS[kind]])
    assert re.search(said, found)
    (tmp_path / "x").write_bytes(BOMBS[kind])
    with pytest.raises(GraphError, match=said):
        open_image(tmp_path / "x")
    with pytest.raises(GraphError, match=said):
        in_python(Steps(channels=3), Feature("string", (), "image"), BOMBS[kind])
