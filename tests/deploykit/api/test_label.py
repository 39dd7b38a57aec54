"""`deploykit.label` from a notebook, and models that know their labels."""

import json
import re

import numpy as np
import pytest

import deploykit as api
from deploykit.importers.metadata_file import About
from deploykit.storage.image_files import png
from deploykit.transforms.common.errors import Error, GraphError
from tests.deploykit.client.test_label_image import PIXELS, encoded, model
from tests.support import Containing, because, raises, says, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")

NAMES = [f"label {n}" for n in range(48)]
STEPS = {"format": 1, "inputs": {"x": {"resize": [4, 4], "mean": [1], "std": [2], "scale": 1}}}


@pytest.fixture
def files(tmp_path):
    """Return a photo, a model whose scores are the values that it is fed, and its labels."""
    paths = [tmp_path / name for name in ("photo.png", "model.pb", "labels.txt")]
    contents = (encoded("png"), model(), "".join(f"{name}\n" for name in NAMES).encode())
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def knowing(path, labels=NAMES, preprocessing=STEPS):
    """Let the model's file say what its users know of it."""
    graph = api.load_graph(path, outputs=["scores"])
    graph.about = About({}, preprocessing, labels)
    api.save_graph(graph, path, force=True)


def scores(found):
    by_class = {each["class"]: each["score"] for each in found.predictions}
    return np.array([by_class[n] for n in range(48)])


def test_options_are_fields_with_the_defaults_of_the_command(files):
    with pytest.raises(TypeError, match=Containing("'input_heigth'", "input_height").pattern):
        api.label(*files, input_heigth=3)
    with raises(Error, "preprocess-or-input-options"):
        api.label(*files, preprocess="steps.json", input_mean=3)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("channels", [3, 4])
def test_an_array_is_taken_as_its_file_is(files, dtype, channels):
    photo, net, labels = files
    knowing(net)
    pixels = np.dstack([PIXELS, np.full((4, 4, channels - 3), 7, np.uint8)])
    for how in ({}, {"input_mean": 2.0}):
        expected = scores(api.label(photo, net, labels, top=48, **how))
        found = api.label(pixels.astype(dtype), net, labels, top=48, **how)
        np.testing.assert_array_equal(scores(found), expected)
        assert found.image is None
    assert expected.std() > 0.1


def test_a_grey_array(files):
    _, net, labels = files
    grey = PIXELS[:, :, 0]
    for pixels in (grey, grey[:, :, np.newaxis]):
        found = api.label(pixels, net, labels, outputs=["scores"], top=48, input_std=1)
        np.testing.assert_array_equal(scores(found), np.repeat(grey.ravel(), 3))


@pytest.mark.parametrize(
    ("pixels", "words"),
    [
        (PIXELS / 255, says("image-values-not-pixels", dtype="float64")),
        (PIXELS.astype(int) - 128, says("image-values-not-pixels", dtype="int64")),
        (np.full((2, 2, 3), np.nan), says("image-values-not-pixels")),
        (PIXELS > 3, says("image-values-not-pixels", dtype="bool")),
        (PIXELS[np.newaxis], says("image-shape-not-writable", shape=[1, 4, 4, 3])),
        (PIXELS[:, :, :2], says("image-shape-not-writable", shape=[4, 4, 2])),
        (PIXELS[:0], says("image-shape-not-writable", shape=[0, 4, 3])),
    ],
)
def test_arrays_that_are_no_images(files, pixels, words):
    with pytest.raises(GraphError) as error:
        api.label(pixels, *files[1:])
    assert re.search(words, str(error.value))


def test_a_png_loses_nothing():
    for channels in (1, 3, 4):
        pixels = np.random.default_rng(channels).integers(0, 256, (5, 7, channels))
        assert np.array_equal(tf.io.decode_png(png(pixels)).numpy(), pixels)


def test_a_model_may_know_its_labels_and_what_becomes_of_a_photo(deploykit, files):
    photo, net, _ = files
    knowing(net)
    found = deploykit("label", photo, "--model", net, "--json", "--top=48")
    assert found.status == 0, found.stderr
    text = "photos 4x4 -> 4x4 bilinear, -0.5..127 (from the model metadata file)"
    used = because("using-metadata", what="labels and preprocessing", file=f"{net}.json")
    assert found.stderr == Containing(used, text)
    assert found.document["fed"] == {"x": text}
    by_class = {each["class"]: each for each in found.document["predictions"]}
    expected = (PIXELS.ravel() - 1.0) / 2
    np.testing.assert_allclose([by_class[n]["score"] for n in range(48)], expected, rtol=1e-6)
    assert by_class[7]["label"] == "label 7"
    assert found.document["labels"] is None


@pytest.mark.sampled
def test_what_is_given_wins(deploykit, files, tmp_path):
    photo, net, labels = files
    knowing(net, labels=["another"] * 48)
    plain = PIXELS.ravel() / 255
    found = deploykit("label", photo, "--model", net, "--labels", labels, "--json")
    used = because("using-metadata", what="preprocessing", file=f"{net}.json")
    assert used in found.stderr
    assert found.document["predictions"][0]["label"].startswith("label ")
    for how in ({"input_mean": 0}, {"input_std": 255.0}, {"input_height": 4}, {"input_width": 4}):
        np.testing.assert_allclose(scores(api.label(photo, net, top=48, **how)), plain, rtol=1e-6)
    steps = tmp_path / "steps.json"
    steps.write_text(json.dumps({"format": 1, "inputs": {"x": {"scale": 3}}}))
    tripled = scores(api.label(photo, net, labels, top=48, preprocess=steps))
    np.testing.assert_allclose(tripled, PIXELS.ravel() * 3.0, rtol=1e-6)


def test_a_graph_in_memory_knows_them_too(files, caplog):
    photo, net, _ = files
    knowing(net)
    with caplog.at_level("INFO", "deploykit"):
        found = api.label(photo, api.load_graph(net), top=48)
    np.testing.assert_allclose(scores(found), (PIXELS.ravel() - 1.0) / 2, rtol=1e-6)
    assert shows(caplog.messages[0], "using-metadata", what="labels and preprocessing")


def test_a_model_that_knows_a_part(deploykit, files):
    photo, net, _ = files
    knowing(net, labels=(), preprocessing=STEPS)
    found = deploykit("label", photo, "--model", net)
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "class-names-unknown", source=net)
    knowing(net, preprocessing={"format": 1, "inputs": {"other": {"scale": 3}}})
    found = deploykit("label", photo, "--model", net)
    assert found.stderr == Containing(f"{net}.json", "4x4 -> 4x4", "0..1 (", "255)")
    knowing(net, preprocessing={"format": 1, "inputs": {"x": {"resise": [4, 4]}}})
    found = deploykit("label", photo, "--model", net)
    assert found.status == 2
    assert shows(found.stderr, "unknown-name", name="resise", hint=Containing("resize"))
