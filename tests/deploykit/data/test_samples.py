"""Calibration and judging take files as they take arrays: same samples, same ranges."""

import json

import numpy as np
import pytest

from deploykit.data.samples import open_feeds, open_samples
from deploykit.importers.graph_files import save_graph
from deploykit.transforms.common.errors import FileError, GraphError
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import Containing, built, raises, random, shows, tf

COUNT, WIDTH = 23, 16
X = random(COUNT, WIDTH)
LABELS = np.arange(COUNT) % 10


@built(["x"], ["out"])
def classifier(batch=None):
    x = tf.compat.v1.placeholder(tf.float32, [batch, WIDTH], name="x")
    tf.nn.relu(tf.matmul(x, random(WIDTH, 10), name="dense"), name="out")


@pytest.fixture(scope="module")
def graph():
    return classifier()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The same samples as CSV files and as arrays."""
    folder = tmp_path_factory.mktemp("samples")
    np.savez(folder / "data.npz", x=X, labels=LABELS)
    (folder / "csv").mkdir()
    for number, part in enumerate(np.array_split(np.arange(COUNT), 2)):
        lines = [",".join([*(repr(float(v)) for v in X[n]), str(LABELS[n])]) for n in part]
        (folder / "csv" / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_samples_of_files_are_those_of_arrays(folder, graph):
    found = open_samples(str(folder / "csv"), graph)
    plain = open_samples(str(folder / "data.npz"), graph)
    assert found.arrays.keys() == plain.arrays.keys() == {"x"}
    for ours, array in ((found.arrays["x"], plain.arrays["x"]), (found.labels, plain.labels)):
        np.testing.assert_array_equal(ours, array)
        assert ours.dtype == array.dtype


def test_labels_that_are_no_classes_stay_as_they_are(folder, graph, tmp_path):
    (tmp_path / "one.csv").write_text(",".join(["1.0"] * WIDTH + ["0.5"]) + "\n")
    found = open_samples(str(tmp_path / "one.csv"), graph)
    assert found.labels == [0.5]


@pytest.mark.parametrize("name", ["csv", "data.npz"])
def test_feeds_can_be_gone_through_again(folder, graph, name):
    feeds, _ = open_feeds(str(folder / name), graph)
    first, again = ([next(iter(feed.values())) for feed in feeds] for _ in range(2))
    assert [len(array) for array in first] == [8, 8, 7]
    np.testing.assert_array_equal(np.concatenate(first), X)
    np.testing.assert_array_equal(np.concatenate(again), X)


def test_a_demanded_batch_leaves_the_rest_out(folder):
    feeds, _ = open_feeds(str(folder / "csv"), classifier(batch=5))
    assert [len(next(iter(feed.values()))) for feed in feeds] == [5] * 4


def test_preprocessing_is_applied(folder, graph, tmp_path):
    (tmp_path / "steps.json").write_text(json.dumps({"format": 1, "inputs": {"x": {"scale": 2.0}}}))
    for name in ("csv", "data.npz"):
        found = open_samples(str(folder / name), graph, str(tmp_path / "steps.json"))
        np.testing.assert_allclose(found.arrays["x"], 2 * X, rtol=1e-6)


def test_what_does_not_fit_begins_with_the_path(folder, graph, tmp_path):
    (tmp_path / "narrow.csv").write_text("1,2,3\n")
    path = str(tmp_path / "narrow.csv")
    for take in (open_samples, open_feeds):
        what = Containing(path, "'x'")
        with raises(GraphError, "does-not-fit", what=what, got="[?, 2]", expected="[?, 16]"):
            take(path, graph)
        with pytest.raises(FileError, match="nowhere"):
            take(str(tmp_path / "nowhere"), graph)


@pytest.mark.sampled
def test_calibrating_with_files_gives_the_same_ranges(deploykit, folder, graph, tmp_path):
    model = tmp_path / "net.pb"
    save_graph(graph, model)
    texts = []
    for name in ("csv", "data.npz"):
        target = tmp_path / f"{name}.json"
        found = deploykit("calibrate", model, "--data", folder / name, "-o", target)
        assert found.status == 0, found.stderr
        texts.append(target.read_text())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["samples"] == COUNT


@pytest.mark.sampled
def test_verifying_with_files_is_verifying_with_arrays(deploykit, graph, tmp_path):
    """Accuracy is taken on the labels of the files, on samples that the preprocessing made."""
    model, steps = tmp_path / "net.pb", tmp_path / "steps.json"
    save_graph(graph, model)
    steps.write_text(json.dumps({"format": 1, "inputs": {"x": {"scale": -1}}}))
    right = np.maximum(-X @ random(WIDTH, 10), 0).argmax(
        1
    )  # of all samples, with their sign turned
    lines = [
        ",".join([*(repr(float(v)) for v in x), str(n)]) for x, n in zip(X, right, strict=True)
    ]
    (tmp_path / "samples.csv").write_text("\n".join(lines) + "\n")
    common = ("verify", model, model, "--json", "--data", tmp_path / "samples.csv")
    turned, plain = deploykit(*common, "--preprocess", steps), deploykit(*common)
    assert (turned.status, plain.status) == (0, 0), turned.stderr + plain.stderr
    assert (turned.document["samples"], turned.document["accuracy_before"]) == (COUNT, 1.0)
    assert plain.document["accuracy_before"] < 0.5


def test_preprocessing_without_data_says_so(deploykit, graph, tmp_path):
    model, steps = tmp_path / "net.pb", tmp_path / "steps.json"
    save_graph(graph, model)
    steps.write_text('{"format": 1}')
    for command in (["verify", model, model], ["quantize", model, "-o", tmp_path / "q.pb"]):
        found = deploykit(*command, "--preprocess", steps)
        assert found.status == 2
        assert shows(found.stderr, "option-needs", option="--preprocess", needed="--data")
    assert not (tmp_path / "q.pb").exists()
