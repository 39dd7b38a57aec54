"""Only the stages whose inputs changed run again, and wrong inputs change nothing."""

import json
import re

import numpy as np
import pytest

from deploykit.shipping.shipped import Outcome, StageResult
from deploykit.shipping.stage_cache import StageCache, full_key
from tests.deploykit.benchmarking.nets import dense, written
from tests.deploykit.shipping.test_ship import OPTIONS, run
from tests.support import says

pytestmark = pytest.mark.slow


def samples(path, count, seed, **more):
    x = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    np.savez(path, x=x, **more)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    written(dense(), folder / "net.pb")
    for name, count in (("eval", 24), ("other", 31)):
        samples(folder / f"{name}.npz", count, count, labels=np.arange(count) % 3)
    samples(folder / "calibration.npz", 70, 1)
    for name, labels in (("labels", "abcdefgh"), ("renamed", "stuvwxyz"), ("few", "abc")):
        (folder / f"{name}.txt").write_text("\n".join(labels))
    found = run(folder, "net.pb", "--evaluation=eval.npz", "--labels=labels.txt", *OPTIONS)
    assert found.status == 0, found.stderr
    return folder


def runs(home, *words):
    found = run(home, "net.pb", *words, *OPTIONS, "--dry-run")
    assert found.status == 0, found.stderr
    return [each["stage"] for each in found.document["plan"] if each["act"] == "run"]


@pytest.mark.sampled
@pytest.mark.parametrize("words", [
    ("--evaluation=other.npz", "--labels=labels.txt"),
    ("--evaluation=eval.npz", "--labels=renamed.txt"),
    ("--evaluation=other.npz", "--labels=renamed.txt"),
])  # fmt: skip
def test_labels_and_evaluation_data_change_accuracy_and_export_alone(home, words):
    assert runs(home, *words) == ["accuracy", "export", "serve"]


def test_calibration_data_that_were_not_needed_leave_the_first_stages(home):
    found = runs(
        home, "--evaluation=eval.npz", "--labels=labels.txt", "--calibration=calibration.npz"
    )
    assert not {"check", "optimize"} & {*found}
    assert {"calibrate", "quantize", "verify"} <= {*found}


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--labels=few.txt"], 2, says("counts-differ", count=3, other_count=8)),
        (["--labels=absent.txt"], 4, re.escape("absent.txt")),
        (["--evaluation=absent.npz"], 4, says("not-found", source="absent.npz")),
        (["--evaluation=labels.txt"], 2, re.escape("labels.txt")),
        (["--preprocess=labels.txt"], 2, re.escape("labels.txt")),
        (["--goal=fast"], 2, re.escape("--goal")),
        (["--max-drop=-1"], 2, re.escape("--max-drop")),
    ],
)
def test_wrong_inputs_leave_a_finished_shipment_as_it_is(home, words, status, said, monkeypatch):
    monkeypatch.setattr("deploykit.shipping.ship_folder.can_swap", lambda folder: False)
    report = (home / "net.ship" / "report.json").read_bytes()
    given = [each for each in ("--evaluation=eval.npz",) if words[0].split("=")[0] not in each]
    found = run(home, "net.pb", *given, *words, *OPTIONS)
    assert found.status == status, found.stderr
    assert re.search(said, found.stderr)
    assert (home / "net.ship" / "report.json").read_bytes() == report
    assert json.loads(report)["stages"]


@pytest.mark.slow
def test_other_labels_reach_the_file_and_the_version(home):
    found = run(home, "net.pb", "--evaluation=eval.npz", "--labels=renamed.txt", *OPTIONS)
    assert found.status == 0, found.stderr
    kept = [each["stage"] for each in found.document["stages"] if each["kept"]]
    assert kept == ["check", "optimize", "verify", "placement", "tune", "benchmark"]
    folder = home / "net.ship"
    assert (folder / "labels.txt").read_text().split() == list("stuvwxyz")
    assert json.loads((folder / "model.pb.json").read_text())["labels"] == list("stuvwxyz")
    assert (folder / "net/2/assets.extra/labels.txt").read_text().split() == list("stuvwxyz")


def test_what_a_stage_used_belongs_to_its_key(tmp_path):
    kept = StageCache(tmp_path)
    kept.place.mkdir()
    inputs = {"calibration": "c", "labels": "l"}
    kept.keep("key", StageResult("check", Outcome({}, used=("calibration",)), 1.0), inputs)
    assert kept.lookup("check", "key", inputs | {"labels": "m"}) is not None
    assert kept.lookup("check", "key", inputs | {"calibration": "d"}) is None
    assert full_key("key", (), inputs) == "key"
    assert full_key("key", ("calibration",), inputs) != full_key("key", ("labels",), inputs)
