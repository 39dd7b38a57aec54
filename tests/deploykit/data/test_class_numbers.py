"""Folders of photos are the classes that they are called by, or nobody says that they are."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from deploykit.data.labels import AS_NUMBERED, in_own_order
from deploykit.data.samples import open_samples
from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import About
from deploykit.storage.image_files import png
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import Containing, because, built, raises, shows, tf

CLASSES = 4
FLOWERS = ("tulip", "rose", "daisy", "iris")  # in the order of the model's scores


@built(["x"], ["out"])
def classifier(classes=CLASSES):
    """Return a graph whose scores of a photo [1, 1, 1] are highest at the class of its value."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 1, 1, 1], name="x")
    values = tf.reshape(x, [-1, 1])
    tf.nn.softmax(-tf.abs(values - np.arange(classes, dtype=np.float32)), name="out")


def photos(folder, *classes):
    """Write two photos of each class; their pixels are its place in FLOWERS."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        place = FLOWERS.index(name) if name in FLOWERS else 0
        for number in range(2):
            pixels = np.full((1, 1, 1), place, np.uint8)
            (folder / name / f"{number}.png").write_bytes(png(pixels))
    return str(folder)


@pytest.fixture(scope="module")
def graph():
    return classifier()


@pytest.fixture
def labels(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("".join(f"{name}\n" for name in FLOWERS))
    return str(path)


def opened(path, graph, labels=None):
    return open_samples(path, graph, "0..255", labels=labels)


@pytest.mark.parametrize("some", [FLOWERS, FLOWERS[1:3], ("iris",), ("iris", "tulip", "rose")])
def test_folders_are_classes_by_the_names_of_the_labels_file(tmp_path, graph, labels, some, caplog):
    """Their sorted order is another one, so whoever takes that has all wrong."""
    caplog.set_level(logging.INFO)
    found = opened(photos(tmp_path / "photos", *some), graph, labels)
    wanted = [FLOWERS.index(name) for name in sorted(some) for _ in range(2)]
    assert found.labels.tolist() == wanted == found.arrays["x"].reshape(-1).tolist()
    assert found.class_names == FLOWERS
    assert shows(caplog.text, "classes-by-name", names=labels)
    assert [path.split("/")[-2] for path in found.files] == [FLOWERS[n] for n in wanted]
    few = found.spread(2)
    assert few.files == (found.files[0], found.files[-1])


@pytest.mark.sampled
@pytest.mark.parametrize("others", [["notes/x.txt"], ["misc/deep/"], ["0/", "z/x.csv"]])
@pytest.mark.parametrize("classes", [FLOWERS, ("0", "1", "2", "10"), ("3",)])
@pytest.mark.parametrize("has_labels", [True, False])
def test_folders_without_images_change_no_class(tmp_path, others, classes, has_labels):
    folder, net = photos(tmp_path / "photos", *classes), classifier(11 if "10" in classes else 4)
    labels = [*FLOWERS, *"efghijk"][: 11 if "10" in classes else 4] if has_labels else None
    before = opened(folder, net, labels)
    for path in others:
        place = tmp_path / "photos" / path
        (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            place.write_text("a text")
    found = opened(folder, net, labels)
    assert found.labels.tolist() == before.labels.tolist()
    assert found.class_names == before.class_names


def test_labels_that_are_kept_beside_the_model_name_them_too(tmp_path, labels):
    net = classifier()
    net.about = About(labels=FLOWERS)
    folder = photos(tmp_path / "photos", *FLOWERS[:3])
    assert (
        opened(folder, net).labels.tolist() == opened(folder, classifier(), labels).labels.tolist()
    )


def test_a_folder_that_is_no_class_is_named(tmp_path, graph, labels):
    folder = photos(tmp_path / "photos", *FLOWERS, "irs")
    with raises(
        GraphError,
        "class-unknown",
        source=folder,
        name="irs",
        count=4,
        labels_source=labels,
        hint=Containing("iris"),
    ):
        opened(folder, graph, labels)
    with raises(
        GraphError,
        "class-names-same",
        count=2,
        name="rose",
        labels_source=because("given-labels"),
    ):
        opened(photos(tmp_path / "two", "rose"), graph, ["rose", "tulip", "rose", "iris"])
    with raises(GraphError, "class-beyond", name=4, count=4):
        opened(photos(tmp_path / "numbers", "0", "4"), graph, labels)


def test_as_many_folders_as_classes_are_taken_in_their_order(tmp_path, graph, caplog):
    caplog.set_level(logging.INFO)
    found = opened(photos(tmp_path / "photos", *FLOWERS), graph)
    assert found.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert found.class_names == tuple(sorted(FLOWERS))
    assert "4 classes" in caplog.text


@pytest.mark.parametrize("some", [FLOWERS[:3], (*FLOWERS, "aster")])
def test_another_number_of_folders_is_no_guess(tmp_path, graph, caplog, some):
    found = opened(photos(tmp_path / "photos", *some), graph)
    assert found.labels is None
    said = str(GraphError("class-order-unknown", count=len(some), scores_count=4))
    assert said in caplog.text
    with raises(GraphError, "metric-needs-labels", metric="top1", reason=said):
        found.refuse_unlabelled("top1")


def test_data_that_number_their_classes_keep_that_order():
    found = in_own_order({0: "truck", 1: "ant"}, 2)
    assert (found.numbers, found.why) == ((0, 1), f"numbered {AS_NUMBERED}")
    assert in_own_order({0: "1", 1: "10", 2: "2"}, 11).numbers == (1, 10, 2)


def test_folders_of_numbers_are_the_numbers(tmp_path, graph, labels):
    folder = photos(tmp_path / "photos", "2", "0", "3")
    for given in (None, labels):
        assert opened(folder, graph, given).labels.tolist() == [0, 0, 2, 2, 3, 3]
    called = ["3", "2", "1", "0"]  # which are names as any
    assert opened(folder, graph, called).labels.tolist() == [3, 3, 1, 1, 0, 0]


def test_an_image_next_to_class_folders_gets_no_class(tmp_path, graph, caplog):
    folder = photos(tmp_path / "photos", *FLOWERS)
    (Path(folder) / "lone.png").write_bytes((Path(folder) / FLOWERS[0] / "0.png").read_bytes())
    found = opened(folder, graph)
    assert (found.labels, found.count) == (None, 2 * len(FLOWERS) + 1)
    assert shows(caplog.text, "image-without-class", file="lone.png")
    with raises(GraphError, "metric-needs-labels", reason=Containing("lone.png")):
        found.refuse_unlabelled("top1")
    with raises(GraphError, "image-without-class", source=folder, file="lone.png"):
        opened(folder, graph, FLOWERS)


def test_a_list_of_labels_beside_photos_names_classes_as_well(tmp_path, graph, labels):
    folder = photos(tmp_path / "photos", *FLOWERS[:2])
    (tmp_path / "photos" / "labels.csv").write_text(
        "rose/0.png,iris\nrose/1.png,tulip\ntulip/0.png,rose\ntulip/1.png,iris\n"
    )
    assert opened(folder, graph, labels).labels.tolist() == [3, 0, 1, 3]


def test_records_remember_what_their_classes_are_called(deploykit, tmp_path, graph, labels):
    folder = photos(tmp_path / "photos", *FLOWERS[:3])
    done = deploykit("records", "convert", folder, tmp_path / "records")
    assert done.status == 0, done.stderr
    found = opened(str(tmp_path / "records"), graph, labels)
    by_folder = opened(folder, graph, labels)
    assert sorted(found.labels.tolist()) == sorted(by_folder.labels.tolist())
    np.testing.assert_array_equal(found.labels, found.arrays["x"].reshape(-1))


def test_texts_are_names_and_numbers_are_numbers(graph, labels):
    x = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1)
    for names in (np.array(FLOWERS), np.array([f.encode() for f in FLOWERS], object)):
        found = open_samples({"x": x, "labels": names}, graph, labels=labels)
        assert found.labels.tolist() == [0, 1, 2, 3]
    found = open_samples({"x": x, "labels": np.array([3, 0, 1, 2])}, graph, labels=labels)
    assert (found.labels.tolist(), found.class_names) == ([3, 0, 1, 2], FLOWERS)


@pytest.mark.parametrize("one_hot", [False, True])
def test_a_dataset_of_keras_knows_its_folders(graph, labels, one_hot):
    given = np.arange(4)
    given = np.eye(4, dtype=np.float32)[given] if one_hot else given
    x = np.zeros((4, 1, 1, 1), np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, given)).batch(2)
    dataset.class_names = sorted(FLOWERS)
    found = open_samples(dataset, graph, labels=labels)
    assert found.labels.tolist() == [FLOWERS.index(name) for name in sorted(FLOWERS)]


def test_commands_take_the_labels_file(deploykit, tmp_path, labels):
    net, folder = tmp_path / "net.pb", photos(tmp_path / "photos", *FLOWERS[:3])
    save_graph(classifier(), net)
    common = ("verify", net, net, "--data", folder, "--preprocess", "0..255", "--json")
    found = deploykit(*common, "--labels", labels)
    assert found.status == 0, found.stderr
    assert found.document["accuracy_before"] == 1.0
    assert "accuracy_before" not in json.loads(deploykit(*common).stdout)
    assert "needs --data" in deploykit("verify", net, net, "--labels", labels).stderr
