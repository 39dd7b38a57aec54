"""A folder of `deploykit ship` is served as it lies there, and what is wrong with it is said."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

import deploykit as api
from deploykit.api import shipped as shipped_module
from deploykit.api.shipped import shipped_in, tuned_of
from deploykit.calling.png import png
from deploykit.hardware.machine import machine
from deploykit.transforms.core.errors import FileError, GraphError
from tests.serving.served import Served
from tests.serving.small_models import half_plus
from tests.support import build

NAMES = ("top", "bottom")
SETTINGS = api.Settings(threads=(2, 1), concurrency=3, engine="openvino")


def written(folder, document):
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "report.json").write_text(text)


def tuned(folder, settings=SETTINGS, **differing):
    document = {"format": 1, "kind": "tuned", "settings": settings.document(),
                "machine": {**machine(), **differing}}  # fmt: skip
    (folder / "tuned.json").write_text(json.dumps(document))


@pytest.fixture
def ship(tmp_path):
    """Return a folder as `ship` writes it, with another model that is none of its."""
    folder = tmp_path / "shapes.ship"
    folder.mkdir()
    half_plus(folder / "shapes", 2)
    half_plus(folder / "other", 3)
    written(folder, {"format": 1, "kind": "ship", "name": "shapes"})
    tuned(folder)
    return folder


def served(folder, **how):
    with api.serve(folder, port=0, **how) as server:
        loading = server.settings.loading
        found = api.predict(server.address, how.get("model_name") or "shapes", {"x": [[2.0]]})
        assert found.outputs["y"].shape == (1, 1)
        return dict(server.models), (loading.intra_op, loading.engine, server.settings.slots)


def test_the_model_is_served_under_its_name_as_tune_found(ship, caplog):
    caplog.set_level(logging.INFO)
    models, taken = served(ship)
    assert [*models] == ["shapes"]
    assert taken == (2, "auto", 3)  # a version says itself what computes it
    assert f"{ship / 'tuned.json'} is taken: threads 2x1, 3 in flight" in caplog.text
    assert "another machine" not in caplog.text


def test_what_is_given_wins(ship, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    models, taken = served(ship, model_name="mine", slots=5, tensorflow_intra_op_parallelism=1)
    assert ([*models], taken) == (["mine"], (1, "auto", 5))
    other = tmp_path / "other"
    other.mkdir()
    tuned(other, api.Settings(threads=(1, 1), concurrency=4))
    assert served(ship, tuned=other / "tuned.json")[1] == (1, "auto", 4)
    assert tuned_of(ship, other / "tuned.json").concurrency == 4
    assert tuned_of(ship, None).concurrency == 3
    assert tuned_of(None, None) == tuned_of(tmp_path, None) == api.Settings()


def test_a_folder_that_was_moved_or_has_no_settings(ship, tmp_path, caplog):
    moved = tmp_path / "elsewhere"
    shutil.move(ship, moved)
    assert served(moved)[1][0] == 2
    (moved / "tuned.json").unlink()
    caplog.clear()
    assert [*served(moved)[0]] == ["shapes"]
    assert "tuned.json" not in caplog.text


@pytest.mark.parametrize(
    "differing", [{"cpu": "Another CPU"}, {"cpus": 999}, {"cpu_limit": 0.5, "cpu": "Another CPU"}]
)
def test_settings_of_another_machine_are_taken_with_a_warning(ship, caplog, differing):
    tuned(ship, **differing)
    shipped_in(ship)[0].say(SETTINGS)
    assert "was found on another machine (" in caplog.text
    for value in differing.values():
        assert f"{value} there" in caplog.text


DAMAGED = ['{"format": 1, "kind": "ship", "na', {"format": 9, "kind": "ship", "name": "shapes"},
           {"format": 1, "kind": "ship"}, {"format": 1, "kind": "ship", "name": "../shapes"},
           {"format": 1, "kind": "ship", "name": ".."}, {"format": 1, "kind": "ship", "name": 3},
           "\x00\xff"]  # fmt: skip


@pytest.mark.parametrize("document", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_report_is_warned_of_and_the_models_are_served(ship, document):
    written(ship, document)
    found, warning = shipped_in(ship)
    assert found is None
    assert str(ship / "report.json") in warning
    assert "served as in any other folder, without tuned.json" in warning


def test_models_beside_a_damaged_report_are_served(ship, caplog):
    written(ship, "{")
    with api.serve(ship, port=0) as server:
        assert sorted(server.models) == ["other", "shapes"]
        assert server.settings.loading.intra_op != 2
    assert "without tuned.json" in caplog.text


@pytest.mark.parametrize("document", [{"kind": "benchmark"}, [], "7", {"a": 1}])
def test_a_report_of_others_says_nothing(ship, document):
    written(ship, document)
    assert shipped_in(ship) == (None, "")


def test_a_model_that_is_not_there_is_named(ship):
    shutil.rmtree(ship / "shapes")
    with pytest.raises(FileError, match=f"{ship / 'shapes'}: there is no such folder, but "):
        api.serve(ship, port=0)
    (ship / "shapes").mkdir()
    with pytest.raises(GraphError, match=f"{ship / 'shapes'}: it holds no model"):
        api.serve(ship, port=0)


@pytest.mark.parametrize("content", ["{", "{}", json.dumps({"kind": "tuned", "format": 1})])
def test_settings_that_cannot_be_read_are_an_error_with_a_way_out(ship, content):
    (ship / "tuned.json").write_text(content)
    for take in (lambda: api.serve(ship, port=0), lambda: tuned_of(ship, None)):
        with pytest.raises(GraphError, match=f"^{ship / 'tuned.json'}: .*; deploykit serve "
                           f"{ship / 'shapes'} does without it$"):  # fmt: skip
            take()


def test_an_unreadable_settings_file_is_an_error_with_a_way_out(ship, monkeypatch):
    def refuse(path):
        raise FileError(f"{path}: Permission denied")

    monkeypatch.setattr(shipped_module, "load_tuned", refuse)
    with pytest.raises(FileError, match=r"Permission denied; deploykit serve .* does without it"):
        shipped_in(ship)[0].settings()


def photo_net():
    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 1], name="photo")
        halves = tf.reduce_mean(tf.reshape(x / 255.0, [-1, 2, 4, 8]), [2, 3])
        tf.nn.softmax(8 * halves, name="out")

    return build(body, ["photo"], ["out"])


def test_one_command_serves_what_was_shipped(deploykit, tmp_path):
    """As a stranger does it: no flag, and the answer names classes."""
    folder, photo = tmp_path / "halves.ship", tmp_path / "rose.png"
    api.export(photo_net(), folder, name="halves", preprocess="0..255", labels=NAMES)
    written(folder, {"format": 1, "kind": "ship", "name": "halves"})
    tuned(folder, api.Settings(threads=(1, 1), keep_memory=True))
    pixels = np.zeros((30, 20, 1), np.uint8)
    pixels[15:] = 250
    photo.write_bytes(png(pixels))
    server = Served(folder)
    try:
        assert server.document["models"] == {"halves": [1]}
        found = deploykit("predict", server.address, "halves", photo, "--json")
        assert found.status == 0, found.stderr
        assert found.document["predictions"][0][0]["label"] == "bottom"
        environment = Path(f"/proc/{server.document['pid']}/environ").read_bytes()
        assert b"MALLOC_" in environment  # of `keep_memory`, set before TensorFlow began
    finally:
        status, said = server.end()
    assert status == 0
    assert said.count("tuned.json is taken: threads 1x1, keep memory on") == 1
