"""Int8 that loses too much on new evaluation data is searched for again."""

import numpy as np
import pytest

import deploykit
from deploykit.quantization import accuracy, calibration, candidates, target
from deploykit.shipping import ship
from tests.deploykit.quantization.conftest import InProcess
from tests.deploykit.quantization.test_search import Clock
from tests.support import build, random, run

LOST = 0.02


def net():
    """Return three dense layers whose outputs name each class now and then."""

    def body():
        import tensorflow as tf

        y = tf.compat.v1.placeholder(tf.float32, [None, 32], name="x")
        for number, size in enumerate((64, 64)):
            y = tf.nn.relu(tf.matmul(y, random(y.shape[-1], size, seed=number)))
        tf.matmul(y, random(64, 8, seed=3), name="out")

    return build(body, ["x"], ["out"])


@pytest.fixture
def quick(monkeypatch):
    """Leave out what is measured, and let int8 be faster whatever the clock says."""
    clock = Clock()
    monkeypatch.setattr(target, "probe", frozenset)
    monkeypatch.setattr(target, "layer_times", clock.layer_times)
    monkeypatch.setattr(candidates, "faster", clock.faster)
    monkeypatch.setattr(calibration, "Worker", InProcess)
    monkeypatch.setattr(accuracy, "Worker", InProcess)
    stages = tuple(each for each in ship.STAGES if each.name in (
        "check", "optimize", "calibrate", "quantize", "verify", "accuracy"))  # fmt: skip
    monkeypatch.setattr(ship, "STAGES", stages)


def test_a_drop_above_the_limit_on_new_data_quantizes_again(tmp_path, quick):
    model, folder = net(), tmp_path / "net.ship"
    options = {"calibration": {"x": random(64, 32)}, "max_drop": LOST, "name": "net",
               "engine": "tensorflow"}  # fmt: skip
    x = random(6000, 32, seed=7)
    right = run(model, {"x": x})[0].argmax(1)

    def shipped(rows):
        data = {"x": x[rows], "labels": right[rows]}
        found = deploykit.ship(model, folder, evaluation=data, **options)
        return {each.stage: each for each in found.stages}, found.facts.get("precision")

    stages, precision = shipped(np.arange(64))
    assert (precision, stages["quantize"].kept) == ("int8", False)
    int8 = run(deploykit.open_model(folder / "model.pb").graph, {"x": x})[0].argmax(1)
    same, other = np.flatnonzero(int8 == right), np.flatnonzero(int8 != right)
    assert len(other) >= 8
    stages, _ = shipped(same[100:164])  # other data, on which nothing is lost
    assert (stages["quantize"].kept, stages["accuracy"].kept) == (True, False)
    stages, _ = shipped(np.concatenate([other[:8], same[:56]]))
    assert (stages["quantize"].kept, stages["accuracy"].kept) == (False, False)
    first, last = (stages["accuracy"].outcome.document["models"][n]["value"] for n in (0, -1))
    assert first - last <= LOST
