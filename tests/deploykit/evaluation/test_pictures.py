"""Pictures are small, show what the photo shows, and are left out where there is none."""

import base64

import numpy as np
import pytest

from deploykit.evaluation.pictures import (
    BYTES,
    SIDE,
    photo_like,
    pictures,
    samples_as_photos,
    shrunk,
    span_of,
)
from deploykit.storage.image_files import png


def decoded(uri):
    import tensorflow as tf

    head, _, text = uri.partition(";base64,")
    assert head in ("data:image/png", "data:image/jpeg")
    content = base64.b64decode(text, validate=True)
    assert len(content) <= BYTES
    assert len(uri) <= 4096
    return tf.io.decode_image(content).numpy()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(28, 28), (1, 1), (7, 200), (300, 500), (97, 96)])
def test_noise_of_any_size_becomes_small(height, width, channels):
    noise = np.random.default_rng(0).integers(0, 256, (height, width, channels), np.uint8)
    smooth = np.broadcast_to(np.linspace(0, 255, width).astype(np.uint8)[:, None],
                             (height, width, channels))  # fmt: skip
    for photo in (noise, np.ascontiguousarray(smooth)):
        for given in (photo, png(photo)):
            (found,) = pictures([given], None)
            seen = decoded(found)
            assert max(seen.shape[:2]) <= SIDE
            assert seen.shape[2] == channels
            ratio = seen.shape[1] / seen.shape[0]
            assert width / height / 2 <= ratio <= 2 * width / height
            assert abs(float(seen.mean()) - float(photo.mean())) < 6


def test_a_small_photo_is_shown_without_loss():
    photo = np.random.default_rng(1).integers(0, 256, (20, 24, 3), np.uint8)
    np.testing.assert_array_equal(decoded(pictures([photo], None)[0]), photo)


@pytest.mark.parametrize("span", [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (-2.1, 2.6)])
def test_floats_are_shown_as_the_photo_that_they_were(span):
    low, high = span
    photo = np.random.default_rng(2).integers(0, 256, (2, 12, 12, 3), np.uint8)
    photo[0, 0, 0], photo[0, 0, 1] = 0, 255
    fed = (photo / 255 * (high - low) + low).astype(np.float32)
    assert span_of(fed) == pytest.approx(span, abs=1e-6)
    shown = [decoded(each) for each in pictures(samples_as_photos(fed, [0, 1]), span_of(fed))]
    np.testing.assert_allclose(shown, photo, atol=1)
    first = np.moveaxis(fed, 3, 1)
    np.testing.assert_array_equal(samples_as_photos(first, [1])[0], fed[1])


def test_broken_numbers_and_files_end_nothing():
    broken = np.full((4, 4, 1), np.nan, np.float32)
    found = pictures([broken, b"no photo", np.zeros((4, 4, 1), np.int64)], None)
    assert found[1] is None
    assert decoded(found[0]).shape == (4, 4, 1)
    assert span_of(broken) == (0, 1)


@pytest.mark.parametrize(
    ("shape", "kind", "is_photo"),
    [
        ((5, 8, 8, 3), np.float32, True),
        ((5, 8, 8, 1), np.uint8, True),
        ((5, 3, 8, 8), np.float32, True),
        ((5, 8, 8, 4), np.float32, False),
        ((5, 8, 8), np.float32, False),
        ((0, 8, 8, 3), np.float32, False),
        ((5, 8, 8, 3), bool, False),
        ((5, 16), np.float32, False),
    ],
)
def test_what_can_be_a_photo(shape, kind, is_photo):
    assert photo_like(np.zeros(shape, kind)) is is_photo


def test_shrinking_is_a_mean():
    photo = np.arange(16 * 16, dtype=np.uint8).reshape(16, 16, 1)
    blocks = photo.reshape(4, 4, 4, 4, 1).mean((1, 3))
    np.testing.assert_array_equal(shrunk(photo, 4), blocks.round().astype(np.uint8))
    assert not np.array_equal(shrunk(photo, 4), photo[::4, ::4])
    np.testing.assert_array_equal(shrunk(photo, 96), photo)
