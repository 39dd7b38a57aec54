"""A model of three dense layers, and the stages up to the export without anything that is timed."""

from dataclasses import replace

import pytest

from deploykit.exporting import deployment
from deploykit.quantization import accuracy, calibration, candidates, target
from deploykit.shipping.stages import serving, speed
from tests.deploykit.quantization.conftest import InProcess
from tests.deploykit.quantization.test_search import Clock
from tests.support import build, call_here, random

TIMED = ((speed, "placement"), (speed, "tune"), (speed, "benchmark"), (serving, "serve"))


@pytest.fixture
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
    monkeypatch.setattr(deployment, "call", call_here)
    for module, name in TIMED:
        stage = replace(getattr(module, name), left_out=lambda shipment: "it is timed")
        monkeypatch.setattr(module, name, stage)
