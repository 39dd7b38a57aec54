"""The command line, the observer in this process, and a small net whose values NumPy knows too."""

import importlib

import numpy as np
import pytest

from deploykit.quantization import accuracy, calibration
from tests.deploykit.conftest import deploykit as deploykit
from tests.support import built, random, tf

KERNEL, BIAS, DENSE = random(3, 3, 2, 5), random(5, low=-8, high=8), random(5, 4)


class InProcess:
    """A Worker that is no process: one start of TensorFlow for all tests."""

    def __init__(self, kind: str, *arguments: object) -> None:
        module, name = kind.split(":")
        self.created = getattr(importlib.import_module(module), name)(*arguments)

    def ask(self, method: str, *arguments: object) -> object:
        return getattr(self.created, method)(*arguments)

    def close(self) -> None:
        pass


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(calibration, "Worker", InProcess)
    monkeypatch.setattr(accuracy, "Worker", InProcess)


@built(["x"], ["dense"])
def conv_net():
    """Return a convolution with bias and Relu6, a mean over positions and a dense layer."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 6, 7, 2], name="x")
    y = tf.nn.conv2d(x, KERNEL, 1, "VALID", name="conv")
    y = tf.nn.relu6(tf.nn.bias_add(y, BIAS, name="biased"), name="relu6")
    tf.matmul(tf.reduce_mean(y, [1, 2], name="pooled"), DENSE, name="dense")


def by_numpy(x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of the net's tensors."""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
    found = {"x": x, "conv": np.einsum("nhwcij,ijco->nhwo", windows, KERNEL)}
    found["biased"] = found["conv"] + BIAS
    found["relu6"] = np.clip(found["biased"], 0, 6)
    found["pooled"] = found["relu6"].mean((1, 2))
    found["dense"] = found["pooled"] @ DENSE
    return found


FIRST, SECOND = random(16, 24), random(24, 10, seed=1)


@built(["x"], ["out"])
def classifier(delta: np.ndarray | float = 0.0, softmax: bool = True, extra: bool = False):
    """Return two dense layers and a Softmax; `delta` is added to what the Softmax reads."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 16], name="x")
    y = tf.nn.bias_add(tf.matmul(x, FIRST, name="first"), random(24, low=0), name="biased")
    y = tf.nn.relu(y, name="relu")
    bias = (random(10) + delta).astype(np.float32)
    y = tf.nn.bias_add(tf.matmul(y, SECOND, name="second"), bias, name="logits")
    tf.nn.softmax(y, name="out") if softmax else tf.identity(y, name="out")
    tf.reduce_sum(x * 2 if extra else x * 2 + 0.1, 1, name="sums")


def logits(x: np.ndarray) -> np.ndarray:
    """Return what the classifier's Softmax reads."""
    return np.maximum(x @ FIRST + random(24, low=0), 0) @ SECOND + random(10)
