"""What stages found is known again where nothing changed, and only there."""

import os
import shutil

import numpy as np
import pytest

from deploykit.shipping.shipment import ShipStage
from deploykit.shipping.shipped import LEFT_OUT, Outcome, StageResult
from deploykit.shipping.stage_cache import StageCache, digest_of
from deploykit.transforms.common.documents import document
from deploykit.verification.samples import Dataset
from tests.deploykit.benchmarking.nets import dense

INPUTS = {"model": "m", "target": "latency", "budget": 8.0}


def second(shipment):
    return Outcome()


def third(shipment):
    return Outcome()


def key(function=second, inputs=INPUTS, needed="a", **fields):
    stage = ShipStage(run=function, options=("target",), **fields)
    return stage.key(inputs, (StageResult("first", Outcome(), 1.0, key=needed),))


def test_a_key_is_of_what_the_stage_depends_on_alone():
    assert key() == key(inputs={**INPUTS, "budget": 1.0})
    others = [
        key(third),
        key(inputs={**INPUTS, "model": "n"}),
        key(inputs={**INPUTS, "target": "size"}),
        key(needed="b"),
        key(measures=True),
    ]
    assert len({key(), *others}) == 6


def test_what_was_measured_holds_for_this_environment_alone(monkeypatch):
    keys = [key(), key(measures=True)]
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    again = [key(), key(measures=True)]
    assert again[0] == keys[0]
    assert again[1] != keys[1]


@pytest.fixture
def photos(tmp_path):
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "photos"


def test_a_folder_is_its_names_and_contents(photos, tmp_path):
    found = digest_of(photos)
    copy = tmp_path / "copy"
    shutil.copytree(photos, copy)
    os.utime(copy / "a" / "1.png", (0, 0))
    (copy / ".hidden").write_text("no data")
    assert digest_of(str(copy)) == found
    (copy / "a" / "1.png").write_bytes(b"b/1.png")
    assert digest_of(copy) != found
    (copy / "a" / "1.png").write_bytes(b"a/1.png")
    (copy / "a" / "1.png").rename(copy / "b" / "2.png")
    assert digest_of(copy) != found


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_of_what_is_no_regular_file_only_the_name_counts(photos, monkeypatch, limit):
    monkeypatch.setattr("deploykit.shipping.stage_cache.READ_WHOLE", limit)
    digests = [digest_of(photos)]
    for name, target in (("gone", "nowhere"), ("gone.png", "nowhere"), ("self", "self")):
        (photos / name).symlink_to(target)
        digests.append(digest_of(photos))
    os.mkfifo(photos / "a" / "pipe.png")
    digests.append(digest_of(photos))
    assert len({*digests}) == 5
    assert digest_of(photos) == digests[-1]


def test_of_much_data_the_times_of_change_stand_for_the_contents(photos, monkeypatch):
    monkeypatch.setattr("deploykit.shipping.stage_cache.READ_WHOLE", 3)
    found = digest_of(photos)
    assert digest_of(photos) == found
    os.utime(photos / "a" / "1.png", (0, 0))
    assert digest_of(photos) != found


def test_records_of_one_name_in_a_folder_are_a_path(tmp_path):
    for name in ("train-00000", "train-00001", "test-00000"):
        (tmp_path / name).write_text(name)
    found = digest_of(str(tmp_path / "train"))
    (tmp_path / "test-00000").write_text("else")
    assert digest_of(str(tmp_path / "train")) == found
    (tmp_path / "train-00001").write_text("else")
    assert digest_of(str(tmp_path / "train")) != found


def test_samples_are_their_arrays_and_labels():
    graph = dense()
    x, labels = np.ones((9, 8), np.float32), np.zeros(9, np.int64)

    def of(**arrays):
        return digest_of(Dataset.of(graph, arrays))

    assert of(x=x, labels=labels) == of(x=x.copy(), labels=labels.copy())
    assert len({of(x=x), of(x=2 * x), of(x=x, labels=labels), of(x=x, labels=labels + 1)}) == 4


def test_a_text_that_is_no_path_stands_for_itself():
    assert digest_of("0..1") == "0..1"
    assert digest_of({"format": 1}) == {"format": 1}
    assert digest_of("x" * 5000) == "x" * 5000


@pytest.fixture
def kept(tmp_path):
    found = StageCache(tmp_path)
    found.place.mkdir()
    return found


def test_a_result_is_found_again_with_its_files(kept, tmp_path):
    (tmp_path / "model.pb").write_text("graph")
    (tmp_path / "shapes" / "1").mkdir(parents=True)
    (tmp_path / "shapes" / "1" / "saved_model.pb").write_text("saved")
    outcome = Outcome({"nodes": 3}, ("model.pb", "shapes/1"), why="said")
    kept.keep("key", StageResult("export", outcome, 1.5))
    found = kept.lookup("export", "key")
    assert found is not None
    assert (found.outcome, found.seconds, found.kept) == (outcome, 1.5, True)
    assert kept.seconds("export") == 1.5
    assert kept.lookup("export", "other") is None
    assert kept.lookup("tune", "key") is None
    (tmp_path / "shapes" / "1" / "saved_model.pb").write_text("changed")
    assert kept.lookup("export", "key") is None


@pytest.mark.parametrize("change", ["lost", "damaged", "other", "forgotten"])
def test_what_cannot_be_trusted_is_done_anew(kept, tmp_path, change):
    (tmp_path / "model.pb").write_text("graph")
    kept.keep("key", StageResult("verify", Outcome({}, ("model.pb",)), 1.0))
    if change == "lost":
        (tmp_path / "model.pb").unlink()
    elif change == "forgotten":
        kept.forget(["verify", "tune"])
    else:
        text = "{" if change == "damaged" else '{"kind": "stage", "format": 1, "key": "key"}'
        (kept.place / "verify.json").write_text(text)
    assert kept.lookup("verify", "key") is None


def test_a_stage_that_was_left_out_has_a_reason():
    result = StageResult("quantize", Outcome(kind=LEFT_OUT, why="no data"), 0.0)
    plain = document(result)
    assert (plain["outcome"], plain["why"], plain["document"]) == (
        "left out", "no data", None,
    )  # fmt: skip
