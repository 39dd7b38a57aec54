"""The folders of CIFAR's archives: train, validation and test in one go, and used by name."""

import pickle

import numpy as np
import pytest

from deploykit.records.index import load_index
from deploykit.records.open_source import record_sets
from tests.deploykit.records.conftest import cifar_batch, parsed
from tests.support import raises, shows, tf

BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


@pytest.fixture(params=["py", "bin"])
def cifar_10(request, tmp_path):
    """The folder as the archive unpacks it, and its images and labels by file."""
    folder = tmp_path / f"cifar-10-batches-{request.param}"
    folder.mkdir()
    binary = request.param == "bin"
    made = {
        name: cifar_batch(folder / f"{name}{'.bin' if binary else ''}", seed=seed, binary=binary)
        for seed, name in enumerate(BATCHES)
    }
    (folder / "readme.html").write_text("<html></html>")
    if binary:
        (folder / "batches.meta.txt").write_text("cat\ndog\n\n")
    else:
        meta = {b"label_names": [b"cat", b"dog"], b"num_vis": 3072}
        (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
    return folder, made


def test_all_sets_in_one_go(deploykit, tmp_path, cifar_10):
    folder, made = cifar_10
    out = tmp_path / "out"
    found = deploykit("records", folder, out, "--json")
    assert found.status == 0, found.stderr
    assert [each["name"] for each in found.document["sets"]] == ["train", "validation", "test"]
    assert [each["records"] for each in found.document["sets"]] == [16, 4, 4]
    for name, files in (
        ("train", BATCHES[:4]), ("validation", BATCHES[4:5]), ("test", BATCHES[5:]),
    ):  # fmt: skip
        values = parsed(out, name)
        expected = np.concatenate([made[each][0] for each in files])
        np.testing.assert_array_equal(values["pixels"], expected)
        labels = np.concatenate([made[each][1][:, 0] for each in files])
        np.testing.assert_array_equal(values["label"], labels)
        assert load_index(out, name).classes == ("cat", "dog")
        assert deploykit("records", "verify", out, "--name", name).status == 0
        assert f" records '{name}'" in deploykit("records", "inspect", out, "--name", name).stdout
    assert not list(out.glob(".*"))  # nothing is kept of a run that has ended
    again = deploykit("records", folder, out)
    assert (again.status, shows(again.stderr, "exists")) == (4, True)
    assert deploykit("records", folder, out, "--force").status == 0


def test_cifar_100(deploykit, tmp_path):
    folder, out = tmp_path / "cifar-100-python", tmp_path / "out"
    folder.mkdir()
    made = {name: cifar_batch(folder / name, hundred=True, binary=False, seed=len(name))
            for name in ("train", "test")}  # fmt: skip
    found = deploykit("records", folder, out)
    assert found.status == 0, found.stderr
    assert "4 records 'train'" in found.stdout
    assert "4 records 'test'" in found.stdout
    for name, (pixels, labels) in made.items():
        np.testing.assert_array_equal(parsed(out, name)["pixels"], pixels)
        np.testing.assert_array_equal(parsed(out, name)["coarse_label"], labels[:, 0])


def test_a_name_goes_before(tmp_path, deploykit, cifar_10):
    folder, _ = cifar_10
    assert deploykit("records", folder, tmp_path / "out", "--name=c10").status == 0
    names = sorted(path.name for path in (tmp_path / "out").glob("*.json"))
    assert names == [f"c10-{each}.index.json" for each in ("test", "train", "validation")]


def test_other_sources_are_one_set(tmp_path, cifar_10):
    folder, _ = cifar_10
    files = sorted(folder.glob("data_batch*"))
    assert record_sets(files) == {"data": files}
    assert record_sets([tmp_path / "a.csv"], "mine") == {"mine": [tmp_path / "a.csv"]}
    for path in folder.glob("test_batch*"):
        path.unlink()
    assert record_sets([folder]) == {"data": [folder]}


def test_a_batch_that_is_missing_is_named(deploykit, tmp_path, cifar_10):
    folder, _ = cifar_10
    (gone,) = folder.glob("data_batch_3*")
    gone.unlink()
    found = deploykit("records", folder, tmp_path / "out")
    assert found.status == 2
    assert shows(found.stderr, "cifar-incomplete")
    assert not (tmp_path / "out").exists()


def test_an_interrupted_run_goes_on(deploykit, tmp_path, cifar_10):
    """The second set is damaged; the first is not written again, and others are refused."""
    folder, _ = cifar_10
    out = tmp_path / "out"
    (broken,) = folder.glob("data_batch_5*")
    content = broken.read_bytes()
    broken.write_bytes(content[:-7])
    assert deploykit("records", folder, out).status == 2
    (first,) = out.glob("train-*.tfrecord")
    written = first.stat().st_mtime_ns
    broken.write_bytes(content)
    found = deploykit("records", folder, out, "--json")
    assert found.status == 0, found.stderr
    assert [each["kept"] for each in found.document["sets"]] == [1, 0, 0]
    assert first.stat().st_mtime_ns == written
    assert not list(out.glob(".*"))


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["", ".index.json"])
def test_data_of_one_set(deploykit, tmp_path, cifar_10, end):
    from deploykit.data.data import is_arrays, open_data
    from deploykit.transforms.common.errors import GraphError

    folder, _ = cifar_10
    out = tmp_path / "out"
    assert deploykit("records", folder, out).status == 0
    data = open_data(f"{out}/train{end}")
    assert (data.kind, data.records, data.path) == ("records", 16, str(out))
    assert not is_arrays(f"{out}/train{end}")
    assert is_arrays(f"{out}/nothing{end}")
    with raises(GraphError, "record-names-several"):
        open_data(str(out))
    code = deploykit("input", "write", f"{out}/validation{end}").stdout
    assert "validation-{n:05}-of-00001.tfrecord" in code


def test_calibrating_on_one_set(deploykit, tmp_path, cifar_10):
    """The whole way of the tutorial, with a model that takes these images."""
    from tests.support import build, random

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 32, 32, 3], name="pixels")
        tf.identity(tf.reduce_mean(x, [1, 2]) @ random(3, 10), name="out")

    folder, _ = cifar_10
    model = tmp_path / "net.pb"
    model.write_bytes(b"".join(build(body, ["pixels"], ["out"]).serialized()))
    assert deploykit("records", folder, tmp_path / "out").status == 0
    several = deploykit("calibrate", model, "--data", tmp_path / "out", "-o", tmp_path / "r.json")
    assert several.status == 2
    assert several.stderr.count("\n") == 1
    assert shows(several.stderr, "record-names-several")
    found = deploykit("calibrate", model, "--data", tmp_path / "out" / "train", "-o",
                      tmp_path / "r.json", "--json")  # fmt: skip
    assert found.status == 0, found.stderr
    assert found.document["samples"] == 16
