"""Every visible file of an image folder is an image or is reported as skipped."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.storage import image_files, image_folders
from deploykit.storage.image_files import image_ends, is_image_content, size_of
from deploykit.storage.image_folders import list_images, listed_labels
from deploykit.storage.visible_files import visible_files
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.common.messages import each_once
from tests.deploykit.storage.tiny_images import (
    JPEG_XL,
    TIFF,
    WEBP,
    decodable,
    jpeg_xl_head,
    webp_head,
)
from tests.support import Containing, raises, tf

OTHERS = {"txt": b"BMW, GIF87 and RIFF are words", "tiff": TIFF, "": b"", "db": b"\xd0\xcf\x11\xe0"}
SIDES = st.integers(1, 16_000)


@pytest.mark.parametrize("kind", decodable())
def test_what_tensorflow_decodes_is_an_image(kind):
    content = decodable()[kind]
    decoded = tf.io.decode_image(content, expand_animations=False)
    assert is_image_content(content)
    assert size_of(content) == (decoded.shape[1], decoded.shape[0])


@pytest.mark.parametrize("content", OTHERS.values())
def test_what_tensorflow_does_not_decode_is_none(content):
    with pytest.raises(tf.errors.OpError):
        tf.io.decode_image(content)
    assert not is_image_content(content)


NAMES = st.text("ab. _", min_size=1, max_size=4).filter(lambda name: name.strip("."))
FILES = st.fixed_dictionaries(
    {
        "folders": st.lists(NAMES, max_size=4),
        "name": NAMES,
        "end": st.sampled_from(["", ".png", ".JPG", ".Jfif", ".webp", ".tiff", ".txt", ".bin"]),
        "content": st.sampled_from([*decodable().values(), *OTHERS.values()]),
    }
)


@given(st.lists(FILES, max_size=12))
def test_images_and_skipped_files_are_all_visible_files(tmp_path_factory, files):
    root = tmp_path_factory.mktemp("root")
    images, others = set(), set()
    for file in files:
        path = root.joinpath(*file["folders"], file["name"] + file["end"])
        if path.exists() or any(folder.is_file() for folder in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file["content"])
        names = path.relative_to(root).parts
        if any(name.startswith(".") for name in names):
            continue
        has_end = path.name.lower().endswith((".png", ".jpg", ".jfif", ".webp"))
        is_image = has_end or file["content"] in decodable().values()
        (images if is_image else others).add(os.path.join(*names))
    found = list_images(root)
    assert {os.path.relpath(image, root) for image in found.images} == images
    assert set(found.skipped) == others
    assert len(found.images) + len(found.skipped) == len(images) + len(others)
    for image in found.images:
        parts = Path(image).relative_to(root).parts
        assert found.top_of(image) == (parts[0] if len(parts) > 1 else "")
    assert bool(found.classes) == any(os.sep in image for image in images)
    is_mixed = bool(found.classes) and any(os.sep not in image for image in images)
    assert bool(found.unclassed) == is_mixed


def test_links_are_followed_once_and_what_they_repeat_is_named(tmp_path):
    real, root = tmp_path / "real", tmp_path / "root"
    (real / "deep").mkdir(parents=True)
    (root / "own").mkdir(parents=True)
    for path in (real / "a.png", real / "deep" / "b.png", root / "own" / "c.png"):
        path.write_bytes(b"x")
    for name, target in {"first": real, "second": real, "own/up": root, "own/self": "self",
                         "own/gone": "nowhere", "own/gone.png": "nowhere"}.items():  # fmt: skip
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    found = list_images(root)
    assert list(map(found.relative, found.images)) == [
        "first/a.png", "first/deep/b.png", "own/c.png", "own/gone.png",
    ]  # fmt: skip
    assert found.skipped == ("pipe", "second/", "own/gone", "own/self", "own/up/")
    for level in range(24):  # each with two links to the next: 16 million paths
        folder = tmp_path / "many" / str(level)
        folder.mkdir(parents=True)
        for name in "ab":
            (folder / name).symlink_to(f"../{level + 1}")
    assert sum(1 for _ in visible_files(str(tmp_path / "many"))) < 100


LINKS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from("alzAMZ"), st.integers(0, 7)))


@pytest.mark.sampled
@given(LINKS)
def test_no_folder_is_read_twice_and_real_ones_keep_their_paths(tmp_path_factory, links):
    home = tmp_path_factory.mktemp("home")
    names = ("data", "data/m", "data/m/n", "data/.h", "data/.h/i", "far", "far/o", "far/o/p")
    folders = [home / name for name in names]
    for folder in folders:
        folder.mkdir()
        (folder / "x.png").write_bytes(b"x")
    for place, name, target in links:
        if not (link := folders[place] / name).is_symlink():
            link.symlink_to(folders[target])
    found = list_images(home / "data")
    files = [os.path.realpath(image) for image in found.images]
    assert len(set(files)) == len(files)
    assert {os.fspath(home / name / "x.png") for name in names[:3]} <= {*found.images}
    tops = {os.path.realpath(home / "data" / name) for name in found.subfolders}
    for link in (item for item in (home / "data").iterdir() if item.is_symlink()):
        is_skipped = os.path.join(link.name, "") in found.skipped
        assert is_skipped != (link.name in found.subfolders)
        assert is_skipped or os.path.realpath(link) in tops
        assert os.path.join(os.path.realpath(link), "x.png") in files


@pytest.mark.parametrize(
    ("text", "expected", "header"),
    [
        ("a.png,x\n", {"a.png": "x"}, ""),
        (" a.png ,x\n", {"a.png": "x"}, ""),
        ("\n file , label\n./b.png, y\n", {"b.png": "y"}, "file, label"),
        ("a.pgn,cat\nb.png,y\n", {"b.png": "y"}, "a.pgn, cat"),
        ("file,label,more\nb.png,y\n", {"b.png": "y"}, "file, label, more"),
        ("a.png,x\u2028y\x85\x0bz\r\nb.png,y\n", {"a.png": "x\u2028y\x85\x0bz", "b.png": "y"}, ""),
        ('a.png,"x\ny"\nb.png,y', {"a.png": "x\ny", "b.png": "y"}, ""),
    ],
)
def test_labels_of_a_file(text, expected, header, tmp_path, caplog):
    caplog.set_level("INFO", "deploykit")
    (tmp_path / "labels.csv").write_text(text, newline="")
    with each_once():
        labels, names = listed_labels(list_images(tmp_path), tmp_path / "labels.csv")
    assert labels == {str(tmp_path / name): label for name, label in expected.items()}
    assert ", ".join(names) == header
    assert caplog.messages == ([f"labels.csv: header: {header}"] if header else [])


def test_a_line_of_labels_has_its_number_in_the_file(tmp_path):
    (tmp_path / "labels.csv").write_text('\na.png,"x\ny"\n\nb.png\n')
    with raises(GraphError, "labels-line", number=5, got="b.png"):
        listed_labels(list_images(tmp_path), tmp_path / "labels.csv")


def test_a_warning_has_the_count_and_the_first_names_once(tmp_path, caplog):
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "labels.csv").write_text("a.png,cat\n")
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "more.csv").write_text("a.png,cat\n")
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text("x")
    for _ in range(2):
        list_images(tmp_path, tmp_path / "more.csv").warn_of_skipped()
    (text,) = [record.getMessage() for record in caplog.records]
    assert text.startswith(f"{tmp_path}: skipped 8 of 9 files")
    assert text == Containing("0.txt, 1.txt, 2.txt, 3.txt, 4.txt", " 3 ")
    assert "csv" not in text


def test_a_format_that_a_later_tensorflow_decodes_is_skipped_and_the_release_named(
    tmp_path, monkeypatch, caplog
):
    later = {"DecodeWebP": "DecodeWebP needs TensorFlow >= 9.9; this is 2.16"}
    cached = [image_files.image_formats, image_files.image_ends, image_files._start]
    for name, content in {
        "a.webp": WEBP["lossy"],
        "b.webp": decodable()["png"],
        "c.png": b"x",
    }.items():
        (tmp_path / name).write_bytes(content)
    try:
        for module in (image_files, image_folders):
            monkeypatch.setattr(module, "other_release", lambda op: later.get(op, ""))
        for each in cached:
            each.cache_clear()
        assert ".webp" not in image_ends()
        found = list_images(tmp_path)
        found.warn_of_skipped()
    finally:
        monkeypatch.undo()
        for each in cached:
            each.cache_clear()
    assert list(map(found.relative, found.images)) == ["b.webp", "c.png"]
    assert found.skipped == ("a.webp",)
    assert later["DecodeWebP"] in caplog.text


@given(SIDES, SIDES, st.sampled_from([b"VP8 ", b"VP8L", b"VP8X"]))
def test_the_size_of_a_webp(width, height, kind):
    head = webp_head(kind, width, height)
    assert size_of(head) == (width, height)
    assert size_of(head[:22]) is None


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 30), st.booleans())
def test_the_size_of_a_jpeg_xl(width, height, boxed):
    assert size_of(jpeg_xl_head(width, height, boxed)) == (width, height)
    assert size_of(b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(40)) is None


@given(st.sampled_from([WEBP["extended"], JPEG_XL, jpeg_xl_head(9, 9, boxed=True)]), st.data())
def test_no_change_of_bytes_breaks_the_reader_of_sizes(content, data):
    changed = bytearray(content)
    for _ in range(4):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    size = size_of(bytes(changed[: data.draw(st.integers(0, len(changed)))]))
    assert size is None or len(size) == 2
