"""Devices go."""

from tests.differential.case import Case
from tests.differential.graphs import (
    conv,
    fashion_keras,
    fashion_tf1,
    placeholder,
    two_layers,
)
from tests.support import built, random, tf


@built(["x"], ["out"])
def several_devices():
    with tf.device("/device:GPU:0"):
        x = placeholder(2, 5, 5, 3)
        with tf.device("/job:worker/task:1/device:CPU:0"):
            y = conv(x, random(3, 3, 3, 4))
        tf.raw_ops.Relu(features=y, name="out")


NAME = "remove_device"

CASES = [
    Case("several devices", several_devices, NAME),
    Case("no device", fashion_keras, NAME),
    Case("small net", two_layers, NAME, deviations=("pruned",)),
    Case("frozen Fashion, TF1", fashion_tf1, NAME),
]
