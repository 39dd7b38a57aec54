"""Groups of samples come from arrays, columns and folders, and stay with their samples."""

import json

import numpy as np
import pytest

from deploykit.data.samples import open_alike, open_samples
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.data.test_class_numbers import classifier, photos
from tests.support import building, built, raises, tf

COUNT = 24
X = np.arange(COUNT, dtype=np.float32)[:, None]
SOURCES = np.array([("day", "night", "fog")[n % 3] for n in range(COUNT)], object)


@built(["x"], ["out"])
def net():
    x = tf.compat.v1.placeholder(tf.float32, [None, 1], name="x")
    tf.identity(x * 2, name="out")


@pytest.fixture(scope="module")
def graph():
    return net()


@pytest.mark.parametrize(("name", "group_by"), [("group", ""), ("source", "source")])
@pytest.mark.parametrize("form", ["arrays", "npz", "csv", "dataset"])
def test_groups_stay_with_their_samples(graph, tmp_path, form, name, group_by):
    path = str(tmp_path / f"data.{form}")
    data = {"x": X, name: SOURCES}
    if form == "npz":
        np.savez(path, x=X, **{name: SOURCES.astype(str)})
    elif form == "csv":
        lines = [f"x,{name}", *(f"{x[0]},{s}" for x, s in zip(X, SOURCES, strict=True))]
        (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    elif form == "dataset":
        data = tf.data.Dataset.from_tensor_slices({"x": X, name: SOURCES.astype(str)}).batch(5)
    given = path if form in ("npz", "csv") else data
    found = open_samples(given, graph, group_by=group_by)
    assert found.groups.tolist() == SOURCES.tolist()
    for part in (*found.split()[:2], found.spread(7), found.at_least(40)):
        places = part.arrays["x"].reshape(-1).astype(int)
        assert part.groups.tolist() == SOURCES[places].tolist()
    feeds = found.feeds(5)[:2]
    assert found.groups_of(feeds).tolist() == SOURCES[:10].tolist()
    alike = open_alike(found, graph, given, net())
    assert alike.groups.tolist() == SOURCES.tolist()
    assert open_samples(given, graph).groups is None, "where groups play no part"


def test_a_column_of_csv_files_without_names(graph, tmp_path):
    """Their columns are features by --preprocess."""
    (tmp_path / "csv").mkdir()
    for n, part in enumerate(np.array_split(np.arange(COUNT), 2)):
        lines = [f"{X[i, 0]},{i % 3}" for i in part]
        (tmp_path / "csv" / f"{n}.csv").write_text("\n".join(lines) + "\n")
    steps = json.dumps({"format": 1, "inputs": {}, "columns": {"x": [0, 1], "source": 1}})
    found = open_samples(str(tmp_path / "csv"), graph, steps, group_by="source")
    assert found.groups.tolist() == [str(n % 3) for n in range(COUNT)]
    with raises(GraphError, "unknown-name", name="sauce", known=["source", "x"]):
        open_samples(str(tmp_path / "csv"), graph, steps, group_by="sauce")


def test_an_input_of_the_name_is_no_group():
    with building(["group"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 1], name="group")
        tf.identity(x, name="out")
    assert open_samples({"group": X}, graph, group_by="").groups is None
    named = open_samples({"group": X}, graph, group_by="group")
    assert named.groups.tolist() == [str(n) for n in range(COUNT)]


@pytest.mark.parametrize("name", ["group", "source"])
def test_an_array_of_groups_is_not_taken_for_the_input(graph, name):
    found = open_samples({"y": X, name: np.arange(COUNT)}, graph, group_by=name)
    np.testing.assert_array_equal(found.arrays["x"], X)


def test_another_length_is_named(graph, tmp_path):
    np.savez(tmp_path / "x.npz", x=X, group=SOURCES[:5].astype(str))
    where = {"source": tmp_path / "x.npz", "what": "groups of 'group'", "other": "samples"}
    with raises(GraphError, "counts-differ", **where, count=5, other_count=24):
        open_samples(str(tmp_path / "x.npz"), graph, group_by="")
    assert open_samples(str(tmp_path / "x.npz"), graph).count == COUNT


def test_folders_of_images_that_are_no_classes_are_groups(tmp_path):
    graph = classifier()

    def opened(folder, group_by=""):
        found = open_samples(folder, graph, "0..255", group_by=group_by)
        return None if found.groups is None else found.groups.tolist()

    kinds = photos(tmp_path / "kinds", "day", "night")
    assert opened(kinds) == ["day"] * 2 + ["night"] * 2
    classes = photos(tmp_path / "classes", "daisy", "iris", "rose", "tulip")
    assert opened(classes) is None
    assert opened(classes, "folder") == [
        n for n in ("daisy", "iris", "rose", "tulip") for _ in "12"
    ]
    assert opened(photos(tmp_path / "one", "day")) is None
    listed = tmp_path / "kinds" / "labels.csv"
    listed.write_text("".join(f"{k}/{n}.png,{n}\n" for k in ("day", "night") for n in range(2)))
    assert opened(kinds) == ["day"] * 2 + ["night"] * 2
    with raises(GraphError, "unknown-name", name="source"):
        opened(kinds, "source")
