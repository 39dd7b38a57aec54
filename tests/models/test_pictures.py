"""Pictures are read, chosen and ordered the same way each time, without any network."""

import struct

import numpy as np
import pytest

from models.pictures.fetch import distinct, worthwhile
from models.pictures.resources import files
from models.reading import SIZE, on_white

RANDOM = np.random.default_rng(1)


def picture() -> np.ndarray:
    """Return an image of coarse coloured squares."""
    return np.kron(RANDOM.uniform(-1, 1, (16, 16, 3)), np.ones((SIZE // 16, SIZE // 16, 1)))


def test_the_order_is_of_the_content_alone():
    contents = [bytes([n]) for n in range(20)]
    found = distinct(contents)
    assert sorted(found) == contents
    assert found != contents
    assert distinct([*reversed(contents), *contents]) == found


def test_what_is_transparent_is_white():
    pixels = np.uint8([[[10, 20, 30, 255], [10, 20, 30, 0], [0, 100, 200, 51]]])
    np.testing.assert_allclose(
        on_white(pixels), [[[10, 20, 30], [255, 255, 255], [204, 224, 244]]], rtol=1e-6
    )


@pytest.mark.parametrize(
    "useless",
    [
        lambda image: image * 0.01,
        lambda image: np.repeat(image[..., :1], 3, 2),
        lambda image: np.clip(image + 0.01, -1, 1),
    ],
    ids=["uniform", "grey", "shown before"],
)
def test_pictures_that_say_nothing_are_left_out(useless):
    first, second = picture(), picture()
    found = list(worthwhile([first, useless(first), second]))
    assert len(found) == 2
    assert found[0] is first
    assert found[1] is second


@pytest.mark.parametrize("tree_first", [True, False])
def test_files_of_a_resource_file(tree_first):
    contents = [b"RIFF....WEBP", b"", b"\x89PNG"]
    stored = b"".join(struct.pack(">I", len(content)) + content for content in contents)
    tree, at = (20, 24) if tree_first else (20 + len(stored), 20)
    names = at + len(stored) + (0 if tree_first else 4)
    header = b"qres" + struct.pack(">4I", 1, tree, at, names)
    rest = b"tree" + stored if tree_first else stored + b"tree"
    assert list(files(header + rest + b"names")) == contents
