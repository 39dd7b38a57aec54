"""Archives of arrays that unpack to gigabytes, lie about their shapes, or hold code."""

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.hostile.case import Case, Statuses, statuses, written
from tests.hostile.corpus.keras_archives import DATE, archive, bomb, pickled, stored

KIND = "npz_files"
WRONG = statuses(2, records=(2, 3, 4))
ODD = statuses(0, 2, 3, 4, 5)


def npy(header: str | bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """Return the bytes of an array with any header."""
    text = header.encode() if isinstance(header, str) else header
    size = struct.pack("<H" if version[:1] == b"\x01" else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + size + text + b"\n" + content


def array(dtype: str, sizes: str, content: bytes = b"", order: str = "False") -> bytes:
    """Return an array of any type and shape with any content."""
    return npy(f"{{'descr': {dtype}, 'fortran_order': {order}, 'shape': {sizes}, }}", content)


def case(
    name: str, make: Callable[[Path], bytes], right: Statuses = WRONG, heavy: bool = False
) -> Case:  # fmt: skip
    """Return a case of one file."""
    return Case(KIND, name, lambda folder: written(folder, "data.npz", make(folder)), "data", right,
                (), heavy)  # fmt: skip


def one(content: bytes, name: str = "x.npy") -> Callable[[Path], bytes]:
    """Return what makes an archive of one array."""
    return lambda _: archive({name: content})


def saved(**arrays) -> Callable[[Path], bytes]:
    """Return what makes a sound archive."""

    def make(folder: Path) -> bytes:
        made = io.BytesIO()
        np.savez(made, **arrays)
        return made.getvalue()

    return make


def of_objects(folder: Path) -> bytes:
    """Return an array of objects whose pickle writes a file."""
    return archive({"x.npy": array("'|O'", "(1,)", pickled(folder))})


def zeros(mebibytes: int) -> Callable[[Path], bytes]:
    """Return what makes rows of zeros that take a thousandth of this."""

    def make(folder: Path) -> bytes:
        rows = mebibytes * (1 << 20) // 12
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
            info = zipfile.ZipInfo("x.npy", DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            with file.open(info, "w", force_zip64=True) as part:
                part.write(array("'<f4'", f"({rows}, 3)"))
                for _ in range(mebibytes):
                    part.write(bytes(1 << 20))
        return made.getvalue()

    return make


def overlapping(folder: Path) -> bytes:
    """Return an archive of which a thousand parts are the same bytes."""
    content = array("'<f4'", "(1000, 3)", bytes(12_000))
    crc, size = zlib.crc32(content), len(content)
    local = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 20, 0, 0, 0, 33, crc, size, size, 5, 0)
    central = b"".join(
        struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 20, 0, 0, 0, 33, crc, size, size, 5 + 3,
                    0,
                    0, 0, 0, 0, 0) + f"x{i:03}.npy".encode()
        for i in range(1000)
    )  # fmt: skip
    body = local + b"x.npy" + content
    return (
        body
        + central
        + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1000, 1000, len(central), len(body), 0)
    )


def member_sizes_lie(folder: Path) -> bytes:
    """Return an archive whose directory says that an array is smaller than it is."""
    content = array("'<f4'", "(100, 3)", bytes(1200))
    return stored("x.npy", content, 40, zlib.crc32(content))


CASES = (
    case("empty", lambda _: b""),
    case("no zip", lambda _: b"\xff" * 1000),
    case("zip of nothing", lambda _: archive({})),
    case("truncated", lambda f: saved(x=np.ones((9, 3), np.float32))(f)[:-20]),
    case("a single array", lambda _: array("'<f4'", "(3, 3)", bytes(36))),
    case("a pickle", pickled),
    case("a part that is no array", one(b"hello")),
    case("a part that is empty", one(b"")),
    case("a header that no tokenizer takes", one(npy("{'descr': '<f4', 'shape': (((((("))),
    case("a header of an open text", one(npy("{'descr': '''"))),
    case("a header with a null", one(npy(b"{'descr': '<f4\0'}"))),
    case("a header that is no dictionary", one(npy("[1, 2]"))),
    case("a header with code", one(npy("__import__('os').system('true')"))),
    case("a header that lacks its shape", one(npy("{'descr': '<f4', 'fortran_order': False}"))),
    case("a header 20,000 deep", one(npy("(" * 20_000, version=b"\x02\x00"))),
    case("a header of 60,000 digits", one(array("'<f4'", f"({'9' * 60_000},)"))),
    case("a header of 4 GiB", one(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{")),
    case("a version to come", one(npy("{}", version=b"\x09\x00"))),
    case("a shape of 2^40", one(array("'<f4'", f"({1 << 40},)", bytes(40)))),
    case("a shape of 2^62 x 2^62", one(array("'<f4'", f"({1 << 62}, {1 << 62})"))),
    case("a shape of minus one", one(array("'<f4'", "(-1,)", bytes(40)))),
    case("a shape of True", one(array("'<f4'", "(True, 3)", bytes(12))), right=ODD),
    case("a shape of fractions", one(array("'<f4'", "(1.5, 3)", bytes(40)))),
    case("a shape of 100 sizes", one(array("'<f4'", f"({'1, ' * 100})", bytes(4)))),
    case("values that are too few", one(array("'<f4'", "(100, 3)", bytes(40)))),
    case("values that are too many", one(array("'<f4'", "(1, 3)", bytes(400))), right=ODD),
    case("values of no bytes", one(array("'V0'", f"({1 << 40},)"))),
    case("values of zero times 2^62", one(array("'<f4'", f"(0, {1 << 62})"))),
    case("objects whose pickle runs code", of_objects),
    case("a structure", one(array("[('a', '<f4'), ('b', '<i4')]", "(3,)", bytes(24)))),
    case("a structure within a structure",
         one(array("[('a', [('b', [('c', '<f4')])])]", "(3,)", bytes(12)))),
    case("a type of 2^31 bytes", one(array("'|S2147483647'", "(3,)"))),
    case("a type that does not exist", one(array("'<q9'", "(3,)", bytes(27)))),
    case("a type of times", one(array("'<M8[ns]'", "(9, 3)", bytes(216)))),
    case("a type of texts", saved(x=np.array([["a", "b", "c"]] * 9))),
    case("complex numbers", saved(x=np.ones((9, 3), np.complex64))),
    case("longdouble", saved(x=np.ones((9, 3), np.longdouble)), right=ODD),
    case("another name", saved(y=np.ones((9, 3), np.float32)),
         right=statuses(0, 2, 5, records=0)),  # the only array that fits the input is taken
    case("another shape", saved(x=np.ones((9, 5), np.float32)), right=statuses(2, records=0)),
    case("a scalar", saved(x=np.float32(1)), right=statuses(2, records=(0, 2))),
    case("no samples", saved(x=np.ones((0, 3), np.float32)),
         right=statuses(2, records=(0, 2), infer=0)),  # without rows, the result has none
    case("NaN", saved(x=np.full((99, 3), np.nan, np.float32)), right=ODD),
    case("lengths that differ", saved(x=np.ones((9, 3), np.float32), y=np.ones(7, np.float32)),
         right=ODD),
    case("parts that lie upon each other", overlapping, right=WRONG),
    case("a part that says it is smaller", member_sizes_lie),
    case("a part that says it is of 1 TiB",
         lambda _: stored("x.npy", bytes(100), 1 << 40, zlib.crc32(bytes(100)))),
    case("a part that is encrypted",
         lambda _: stored("x.npy", bytes(100), 100, zlib.crc32(bytes(100)), flags=1)),
    case("a part of an unknown method",
         lambda _: stored("x.npy", bytes(100), 100, zlib.crc32(bytes(100)), 77)),
    case("a part with a wrong checksum",
         lambda _: stored("x.npy", array("'<f4'", "(3, 3)", bytes(36)), 128, 7)),
    case("a part with a name outside", one(array("'<f4'", "(3, 3)", bytes(36)), "../../x.npy")),
    case("a part with an empty name", one(array("'<f4'", "(3, 3)", bytes(36)), ".npy"),
         right=ODD),
    case("20,000 parts", lambda _: archive({f"x{i}.npy": b"" for i in range(20_000)}), heavy=True),
    case("4 GiB of spaces", lambda _: bomb(4, "x.npy"), heavy=True),
    case("2 GiB of zeros that are an array", zeros(2048), right=statuses(0, 2, 4, 5, 6),
         heavy=True),
    Case(KIND, "a folder named .npz", lambda folder: (folder / "data.npz").mkdir(), "data",
         statuses(2, 4)),
)  # fmt: skip
