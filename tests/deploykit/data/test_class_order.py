"""Commands number class folders in one order, and refuse one that the model contradicts."""

import json

import numpy as np
import pytest

import deploykit as api
from deploykit.data.samples import open_samples
from deploykit.importers.graph_files import save_graph
from deploykit.importers.metadata_file import About
from deploykit.storage.image_files import png
from deploykit.verification.class_order import ClassOrderError
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import assert_error, built, raises, shows, tf

FLOWERS = ("tulip", "rose", "daisy", "iris")  # in the order of the model's scores
EACH = 16  # so that quantize holds out four of each class


@built(["x"], ["out"])
def classifier():
    """Return a graph with the brightest of four pixels as the class."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 2, 2, 1], name="x")
    y = tf.matmul(tf.reshape(x, [-1, 4]), 8 * np.eye(4, dtype=np.float32), name="dense")
    tf.nn.softmax(y, name="out")


def photos(folder, names=FLOWERS, below=""):
    """Write photos of each class in a folder of its name, or in a folder below that one."""
    random = np.random.default_rng(len(below))
    for number, name in enumerate(names):
        (folder / name / below).mkdir(parents=True)
        for n in range(EACH):
            pixels = random.integers(0, 90, 4)
            pixels[number] = random.integers(160, 256)
            path = folder / name / below / f"{n}.png"
            path.write_bytes(png(pixels.reshape(2, 2, 1).astype(np.uint8)))
    return folder


@pytest.fixture
def home(tmp_path):
    for name in ("net.pb", "same.pb"):
        save_graph(classifier(), tmp_path / name)
    photos(tmp_path / "photos")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).random((64, 2, 2, 1), np.float32))
    (tmp_path / "right.txt").write_text("".join(f"{name}\n" for name in FLOWERS))
    (tmp_path / "wrong.txt").write_text("".join(f"{name}\n" for name in sorted(FLOWERS)))
    return tmp_path


COMMANDS = {
    "accuracy": "accuracy NET SAME --data PHOTOS",
    "gate": "gate NET SAME --data PHOTOS",
    "verify": "verify NET SAME --data PHOTOS",
    "optimize": "optimize NET -o OUT --data PHOTOS",
    "unverified": "optimize NET -o OUT --data PHOTOS --allow-unverified",
    "freeze": "freeze SAVED -o OUT --data PHOTOS",
    "transform": "transform --in_graph NET --out_graph OUT --transforms fold_constants "
    "--verify --data PHOTOS",
    "calibration": "quantize NET -o OUT --calibration PHOTOS",
    "evaluation": "quantize NET -o OUT --calibration ARRAYS --evaluation PHOTOS",
    "ship calibration": "ship NET -o OUT --calibration PHOTOS",
    "ship evaluation": "ship NET -o OUT --evaluation PHOTOS",
}
SLOW = ("gate", "calibration", "ship calibration", "ship evaluation", "freeze", "transform")


def line(home, command):
    names = {"NET": "net.pb", "SAME": "same.pb", "PHOTOS": "photos", "ARRAYS": "x.npz"}
    if "SAVED" in command:
        api.export(classifier(), home, name="saved")
        names["SAVED"] = "saved/1"
    names["OUT"] = "out.pb" if not command.startswith("ship") else "out.ship"
    words = (str(home / names[word]) if word in names else word for word in command.split())
    return (*words, "--preprocess", "0..1")


@pytest.mark.parametrize(
    "command",
    [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in COMMANDS],
)
def test_a_wrong_order_stops_every_command(deploykit, home, command):
    found = deploykit(*line(home, COMMANDS[command]))
    assert (found.status, found.printed) == (2, "")
    names = {"names": sorted(FLOWERS), "other_names": list(FLOWERS)}
    count = found.error.fields["count"]  # quantize holds some samples out
    assert_error(found.error, "class-order-differs", source=str(home / "photos"),
                 hits=0, hits_of_other=count, **names)  # fmt: skip
    assert "--labels FILE" in found.stderr
    assert not (home / "out.pb").exists()


@pytest.mark.sampled
def test_the_order_of_the_message_is_right(deploykit, home):
    net, folder = classifier(), str(home / "photos")
    with raises(ClassOrderError, "class-order-differs") as found:
        api.accuracy(net, folder, preprocess="0..1")
    order = found.value.fields["other_names"]
    (home / "found.txt").write_text("\n".join(order))
    right = api.accuracy(net, folder, preprocess="0..1", labels=home / "found.txt")
    assert right.models[0].score.value == 1


def test_a_given_order_is_only_warned_of(deploykit, home):
    command = line(home, COMMANDS["verify"])
    found = deploykit(*command, "--labels", home / "wrong.txt", "--json")
    assert found.status == 0, found.stderr
    assert found.document["accuracy_before"] == 0
    assert shows(found.stderr, "class-order-differs", hits=0, hits_of_other=4 * EACH)
    found = deploykit(*command, "--labels", home / "right.txt", "--json")
    assert json.loads(found.stdout)["accuracy_before"] == 1
    assert not shows(found.stderr, "class-order-differs")


def nearest(outputs, labels):
    """Return a metric for which the smallest value is the prediction."""
    return float(np.mean(outputs["out"].argmin(1) == labels))


@pytest.mark.sampled
def test_a_metric_of_the_user_may_predict_otherwise(home):
    """Of two classes, the smallest score is the other one."""

    @built(["x"], ["out"])
    def distances():
        x = tf.compat.v1.placeholder(tf.float32, [None], name="x")
        tf.stack([x, 1 - x], 1, name="out")

    x = np.tile(np.float32([0, 1]), 50)
    data = {"x": x, "labels": np.array(["a", "b"])[x.astype(int)]}
    with raises(ClassOrderError, "class-order-differs"):
        api.accuracy(distances(), data)
    found = api.accuracy(distances(), data, metric=f"{__name__}:nearest")
    assert found.models[0].score.value == 1


def test_labels_in_the_metadata_may_be_wrong_too(home):
    net = classifier()
    net.about = About(labels=FLOWERS[::-1])
    with raises(ClassOrderError, "class-order-differs", hits=0, names=list(FLOWERS[::-1])):
        api.accuracy(net, str(home / "photos"), preprocess="0..1")


def test_folders_numbered_as_text_by_keras_are_found(tmp_path):
    """Keras sorts 10 before 2, so a model that it trained has other numbers than the names."""
    x = np.repeat(np.arange(12), 3)
    names = np.array(sorted(map(str, range(12))))[x]

    @built(["x"], ["out"])
    def net():
        given = tf.compat.v1.placeholder(tf.int32, [None], name="x")
        tf.one_hot(given, 12, name="out")

    with raises(ClassOrderError, "class-order-differs", hits=6, hits_of_other=36) as found:
        api.accuracy(net(), {"x": x.astype(np.int32), "labels": names})
    assert found.value.fields["other_names"] == sorted(map(str, range(12)))


@pytest.mark.sampled
def test_a_list_of_labels_is_checked_alike(home):
    folder = home / "photos"
    listed = [f"{name}/{n}.png,{name}\n" for name in FLOWERS for n in range(EACH)]
    (folder / "labels.csv").write_text("".join(listed))
    with raises(ClassOrderError, "class-order-differs", hits=0):
        api.accuracy(classifier(), str(folder), preprocess="0..1")
    found = api.accuracy(classifier(), str(folder), preprocess="0..1", labels=FLOWERS)
    assert found.models[0].score.value == 1


def test_random_labels_stop_nothing(home):
    folder = home / "photos"
    random = np.random.default_rng(2)
    listed = [f"{f}/{n}.png,{random.choice(FLOWERS)}\n" for f in FLOWERS for n in range(EACH)]
    (folder / "labels.csv").write_text("".join(listed))
    assert api.accuracy(classifier(), str(folder), preprocess="0..1").models[0].score.value < 0.6


class Seen(Exception):
    """Ends a command once its samples are read."""


@pytest.mark.sampled
def test_the_order_of_labels_applies_to_all_data_of_quantize(home, monkeypatch):
    seen = []

    def stop(graph, samples, how, *, evaluation, **more):
        seen.extend([samples, evaluation])
        raise Seen

    monkeypatch.setattr("deploykit.api.quantize.quantize_calibrated", stop)
    photos(home / "others")
    with pytest.raises(Seen):
        api.quantize(
            classifier(),
            calibration=str(home / "photos"),
            evaluation=str(home / "others"),
            preprocess="0..1",
            labels=FLOWERS,
        )
    wanted = [FLOWERS.index(name) for name in sorted(FLOWERS) for _ in range(EACH)]
    assert [item.labels.tolist() for item in seen] == [wanted, wanted]
    assert all(item.is_order_given for item in seen)


@pytest.mark.sampled
@pytest.mark.parametrize("given", [None, FLOWERS])
def test_nested_folders_belong_to_the_first_one(deploykit, tmp_path, given):
    net = classifier()
    flat, nested = photos(tmp_path / "flat"), photos(tmp_path / "nested", below="rose/iris")
    wanted = open_samples(str(flat), net, "0..1", labels=given).labels.tolist()
    assert open_samples(str(nested), net, "0..1", labels=given).labels.tolist() == wanted
    done = deploykit("records", "convert", nested, tmp_path / "records")
    assert done.status == 0, done.stderr
    read = open_samples(str(tmp_path / "records"), net, "0..1", labels=given)
    assert sorted(read.labels.tolist()) == sorted(wanted)
    if given:
        np.testing.assert_array_equal(read.labels, read.arrays["x"].reshape(-1, 4).argmax(1))


def test_optimize_takes_the_labels(home):
    report = api.optimize(
        classifier(), data=str(home / "photos"), preprocess="0..1", labels=FLOWERS
    ).report
    assert report.verification.accuracy == (1, 1)


@pytest.mark.slow
def test_keras_numbers_nested_folders_alike(tmp_path):
    folder, net = photos(tmp_path / "nested", below="rose/iris"), classifier()
    keras = tf.keras.utils.image_dataset_from_directory(
        folder, image_size=(2, 2), color_mode="grayscale", shuffle=False, verbose=False
    )
    for given in (None, FLOWERS):
        found = open_samples(keras, net, labels=given).labels.tolist()
        assert found == open_samples(str(folder), net, "0..1", labels=given).labels.tolist()
