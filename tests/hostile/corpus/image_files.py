"""Pictures that claim to be enormous, end early, or are something else; and data sets."""

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deploykit.storage.image_files import png
from tests.hostile.case import Case, Statuses, canary, statuses, written
from tests.hostile.corpus.keras_archives import pickled

KIND = "image_files"
WRONG = statuses(2, records=(0, 2))
"""Records keep the bytes of pictures as they are."""
ODD = statuses(0, 2, 5)
GOOD = png(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))


def chunk(kind: bytes, content: bytes, length: int | None = None) -> bytes:
    """Return a part of a PNG; `length` is a lie."""
    size = struct.pack(">I", len(content) if length is None else length)
    return size + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def a_png(width: int, height: int, rows: bytes = b"", depth: int = 8, colour: int = 2) -> bytes:
    """Return a PNG that says it is so large."""
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows)
            + chunk(b"IEND", b""))  # fmt: skip


def a_gif(width: int, height: int, frames: int = 1) -> bytes:
    """Return a GIF that says it is so large."""
    size = struct.pack("<HH", width, height)
    frame = b"\x2c\0\0\0\0" + size + b"\0\x02\x02\x44\x01\0"
    return b"GIF89a" + size + b"\x80\0\0\0\0\0\xff\xff\xff" + frame * frames + b";"


def a_bmp(width: int, height: int, bits: int = 24, offset: int = 54) -> bytes:
    """Return a BMP that says it is so large."""
    return (b"BM" + struct.pack("<IHHI", 154, 0, 0, offset)
            + struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, 0, 0, 0, 0,
            0) + bytes(100))  # fmt: skip


def a_jpeg(width: int, height: int) -> bytes:
    """Return the start of a JPEG that says it is so large."""
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\1\x22\0\2\x11\1\3\x11\1"
    scan = b"\xff\xda\0\x0c\3\1\0\2\x11\3\x11\0\x3f\0" + bytes(50)
    return b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xc0" + frame + scan + b"\xff\xd9"


def zeros(mebibytes: int) -> bytes:
    """Return so many MiB of zeros, packed."""
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(mebibytes)), packer.flush()])


def case(
    name: str, content: bytes | Callable[[], bytes], file: str = "odd.png", right: Statuses = WRONG,
    heavy: bool = False,
) -> Case:  # fmt: skip
    """Return a case of a picture."""
    return Case(KIND, name, lambda folder: written(
        folder, f"photos/{file}", content() if callable(content) else content), "image", right,
        ("odd",),
        heavy)  # fmt: skip


CASES = (
    case("empty", b""),
    case("garbage", b"\xff" * 500),
    case("a PNG of 60,000 x 60,000", a_png(60_000, 60_000, zlib.compress(bytes(10_000)))),
    case("a PNG of 60,000 x 60,000, whole", lambda: a_png(60_000, 60_000, zeros(2000), 8, 0),
         heavy=True),
    case("a PNG of 20,000 x 20,000, whole", lambda: a_png(20_000, 20_000, zeros(382), 8, 0),
         heavy=True),
    case("a PNG of 2^31-1 x 2^31-1", a_png(2**31 - 1, 2**31 - 1)),
    case("a PNG of 2^31-1 x 1", a_png(2**31 - 1, 1, zlib.compress(bytes(10_000)))),
    case("a PNG of 0 x 0", a_png(0, 0)),
    case("a PNG of no depth", a_png(8, 8, zlib.compress(bytes(200)), 0)),
    case("a PNG of unknown colours", a_png(8, 8, zlib.compress(bytes(200)), 8, 99)),
    case("a PNG that is cut", GOOD[:-30]),
    case("a PNG of rows of garbage", a_png(8, 8, b"\xff" * 100)),
    case("a PNG of too few rows", a_png(8, 8, zlib.compress(bytes(25)))),
    case("a PNG with a part of 2 GiB",
         GOOD[:33] + chunk(b"tEXt", b"", (1 << 31) - 1) + GOOD[33:]),
    case("a PNG with a packed text of 100 MiB",
         lambda: GOOD[:33] + chunk(b"zTXt", b"a\0\0" + zeros(100)) + GOOD[33:], right=ODD,
         heavy=True),
    case("a PNG with a wrong checksum", GOOD[:-20] + b"\xff" + GOOD[-19:], right=ODD),
    case("a signature alone", b"\x89PNG\r\n\x1a\n"),
    case("a GIF of 65,535 x 65,535", a_gif(65_535, 65_535), "odd.gif"),
    case("a GIF of 10,000 frames", a_gif(500, 500, 10_000), "odd.gif"),
    case("a GIF of no frame", a_gif(8, 8, 0), "odd.gif"),
    case("a GIF that is cut", a_gif(8, 8)[:20], "odd.gif"),
    case("a BMP of 30,000 x 30,000", a_bmp(30_000, 30_000), "odd.bmp"),
    case("a BMP of minus 2^31", a_bmp(8, -(1 << 31)), "odd.bmp"),
    case("a BMP with values beyond its end", a_bmp(5, 5, 24, 2**31), "odd.bmp"),
    case("a BMP of 77 bits", a_bmp(5, 5, 77), "odd.bmp"),
    case("a JPEG of 65,500 x 65,500", a_jpeg(65_500, 65_500), "odd.jpg"),
    case("a JPEG of 0 x 0", a_jpeg(0, 0), "odd.jpg"),
    case("a JPEG that is cut", a_jpeg(8, 8)[:30], "odd.jpg"),
    case("a PNG named .jpg", GOOD, "odd.jpg", right=ODD),
    case("a pickle named .png", lambda: pickle.dumps([1, 2, 3])),
    case("an HTML page named .jpg", b"<html><body>404</body></html>", "odd.jpg"),
    case("an SVG named .png", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
    case("a name with an escape", b"x", "odd\x1b[2J.png"),
    case("a name with a line break", b"x", "odd\n.png"),
)  # fmt: skip

SETS = "datasets"


def data(
    name: str, file: str, content: bytes | Callable[[Path], bytes], right: Statuses, heavy=False
) -> Case:
    """Return a case of data to convert."""
    return Case(SETS, name, lambda folder: written(
        folder, file, content(folder) if callable(content) else content), "dataset", right, (),
        heavy)  # fmt: skip


def linked(target: str) -> Callable[[Path], Path]:
    """Return what makes a folder of images of which one is a link."""

    def make(folder: Path) -> Path:
        written(folder, "photos/cat/a.png", GOOD)
        (folder / "photos/cat/b.png").symlink_to(target)
        return folder / "photos"

    return make


def cifar(of: object) -> bytes:
    """Return a pickle of data of CIFAR."""
    return pickle.dumps({b"data": of, b"labels": [1], b"batch_label": b"x"}, protocol=2)


CASES += (
    data("CIFAR, a pickle that runs code", "data_batch_1", pickled, statuses(3)),
    data("CIFAR, a pickle within the data", "data_batch_1",
         lambda f: cifar(_Writes(str(canary(f)))), statuses(3)),
    data("CIFAR, a pickle cut", "data_batch_1", cifar(np.zeros((1, 3072), np.uint8))[:-40],
         statuses(2)),
    data("CIFAR, a pickle of 2^40 bytes", "data_batch_1", b"\x80\x04\x8e" + struct.pack("<Q",
         1 << 40),
         statuses(2)),
    data("CIFAR, a pickle of a memo of 2^31", "data_batch_1", b"\x80\x02K\x01r\xff\xff\xff\x7f.",
         statuses(2)),
    data("CIFAR, a pickle 100,000 deep", "data_batch_1",
         b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999
         + b".", statuses(2)),
    data("CIFAR, a list in the place of an array", "data_batch_1", cifar([1, 2]), statuses(2)),
    data("IDX of 2^96 values", "train-images-idx3-ubyte",
         b"\0\0\x08\x03" + b"\xff" * 12, statuses(2)),
    data("IDX of 255 dimensions", "train-images-idx3-ubyte", b"\0\0\x08\xff" + bytes(4 * 255),
         statuses(2)),
    data("IDX of an unknown type", "train-images-idx3-ubyte", b"\0\0\x07\x01\0\0\0\1\0",
         statuses(2)),
    data("IDX packed, 1 GiB of zeros", "x-ubyte.gz", lambda _: gzip.compress(
        b"\0\0\x08\x01\x40\0\0\0" + bytes(1 << 30), 9, mtime=0), statuses(0, 2, 4, 6), heavy=True),
    data("IDX packed, and cut", "x-ubyte.gz", gzip.compress(b"\0\0\x08\x01\0\0\0\4abcd",
         mtime=0)[:-9],
         statuses(2)),
    data("CSV of 1,000,000 columns", "a.csv", b",".join([b"1"] * 1_000_000) + b"\n",
         statuses(0, 2), heavy=True),
    data("CSV of a field of 4 MB", "a.csv", b"1," + b"9" * (4 << 20) + b",0\n", statuses(0, 2)),
    data("CSV of an open quote", "a.csv", b'1,2,0\n1,"' + b"a\n" * 100_000, statuses(2)),
    data("CSV with nulls", "a.csv", b"1,2,0\n\0,\0,\0\n", statuses(2)),
    data("CSV of infinite numbers", "a.csv", b"1,2,0\n1e999,-inf,1\n", statuses(0, 2)),
    data("text of one line of 4 MB", "a.txt", b"a" * (4 << 20) + b"\t1\n", statuses(0, 2)),
    Case(SETS, "an image that is a link to a device", linked("/dev/zero"), "dataset",
         statuses(2, 4), ("b.png",)),
    Case(SETS, "an image that is a link to nothing", linked("nothing"), "dataset", statuses(2, 4),
         ("b.png",)),
    Case(SETS, "an image that is a link to itself", linked("b.png"), "dataset", statuses(2, 4),
         ("b.png",)),
    Case(SETS, "a class that is a link to everything",
         lambda f: (linked("a.png")(f), (f / "photos/all").symlink_to("/"))[0], "dataset",
         statuses(0, 2, 4), ("all", "photos")),
)  # fmt: skip


class _Writes:
    """Its pickle writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return (exec, (f"open({self.path!r}, 'w').write('was run')",))
