"""Fetch 20 labelled ImageNet photos as one .npz file; nobody knows who holds the rights in them.

    python models/photos/fetch.py [--to DIR]

Writes `fetched/` beside this file, unless it is there already: the photos, and `photos.npz` with
`images`, float32 [20, 224, 224, 3] scaled as (x - 127) / 128, and `labels`, int64 [20].
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.fetch import Wheel, destination, fetch

WHEEL = Wheel(
    "foolbox", "3.3.4", "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb"
)
SIZE = 224


def read(path: Path) -> np.ndarray:
    """Return a photo as the net wants it: the middle square, resized, scaled to about [-1, 1]."""
    import tensorflow as tf

    photo = tf.io.decode_jpeg(path.read_bytes(), channels=3)
    side = min(photo.shape[:2])
    square = tf.image.resize_with_crop_or_pad(photo, side, side)
    resized = tf.image.resize(square, [SIZE, SIZE], "bicubic", antialias=True)
    return ((tf.clip_by_value(resized, 0, 255) - 127) / 128).numpy()


def main() -> None:
    """Fetch the photos and write the .npz file."""
    folder = destination(__doc__, Path(__file__).parent / "fetched")
    fetch(WHEEL, "foolbox/data/imagenet_", folder)
    result = folder / "photos.npz"
    if not result.exists():
        photos = sorted(folder.glob("imagenet_*.jpg"))
        labels = [int(photo.stem.split("_")[-1]) for photo in photos]
        partial = folder / "partial.npz"
        np.savez(partial, images=np.stack([read(photo) for photo in photos]), labels=labels)
        partial.rename(result)
    print(result)


if __name__ == "__main__":
    main()
