"""Files of arrays: whatever is in them, they become arrays or one sentence, within bounds."""

import io
import resource
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

from deploykit.storage import archives
from deploykit.storage.arrays import load_array, load_data, load_forms
from deploykit.transforms.common.errors import Error, GraphError, LimitError
from deploykit.transforms.runtime.child_process import ResourceLimits
from tests.support import Containing, raises, shows


def npy(header: str, values: bytes = b"", version: int = 1) -> bytes:
    """Return a .npy file of a header as it stands."""
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes((version, 0)) + length + text + values


def header(descr: str = "'<f4'", shape: str = "(2,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def zipped(*entries: tuple[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


def overlapping() -> bytes:
    """Return an archive whose two entries are one piece of it."""
    content = bytearray(zipped(("a.npy", npy(header(), bytes(8))), ("b.npy", b"")))
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 4)
    struct.pack_into("<I", content, second + 42, 0)
    return bytes(content)


def said_to_be(offset: int, value: int) -> bytes:
    """Return an archive whose list says something else of its entry than is there."""
    content = bytearray(zipped(("a.npy", npy(header(), bytes(8)))))
    struct.pack_into("<I", content, content.index(b"PK\x01\x02") + offset, value)
    return bytes(content)


def listing(size: int) -> bytes:
    content = bytearray(zipped(("a.npy", npy(header(), bytes(8)))))
    struct.pack_into("<I", content, content.rindex(b"PK\x05\x06") + 12, size)
    return bytes(content)


BAD_HEADERS = {
    "token": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), "),
    "syntax": npy("{'descr' '<f4'}"),
    "nested": npy("(" * 9000),
    "minus": npy("-" * 9000 + "1"),
    "utf-8": npy("{'\xff': 1}"),
    "long": npy(header() + " " * 60_000),
    "number": npy(header(shape=f"({'9' * 5000},)")),
    "keys": npy("{'descr': '<f4'}"),
    "list": npy(header(shape="[2]")),
    "type": npy(header("'<q9'")),
    "version": b"\x93NUMPY\x09\x00" + bytes(20),
    "records' version": b"\x93NUMPY\x03\x00" + npy(header(), bytes(8), 2)[8:],
    "cut header": npy(header())[:20],
    "no array": b"hello",
    "empty": b"",
    "objects": npy(header("'|O'"), b"\x80\x04N."),
    "fields": npy(header("[('a', '<f4'), ('b', '<f4')]"), bytes(16)),
    "array of arrays": npy(header("('<f4', (2, 2))"), bytes(32)),
    "huge": npy(header(shape=f"({1 << 60},)"), bytes(8)),
    "overflow": npy(header(shape=f"({1 << 40}, {1 << 40})"), bytes(8)),
    "negative": npy(header(shape="(-1,)"), bytes(8)),
    "huge text": npy(header(f"'<U{1 << 28}'", "(1,)"), bytes(8)),
    "rows of nothing": npy(header(shape=f"({1 << 60}, 0)")),
    "texts of nothing": npy(header("'<U0'", f"({1 << 60},)")),
    "axes": npy(header(shape=f"({'1,' * 64})"), bytes(4)),
    "short": npy(header(), bytes(7)),
    "more": npy(header(), bytes(9)),
}  # fmt: skip

GOOD = npy(header(), bytes(8))
BAD_ARCHIVES = {
    "empty": b"",
    "text": b"hello",
    "pickle": b"\x80\x04N.",
    "array": GOOD,
    "noise": np.random.default_rng(0).bytes(10_000),
    "end alone": b"PK\x05\x06" + bytes(8) + b"\xff" * 10,
    "text inside": zipped(("a.txt", b"hello")),
    "twice": zipped(("a.npy", GOOD), ("a.npy", GOOD)),
    "elsewhere": zipped(("../a.npy", GOOD)),
    "root": zipped(("/etc/a.npy", GOOD)),
    "bzip2": zipped(("a.npy", GOOD), packing=zipfile.ZIP_BZIP2),
    "lzma": zipped(("a.npy", GOOD), packing=zipfile.ZIP_LZMA),
    "encrypted": said_to_be(8, 1),
    "overlapping": overlapping(),
    "size": said_to_be(24, 1 << 31),
    "packed size": said_to_be(20, 1 << 31),
    "place": said_to_be(42, 1 << 31),
    "checksum": said_to_be(16, 0),
    "list": listing(1 << 31),
    "long list": listing(0xFFFFFFFF),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_headers_that_lie(tmp_path, case):
    path = tmp_path / "x.npy"
    path.write_bytes(BAD_HEADERS[case])
    with pytest.raises(GraphError, match=r"^\S+x\.npy: this ") as alone:
        load_array(path)
    packed = tmp_path / "x.npz"
    packed.write_bytes(zipped(("good.npy", GOOD), ("bad.npy", BAD_HEADERS[case])))
    with pytest.raises(GraphError, match=r"^\S+x\.npz: array 'bad' ") as inside:
        load_data(packed)
    for error in (alone, inside):
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500


@pytest.mark.parametrize("case", BAD_ARCHIVES)
def test_archives_that_lie(tmp_path, case):
    path = tmp_path / "x.npz"
    path.write_bytes(BAD_ARCHIVES[case])
    with pytest.raises(GraphError, match=r"^\S+x\.npz: "):
        load_data(path)


@pytest.mark.sampled
def test_every_cut_and_many_flipped_bits_of_an_archive(tmp_path):
    """It is the arrays that were written, or an error; never other values."""
    path = tmp_path / "x.npz"
    arrays = {"a": np.arange(30.0), "b/c:0": np.array(["one", "two"]), "d": np.zeros((0, 3))}
    for save in (np.savez, np.savez_compressed):
        save(path, **arrays)
        content = path.read_bytes()
        for length in range(0, len(content), 7):
            path.write_bytes(content[:length])
            with pytest.raises(GraphError):
                load_data(path)
        for place in range(0, len(content), 3):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            try:
                found = load_data(path)
            except Error:
                continue
            for each in found.values():
                assert any(np.array_equal(each, array) for array in arrays.values())


def test_what_numpy_writes_is_read_as_numpy_reads_it(tmp_path):
    random = np.random.default_rng(0)
    arrays = {
        "scalar": np.float32(2.5),
        "by column": np.asfortranarray(random.normal(size=(3, 4, 5))),
        "big endian": np.arange(5, dtype=">i4"),
        "texts": np.array([["one", "zwei"], ["", "d"]]),
        "bytes": np.array([b"a", b"bc"]),
        "bool": np.array([True, False]),
        "half": np.ones(3, np.float16),
        "complex": np.ones(3, complex),
        "empty": np.zeros((0, 224, 224, 3), np.uint8),
        "no features": np.zeros((1000, 0)),
        "layer/kernel:0": random.normal(size=(300, 300)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        found = load_data(tmp_path / "x.npz")
        with np.load(tmp_path / "x.npz") as expected:
            assert list(found) == expected.files
            for name in expected.files:
                np.testing.assert_array_equal(found[name], expected[name])
                assert found[name].dtype == expected[name].dtype
                assert found[name].flags.f_contiguous == expected[name].flags.f_contiguous
                assert found[name].flags.writeable
    for name in ("scalar", "by column", "texts"):
        np.save(tmp_path / "x.npy", arrays[name])
        np.testing.assert_array_equal(load_array(tmp_path / "x.npy"), arrays[name])


def test_one_for_the_other(tmp_path):
    np.save(tmp_path / "a.npz.npy", np.zeros(3))
    with raises(GraphError, "single-array-given"):
        load_data(tmp_path / "a.npz.npy")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with raises(GraphError, "npz-given"):
        load_array(tmp_path / "a.npz")


@pytest.mark.sampled
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """4 GiB in less than 1 MB; a child that may hold little more than Python finds out."""
    path = tmp_path / "bomb.npz"
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    pieces = [packer.compress(npy(header("'|u1'", f"({(4 << 30) - 1000},)")))]
    pieces += [packer.compress(bytes(1 << 24)) for _ in range(24)]
    content = bytearray(zipped(("x.npy", b"".join(pieces) + packer.flush())))
    for place, at in ((8, 22), (content.index(b"PK\x01\x02") + 10, 14)):
        struct.pack_into("<H", content, place, zipfile.ZIP_DEFLATED)
        struct.pack_into("<I", content, place + at - (8 if at == 22 else 0), (4 << 30) - 2)
    path.write_bytes(content)
    code = (
        "import resource, sys; from deploykit.storage.arrays import load_data\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (400 << 20, 400 << 20))\n"
        "try: load_data(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("GraphError")
    assert shows(done.stdout, "archive-bomb", unpacked="4 GiB")
    with raises(GraphError, "archive-bomb", unpacked="4 GiB"):
        load_data(path)


def test_more_than_the_memory_that_is_allowed(tmp_path):
    array = np.zeros((1 << 20) + 1, np.uint8)
    np.savez(tmp_path / "x.npz", x=array)
    np.save(tmp_path / "x.npy", array)
    with ResourceLimits(memory=1 << 20):
        for load, name in ((load_data, "x.npz"), (load_array, "x.npy")):
            with raises(LimitError, "too-large-for-memory", size="1 MiB", most="1 MiB") as found:
                load(tmp_path / name)
            assert found.value.exit_status == 6
    with ResourceLimits(memory=2 << 20):
        assert load_data(tmp_path / "x.npz")["x"].size == array.size


def test_a_list_of_a_million_entries_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_LISTED", 10_000)
    np.savez(tmp_path / "x.npz", **{f"array {n}": np.zeros(1) for n in range(200)})
    with raises(GraphError, "archive-list-too-long", most="9.77 KiB"):
        load_data(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **{f"array {n}": np.zeros(1) for n in range(50)})
    assert len(load_data(tmp_path / "x.npz")) == 50


def test_memory_of_files_that_say_more_than_they_hold(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in ("huge", "overflow", "huge text", "rows of nothing", "texts of nothing"):
        (tmp_path / "x.npy").write_bytes(BAD_HEADERS[case])
        with pytest.raises(GraphError):
            load_array(tmp_path / "x.npy")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_types_and_shapes_are_read_without_values(tmp_path):
    path = tmp_path / "x.npz"
    texts = np.array(["a", "bcd"])
    wide = np.asfortranarray(np.ones((500, 400), np.float32))
    np.savez(path, texts=texts, wide=wide, one=np.int8(3))
    expected = {name: (each.dtype, each.shape) for name, each in load_data(path).items()}
    assert load_forms(path) == expected
    assert expected["wide"] == (np.dtype(np.float32), (500, 400))
    content = bytearray(path.read_bytes())
    begin = content.index(b"wide.npy") + 1000  # among the values
    content[begin : begin + 20] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(GraphError):
        load_data(path)
    assert load_forms(path) == expected


def test_objects_are_refused_with_what_makes_them_plain(tmp_path):
    path, texts = tmp_path / "x.npz", np.array(["good", "bad"], object)
    np.savez(path, x=texts)
    with raises(GraphError, "array-problem", reason=Containing(".astype(str)")):
        load_data(path)
    np.savez(path, x=texts.astype(str))
    assert load_data(path)["x"].tolist() == ["good", "bad"]
