"""Fetch colour pictures to calibrate ImageNet networks with, and others to judge them by.

    python models/pictures/fetch.py [--to DIR]

Writes `fetched/` beside this file, unless it is there already: `calibration.npz` and `heldout.npz`,
each with `images`, float32 [N, 224, 224, 3] scaled as (x - 127) / 128. The pictures come from a
wheel on PyPI and two Debian packages, which takes apt and dpkg.
"""

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from models.fetch import DebianPackage, Wheel, destination, fetch, unpack
from models.pictures.resources import files
from models.reading import SIZE, decode, scale

# One of many wheels of this version: the platform is part of its name, and of its SHA-256.
SCIKIT_IMAGE = Wheel(
    "scikit-image",
    "0.26.0",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    ("--platform=manylinux_2_28_x86_64", "--python-version=3.11"),
)
# Of its colour photos; motorcycle_right shows what motorcycle_left shows.
SAMPLES = ("astronaut.png", "chelsea.png", "coffee.png", "color.png", "hubble_deep_field.jpg",
           "ihc.png", "motorcycle_left.png", "retina.jpg", "rocket.jpg")  # fmt: skip

GCOMPRIS = DebianPackage(
    "gcompris-qt-data",
    "3.1-2",
    "e9cf06ab2105529068df73085784e835d2ff03f870d2a8091f09125d40abac9f",
)
# The activities that show photos; the others draw.
ACTIVITIES = ("categorization", "clickgame", "details", "erase", "explore_farm_animals",
              "explore_monuments", "explore_world_animals", "explore_world_music",
              "solar_system")  # fmt: skip

TUXPAINT = DebianPackage(
    "tuxpaint-stamps-default",
    "2022.06.04-1",
    "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
)
DRAWN = {"cartoon", "clothes", "roadsigns", "seasonal", "symbols"}

CALIBRATION = 92
MINIMUM_SIDE = 100
# All of what is scaled to [-1, 1]: below these a picture is next to uniform, is grey, or shows what
# another shows, in another size.
MINIMUM_DEVIATION = 0.1
MINIMUM_COLOUR = 0.05
MINIMUM_DISTANCE = 0.05


def pictures(folder: Path) -> Iterator[bytes]:
    """Yield the contents of all picture files; what is fetched goes into `folder`."""
    samples = fetch(SCIKIT_IMAGE, "skimage/data/", folder / "scikit-image")
    for name in SAMPLES:
        yield (samples / name).read_bytes()
    resources = unpack(GCOMPRIS, folder / "gcompris") / "usr/share/gcompris-qt/rcc"
    for activity in ACTIVITIES:
        for content in files((resources / f"{activity}.rcc").read_bytes()):
            if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
                yield content
    stamps = unpack(TUXPAINT, folder / "tuxpaint") / "usr/share/tuxpaint/stamps"
    for path in stamps.rglob("*.png"):
        if not DRAWN.intersection(path.parts):
            yield path.read_bytes()


def distinct(contents: Iterable[bytes]) -> list[bytes]:
    """Return each content once, in the order of SHA-256: mixed, and the same each time."""
    by_digest = {hashlib.sha256(content).digest(): content for content in contents}
    return [by_digest[digest] for digest in sorted(by_digest)]


def read(contents: Iterable[bytes]) -> Iterator[np.ndarray]:
    """Yield the pictures that are large enough, as networks want them."""
    for content in contents:
        pixels = decode(content)
        if min(pixels.shape[:2]) >= MINIMUM_SIDE:
            yield scale(pixels)


def worthwhile(images: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the images that show something, in colour, and no image twice."""
    small = np.empty((0, 16, 16, 3), np.float32)
    for image in images:
        if image.std() < MINIMUM_DEVIATION or np.ptp(image, axis=2).max() < MINIMUM_COLOUR:
            continue
        reduced = image.reshape(16, SIZE // 16, 16, SIZE // 16, 3).mean((1, 3))
        if np.any(np.sqrt(np.mean((small - reduced) ** 2, (1, 2, 3))) < MINIMUM_DISTANCE):
            continue
        small = np.append(small, [reduced], 0)
        yield image


def main() -> None:
    """Fetch, read and write; both files appear at once."""
    folder = destination(__doc__, Path(__file__).parent / "fetched")
    if not folder.exists():
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            # Beside the folder, so that it comes into being whole, by one rename.
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as temporary:
                images = np.stack(list(worthwhile(read(distinct(pictures(Path(temporary)))))))
                result = Path(temporary, "result")
                result.mkdir()
                np.savez(result / "calibration.npz", images=images[:CALIBRATION])
                np.savez(result / "heldout.npz", images=images[CALIBRATION:])
                result.rename(folder)
        except OSError as error:
            sys.exit(f"cannot write {folder}: {error}; name another folder with --to")
    print(folder)


if __name__ == "__main__":
    main()
