"""The net of the sum's sign: its files say the truth, its training step trains, it freezes."""

import csv

import numpy as np
import pytest

import deploykit
from deploykit.transforms.runtime.session import Session
from models.sum_sign import build
from tests.models.training import losses
from tests.support import ops


@pytest.fixture(scope="module")
def graph():
    return build.training_graph()


@pytest.mark.sampled
def test_each_label_is_the_sign_of_the_sum_of_what_is_read_back(tmp_path):
    build.write_csv(tmp_path / "csv")
    files = sorted((tmp_path / "csv").iterdir())
    assert [file.name for file in files[:2]] == ["part-00-of-20.csv", "part-01-of-20.csv"]
    assert len(files) == build.FILES
    lines = [line for file in files[:3] for line in csv.reader(file.open())]
    assert {len(line) for line in lines} == {build.INPUTS + 1}
    assert len(lines) == 3 * build.LINES
    values = np.array(lines, np.float64)
    assert np.array_equal(values[:, -1], values[:, :-1].sum(axis=1) > 0)
    assert 0.4 < values[:, -1].mean() < 0.6
    assert len(np.unique(values[:, 0])) > 290  # no line twice


@pytest.mark.sampled
def test_training_lowers_the_loss(graph):
    random = np.random.default_rng(0)
    x, label = build.samples(64, random)
    found = losses(graph, {"x:0": x, "label:0": label}, 20)
    assert found[-1] < found[0] / 2


@pytest.mark.sampled
def test_without_training_the_loss_stays(graph):
    x, label = build.samples(64, np.random.default_rng(0))
    found = losses(graph, {"x:0": x, "label:0": label}, 20, op="init")
    assert found[-1] > found[0] / 2


@pytest.mark.sampled
def test_the_net_freezes_and_runs(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "STEPS", 150)
    accuracy = build.train(graph, tmp_path / "model.ckpt")
    frozen = deploykit.freeze(tmp_path / "model.ckpt", inputs=["x"], outputs=["out"])
    assert "VarHandleOp" not in ops(frozen)
    assert ops(frozen)["MatMul"] == 2
    x, label = build.samples(500, np.random.default_rng(5))
    (out,) = Session(b"".join(frozen.serialized()), True).run(["out"], {"x": x})
    assert out.shape == (500,)
    assert np.all((out > 0) & (out < 1))
    right = float(np.mean((out > 0.5) == label))
    assert right > 0.58  # chance is 0.5, and its deviation 0.022
    assert abs(right - accuracy) < 0.1
