"""The command line, the observer in this process, and a small net whose values NumPy knows too."""

import importlib

import numpy as np
import pytest

from deploykit.quantization import calibration, judging
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import build, random
from transforms.core.graph import Graph

KERNEL, BIAS, DENSE = random(3, 3, 2, 5), random(5, low=-8, high=8), random(5, 4)


class InProcess:
    """A Worker that is no process: one start of TensorFlow for all tests."""

    def __init__(self, kind: str, *arguments: object) -> None:
        module, name = kind.split(":")
        self.made = getattr(importlib.import_module(module), name)(*arguments)

    def ask(self, method: str, *arguments: object) -> object:
        return getattr(self.made, method)(*arguments)

    def close(self) -> None:
        pass


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(calibration, "Worker", InProcess)
    monkeypatch.setattr(judging, "Worker", InProcess)


def conv_net() -> Graph:
    """Return a convolution with bias and Relu6, a mean over positions and a dense layer."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 6, 7, 2], name="x")
        y = tf.nn.conv2d(x, KERNEL, 1, "VALID", name="conv")
        y = tf.nn.relu6(tf.nn.bias_add(y, BIAS, name="biased"), name="relu6")
        tf.matmul(tf.reduce_mean(y, [1, 2], name="pooled"), DENSE, name="dense")

    return build(body, ["x"], ["dense"])


def by_numpy(x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of the net's tensors."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    found = {"x": x, "conv": np.einsum("nhwcij,ijco->nhwo", windows, KERNEL)}
    found["biased"] = found["conv"] + BIAS
    found["relu6"] = np.clip(found["biased"], 0, 6)
    found["pooled"] = found["relu6"].mean((1, 2))
    found["dense"] = found["pooled"] @ DENSE
    return found
