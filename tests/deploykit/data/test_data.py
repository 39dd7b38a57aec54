"""What a data path means, and what is wrong with one."""

import re

import numpy as np
import pytest

from deploykit.data.data import open_data
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.deploykit.data import made_up
from tests.support import because, raises, says, shows


def test_kinds(tmp_path):
    lines = made_up.write_csv(tmp_path / "csv")
    assert (lines.kind, len(lines.files), lines.header, lines.width) == ("csv", 3, False, 7)
    assert lines.features == {"x": Feature("float32", (6,)), "id": Feature("float32")}
    assert made_up.write_csv(tmp_path / "header", header=True).header
    arrays = made_up.write_arrays(tmp_path)
    assert (arrays.kind, arrays.records) == ("arrays", 23)
    assert arrays.features == {"x": Feature("float32", (6,)), "id": Feature("int64")}
    records = made_up.write_records(tmp_path / "records")
    assert (records.kind, records.records, len(records.files)) == ("records", 23, 3)
    images = made_up.write_images(tmp_path / "images")
    assert (images.kind, images.records, images.labels) == ("images", 8, tuple(range(8)))


def test_a_csv_file_alone_has_its_label_last(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("1,2,3\n4,5,6\n")
    assert open_data(str(path)).columns == {"x": (0, 2), "label": 2}
    some = open_data(str(path), {"a": 0})
    assert (some.features, some.width) == ({"a": Feature("float32")}, 3)


def test_class_folders(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(made_up.jpeg(1))
    data = open_data(str(tmp_path))
    assert (data.labels, data.classes) == ((0, 1), ("cat", "dog"))
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "1.png").write_bytes(b"x")
    assert "label" not in open_data(str(tmp_path / "alone")).features


@pytest.mark.parametrize(
    ("paths", "classes", "labels"),
    [
        (["a/x.png", "b/y.png"], ("a", "b"), [0, 1]),
        (["b/1/2/3/x", "a/x.JFIF", "a/deep/y.webp"], ("a", "b"), [0, 0, 1]),
        (["b/x.png", "a/", "c/notes.txt"], ("b",), [0]),
        (["10/deep/x.png", "9/x.png", "misc/", "note/x.txt"], ("9", "10"), [10, 9]),
        (["x.png", "empty/"], (), None),
        (["x.png", "a/y.png"], (), None),
        (["x.png", ".a/y.png"], (), None),
    ],
)
def test_the_class_is_the_first_folder_at_any_depth(tmp_path, caplog, paths, classes, labels):
    for path in paths:
        place = tmp_path / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.write_bytes(b"text" if path.endswith(".txt") else made_up.jpeg(1))
    data = open_data(str(tmp_path))
    assert data.classes == classes
    assert not shows(caplog.text, "class-without-images")
    assert data.labelled == (labels is not None)
    assert labels is None or list(data.labels) == labels
    assert len(data.files) + len(data.skipped) == sum(
        not path.endswith("/") and path[0] != "." for path in paths
    )


def broken(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    if name == "other":
        (folder / "notes.txt").write_text("x")
    elif name == "no index":
        (folder / "a.tfrecord").write_bytes(b"")
    elif name == "empty csv":
        (folder / "a.csv").write_text("")
    elif name == "binary csv":
        (folder / "a.csv").write_bytes(b"\xff\xfe\x00")
    elif name == "no label":
        (folder / "a.jpg").write_bytes(b"")
        (folder / "labels.csv").write_text("b.jpg,1\n")
    elif name == "empty label":
        (folder / "a.jpg").write_bytes(b"")
        (folder / "labels.csv").write_text("a.jpg,\n")
    elif name == "short shard":
        shard = made_up.write_records(folder).files[1]
        with open(shard, "r+b") as file:
            file.truncate(100)
    elif name == "missing shard":
        made_up.write_records(folder)
        next(folder.glob("*.tfrecord")).unlink()
    elif name == "lengths":
        np.savez(folder / "a.npz", x=np.zeros(3), y=np.zeros(4))
        return str(folder / "a.npz")
    elif name == "no samples":
        np.savez(folder / "a.npz", x=np.zeros((0, 3)))
        return str(folder / "a.npz")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("empty", FileError, says("data-folder-kind", got="is empty")),
        ("other", FileError, says("data-folder-kind", got=because("folder-without-data"))),
        ("no index", GraphError, says("no-samples")),
        ("empty csv", GraphError, says("csv-empty")),
        ("binary csv", GraphError, says("csv-row", number=1, reason="it is not UTF-8 text")),
        ("no label", GraphError, says("image-label-missing", file="a.jpg")),
        ("empty label", GraphError, says("labels-line", number=1)),
        ("short shard", FileError, says("index-differs", got=100, unit="bytes")),
        ("missing shard", FileError, re.escape("No such file")),
        ("lengths", GraphError, says("sample-counts-differ", counts="x 3, y 4")),
        ("no samples", GraphError, says("no-samples")),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, kind, says):
    path = broken(tmp_path, name)
    with pytest.raises(Error) as found:
        open_data(path)
    assert type(found.value) is kind
    assert re.search(says, str(found.value))
    assert str(found.value).startswith(path)
    assert "\n" not in str(found.value)


def test_columns_that_are_not_there(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("1,2,3\n")
    with raises(GraphError, "csv-columns-range", name="x", start=2, last=3, width=3):
        open_data(str(path), {"x": (2, 4)})
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with raises(GraphError, "columns-not-csv"):
        open_data(str(tmp_path / "a.npz"), {"x": 0})


def test_listed_labels_without_an_image_are_named_once(tmp_path, caplog):
    (tmp_path / "a.png").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("x")
    gone = ["notes.txt", *(f"b/{n}.png" for n in range(6))]
    (tmp_path / "labels.csv").write_text("".join(f"{name},1\n" for name in ["a.png", *gone]))
    for _ in range(2):
        assert open_data(str(tmp_path)).records == 1
    (text,) = [text for text in caplog.messages if "labels.csv" in text]
    assert text == (
        f"{tmp_path / 'labels.csv'}: ignored 7 of 8 labels, whose files are not images in the "
        "folder: notes.txt, b/0.png, b/1.png, b/2.png, b/3.png and 2 more"
    )
