"""Keras files that were made to do harm: each ends in one sentence, and no other file is read."""

import shutil
import zipfile

import pytest

import deploykit
from deploykit.transforms.common.errors import GraphError, RefusedError
from tests.support import Containing, run, says

pytestmark = pytest.mark.usefixtures("in_process")

PATH = "model_weights/dense/sequential/dense/kernel"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return a folder with a model in both formats, and the weights of another one."""
    import keras

    folder = tmp_path_factory.mktemp("good")
    for name in ("good.keras", "good.h5", "secret.h5"):
        net = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3, name="dense")], name="sequential"
        )
        net.save(folder / name)
    return folder


ARCHIVES = {
    "deep": (lambda e: e | {"config.json": b'{"a":' * 200_000}, "nested"),
    "digits": (lambda e: e | {"config.json": b'{"a":' + b"9" * 9000 + b"}"}, says("json-expected")),
    "utf-16": (lambda e: e | {"config.json": b"\xff\xfe\0"}, says("json-expected")),
    "list": (lambda e: e | {"config.json": b"[1]"}, says("not-a-keras-model")),
    "long": (
        lambda e: e | {"config.json": b" " * (65 << 20)},
        says("over-limit", what=Containing("config.json"), most="64 MiB"),
    ),
    "about": (
        lambda e: e | {"metadata.json": b"[]"},
        says("not-a-keras-description", name="metadata.json"),
    ),
    "gone": (
        lambda e: {"config.json": e["config.json"]},
        says("keras-archive-incomplete", name="metadata.json"),
    ),
    "above": (lambda e: e | {"../../evil": b"x"}, says("archive-entry-outside", name="../../evil")),
    "root": (lambda e: e | {"/etc/evil": b"x"}, says("archive-entry-outside", name="/etc/evil")),
    "weights": (
        lambda e: e | {"model.weights.h5": b"\x89HDF"},
        says("runtime-failed", runtime="Keras", action="load the model"),
    ),
    "bomb": (
        lambda e: e | {"x": bytes(1 << 30)},
        says("archive-bomb", unpacked="1 GiB"),
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("case", ARCHIVES)
def test_archives(good, tmp_path, case):
    change, said = ARCHIVES[case]
    with zipfile.ZipFile(good / "good.keras") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(
        tmp_path / "x.keras", "w", zipfile.ZIP_DEFLATED, compresslevel=1
    ) as written:
        for name, content in change(entries).items():
            written.writestr(name, content)
    with pytest.raises(GraphError, match=f"^{tmp_path}/x.keras: .*{said}") as found:
        deploykit.freeze(tmp_path / "x.keras")
    assert "\n" not in str(found.value)


def external(file, folder):
    import h5py

    file[PATH] = h5py.ExternalLink(str(folder / "secret.h5"), PATH)


def soft(file, folder):
    import h5py

    file[PATH] = h5py.SoftLink(f"/{PATH}")


def stored_elsewhere(file, folder):
    file.create_dataset(PATH, (4, 3), "f4", external=[("/etc/passwd", 0, 48)])


def virtual(file, folder):
    import h5py

    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), PATH, (4, 3))
    file.create_virtual_dataset(PATH, layout)


def huge(file, folder):
    file.create_dataset(PATH, (1 << 20, 1 << 20), "f4", chunks=(1024, 1024), compression="gzip")


HDF5 = {
    external: (RefusedError, says("hdf5-link")),
    soft: (RefusedError, says("hdf5-link")),
    stored_elsewhere: (RefusedError, says("hdf5-external")),
    virtual: (RefusedError, says("hdf5-external")),
    huge: (GraphError, says("archive-bomb", unpacked="4.1e+03 GiB")),
}


@pytest.mark.parametrize("change", HDF5, ids=lambda change: change.__name__)
@pytest.mark.parametrize("version", [None, b"2.15.0"])
def test_hdf5(good, tmp_path, change, version):
    import h5py

    kind, said = HDF5[change]
    shutil.copy(good / "good.h5", tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        if version is not None:  # whose own loader looks at nothing
            file.attrs["keras_version"] = version
        del file[PATH]
        change(file, good)
    with pytest.raises(kind, match=f"^{tmp_path}/x.h5: .*{said}"):
        deploykit.freeze(tmp_path / "x.h5")


def test_a_circle_of_groups_ends(good, tmp_path):
    import h5py

    shutil.copy(good / "good.h5", tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["model_weights/again"] = file["model_weights"]
    assert deploykit.freeze(tmp_path / "x.h5").inputs


@pytest.mark.sampled
def test_a_good_one_is_read_and_in_safe_mode(good, monkeypatch):
    import keras
    import numpy as np

    load, asked = keras.models.load_model, []
    monkeypatch.setattr(
        keras.models, "load_model", lambda *a, **k: asked.append(k["safe_mode"]) or load(*a, **k)
    )
    for name in ("good.keras", "good.h5"):
        graph = deploykit.freeze(good / name)
        x = np.ones((2, 4), np.float32)
        assert run(graph, {graph.inputs[0]: x})[0].shape == (2, 3)
    assert asked == [True, True]
