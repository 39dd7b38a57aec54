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
from models.reading import decode, scale

WHEEL = Wheel(
    "foolbox", "3.3.4", "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb"
)


def main() -> None:
    """Fetch the photos and write the .npz file."""
    folder = destination(__doc__, Path(__file__).parent / "fetched")
    fetch(WHEEL, "foolbox/data/imagenet_", folder)
    result = folder / "photos.npz"
    if not result.exists():
        photos = sorted(folder.glob("imagenet_*.jpg"))
        labels = [int(photo.stem.split("_")[-1]) for photo in photos]
        partial = folder / "partial.npz"
        images = np.stack([scale(decode(photo.read_bytes())) for photo in photos])
        np.savez(partial, images=images, labels=labels)
        partial.rename(result)
    print(result)


if __name__ == "__main__":
    main()
