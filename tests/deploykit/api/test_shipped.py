"""A folder of `deploykit ship` is served as it lies there, and what is wrong with it is said."""

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import deploykit as api
from deploykit.api.shipped import shipped_in, tuned_of
from deploykit.exporting.deployment import Manifests
from deploykit.importers.graph_files import save_graph
from deploykit.storage.image_files import png
from deploykit.system.machine import machine
from deploykit.transforms.common.errors import FileError, GraphError, MismatchError
from tests import pairwise
from tests.deploykit.benchmarking.nets import dense
from tests.serving.served import Served
from tests.serving.small_models import half_plus
from tests.support import Containing, built, lines_with, raises, shows, tf

NAMES = ("top", "bottom")
REPORT = {"format": 1, "kind": "ship", "name": "shapes", "stages": [{"stage": "serve"}]}
SETTINGS = api.RunConfig(threads=(2, 1), concurrency=3, engine="openvino")


def written(folder, document):
    text = document if isinstance(document, str) else json.dumps(document)
    (folder / "report.json").write_text(text)


def tuned(folder, settings=SETTINGS, model_sha256=None, **differing):
    document = {"format": 1, "kind": "tuned", "settings": settings.document(),
                "machine": {**machine(), **differing}}  # fmt: skip
    if model_sha256 is not None:
        document["model_sha256"] = model_sha256
    (folder / "tuned.json").write_text(json.dumps(document))


@pytest.fixture
def ship(tmp_path):
    """Return a folder as `ship` writes it, with another model that is none of its."""
    folder = tmp_path / "shapes.ship"
    folder.mkdir()
    half_plus(folder / "shapes", 2)
    half_plus(folder / "other", 3)
    written(folder, REPORT)
    tuned(folder)
    return folder


def served(folder, **how):
    with api.serve(folder, port=0, **how) as server:
        loading = server.settings.loading
        found = api.predict(server.address, how.get("model_name") or "shapes", {"x": [[2.0]]})
        assert found.outputs["y"].shape == (1, 1)
        return dict(server.models), (loading.intra_op, loading.engine, server.settings.slots)


@pytest.mark.sampled
def test_the_model_is_served_under_its_name_as_tune_found(ship, caplog):
    caplog.set_level(logging.INFO)
    models, taken = served(ship)
    assert [*models] == ["shapes"]
    assert taken == (2, "auto", 3)  # a version says itself what computes it
    settings = Containing("2x1", "3")
    assert shows(caplog.text, "tuned-used", file=ship / "tuned.json", settings=settings)
    assert not shows(caplog.text, "tuned-elsewhere")


def test_what_is_given_wins(ship, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    models, taken = served(ship, model_name="mine", slots=5, tensorflow_intra_op_parallelism=1)
    assert ([*models], taken) == (["mine"], (1, "auto", 5))
    other = tmp_path / "other"
    other.mkdir()
    tuned(other, api.RunConfig(threads=(1, 1), concurrency=4))
    assert served(ship, tuned=other / "tuned.json")[1] == (1, "auto", 4)
    assert tuned_of(ship, other / "tuned.json").concurrency == 4
    assert tuned_of(ship, None).concurrency == 3
    assert tuned_of(None, None) == tuned_of(tmp_path, None) == api.RunConfig()


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
    shipped_in(ship)[0].say(True)
    for value in differing.values():
        assert shows(caplog.text, "tuned-elsewhere", differences=Containing(str(value)))


DAMAGED = ['{"format": 1, "kind": "ship", "na', {"format": 9, "kind": "ship", "name": "shapes"},
           {"format": 1, "kind": "ship"}, {"format": 1, "kind": "ship", "name": "../shapes"},
           {"format": 1, "kind": "ship", "name": ".."}, {"format": 1, "kind": "ship", "name": 3},
           "\x00\xff"]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("document", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_report_is_warned_of_and_the_models_are_served(ship, document):
    written(ship, document)
    found, warning = shipped_in(ship)
    assert found is None
    assert str(ship / "report.json") in warning
    assert shows(warning, "tuned-left-out", file="tuned.json")


def test_models_beside_a_damaged_report_are_served(ship, caplog):
    written(ship, "{")
    with api.serve(ship, port=0) as server:
        assert sorted(server.models) == ["other", "shapes"]
        assert server.settings.loading.intra_op != 2
    assert shows(caplog.text, "tuned-left-out", file="tuned.json")


@pytest.mark.sampled
@pytest.mark.parametrize("document", [{"kind": "benchmark"}, [], "7", {"a": 1}])
def test_a_report_of_others_says_nothing(ship, document):
    written(ship, document)
    assert shipped_in(ship) == (None, "")


def test_a_model_that_is_not_there_is_named(ship):
    shutil.rmtree(ship / "shapes")
    with raises(FileError, "shipped-model-missing", source=ship / "shapes"):
        api.serve(ship, port=0)
    (ship / "shapes").mkdir()
    with raises(GraphError, "base-path-empty", source=ship / "shapes"):
        api.serve(ship, port=0)


UNUSABLE = [
    "{", "{}", json.dumps({"kind": "tuned", "format": 1}),
    *(json.dumps({"kind": "tuned", "format": 1, "settings": each}) for each in (
        {"concurrency": 100_000}, {"threads": [10**9, 1]}, {"threads": [1, 10**5]},
        {"batch": 10**12}, {"omp_num_threads": 10**6}, {"concurrency": 0}, {"batch": 2.5},
        {"kmp_affinity": "a\0b"}, {"kmp_blocktime": "forever"},
    )),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(
    "content",
    pairwise.drawn(
        "settings_that_cannot_be_used_are_ignored_with_one_warning", UNUSABLE, 2, quick=4
    ),
    ids=range(len(UNUSABLE)),
)
def test_settings_that_cannot_be_used_are_ignored_with_one_warning(ship, content, caplog):
    (ship / "tuned.json").write_text(content)
    caplog.set_level(logging.WARNING, "deploykit")
    assert tuned_of(ship, None) == api.RunConfig()
    assert served(ship)[1] == served(ship / "shapes")[1]
    assert len(lines_with(caplog.text, "tuned-ignored", file=ship / "tuned.json")) == 1
    with pytest.raises(GraphError, match=r"tuned\.json"):  # named by an option, it is an error
        api.serve(ship / "shapes", port=0, tuned=ship / "tuned.json")


def test_variables_of_a_shipment_that_may_load_code_are_an_error(ship):
    document = {"kind": "tuned", "format": 1, "settings": {"env": {"LD_PRELOAD": "a.so"}}}
    (ship / "tuned.json").write_text(json.dumps(document))
    with raises(GraphError, "variable-from-file", name="LD_PRELOAD"):
        api.serve(ship, port=0)


def test_an_unfinished_shipment_is_not_served(ship):
    written(ship, {**REPORT, "stages": []})
    with raises(FileError, "shipment-unfinished"):
        api.serve(ship, port=0)


@pytest.fixture
def exported(tmp_path):
    """Return a finished shipment whose version was exported from its model.pb."""
    folder = tmp_path / "shapes.ship"
    for name in ("shapes.ship", "other.ship"):
        (tmp_path / name).mkdir()
        net = dense(shape=(-1, 8 if name == "shapes.ship" else 6))
        save_graph(net, tmp_path / name / "model.pb")
        api.export(tmp_path / name / "model.pb", tmp_path / name, name="shapes")
        written(tmp_path / name, REPORT)
        sha256 = api.open_model(tmp_path / name / "model.pb").sha256
        tuned(tmp_path / name, api.RunConfig(threads=(2, 1), concurrency=3), sha256)
    return folder


def another_model(folder, other):
    shutil.copy(other / "model.pb", folder)


def another_tuned(folder, other):
    shutil.copy(other / "tuned.json", folder)


def another_version(folder, other):
    shutil.copytree(other / "shapes" / "1", folder / "shapes" / "2")


def replaced_version(folder, other):
    shutil.copy(other / "shapes" / "1" / "saved_model.pb", folder / "shapes" / "1")


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (another_model, "model.pb"),
        (another_tuned, "model.pb"),
        (another_version, "shapes/2/saved_model.pb"),
        (replaced_version, "shapes/1/saved_model.pb"),
    ],
)
def test_settings_of_another_model_are_ignored_with_one_warning(exported, caplog, harm, name):
    assert tuned_of(exported, None).concurrency == 3
    harm(exported, exported.with_name("other.ship"))
    caplog.set_level(logging.WARNING, "deploykit")
    with api.serve(exported, port=0) as server:
        assert server.settings.loading.intra_op == 1
    (warning,) = [each.getMessage() for each in caplog.records]
    assert str(exported / "tuned.json") in warning
    assert str(exported / name) in warning
    assert tuned_of(exported, None) == api.RunConfig()


@pytest.mark.sampled
def test_a_named_file_of_settings_of_another_model_is_an_error(exported, tmp_path):
    own, other = exported / "tuned.json", exported.with_name("other.ship") / "tuned.json"
    model, data = exported / "model.pb", {"x": np.ones((2, 8), np.float32)}
    manifests = {each: Manifests(("docker",), tuned=each, force=True) for each in (own, other)}
    uses = [
        lambda file: api.serve(exported, port=0, tuned=file).close(),
        lambda file: api.serve(exported / "shapes", port=0, tuned=file).close(),
        lambda file: api.benchmark(model, tuned=file, runs=3),
        lambda file: api.infer(model, npz, tmp_path / f"out{len(str(file))}", tuned=file),
        lambda file: api.export(model, tmp_path / "models", manifests=manifests[file]),
    ]
    npz = tmp_path / "data.npz"
    np.savez(npz, **data)
    for use in uses:
        use(own)
        with raises(MismatchError, "measured-on-other-model"):
            use(other)


def test_settings_that_were_measured_on_the_version_itself_fit(exported, tmp_path):
    file = tmp_path / "t" / "tuned.json"
    file.parent.mkdir()
    sha256 = api.open_model(exported / "shapes" / "1").sha256
    tuned(file.parent, api.RunConfig(threads=(2, 1)), sha256)
    with api.serve(exported / "shapes", port=0, tuned=file) as server:
        assert server.settings.loading.intra_op == 2


@built(["photo"], ["out"])
def photo_net():
    x = tf.compat.v1.placeholder(tf.float32, [None, 8, 8, 1], name="photo")
    halves = tf.reduce_mean(tf.reshape(x / 255.0, [-1, 2, 4, 8]), [2, 3])
    tf.nn.softmax(8 * halves, name="out")


def test_one_command_serves_what_was_shipped(deploykit, tmp_path):
    """As a stranger does it: no flag, and the answer names classes."""
    folder, photo = tmp_path / "halves.ship", tmp_path / "rose.png"
    api.export(photo_net(), folder, name="halves", preprocess="0..255", labels=NAMES)
    written(folder, {**REPORT, "name": "halves"})
    tuned(folder, api.RunConfig(threads=(1, 1), keep_memory=True))
    pixels = np.zeros((30, 20, 1), np.uint8)
    pixels[15:] = 250
    photo.write_bytes(png(pixels))
    server = Served(folder, forked=False)
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
    used = {"file": Containing("tuned.json"), "settings": "threads 1x1, keep memory on"}
    assert len(lines_with(said, "tuned-used", **used)) == 1


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["tuned.json", "report.json"])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "dangling"])
def test_what_is_there_instead_of_a_file_is_not_passed_over_in_silence(ship, name, kind, caplog):
    path = ship / name
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else ship / "gone")
    shipped, problem = shipped_in(ship)
    if name == "report.json":
        assert shipped is None
        assert str(path) in problem
        return
    assert shipped.settings() == api.RunConfig()
    shipped.say(takes_settings=True)
    assert shows(caplog.text, "tuned-ignored", file=path)
