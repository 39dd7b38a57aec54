from dataclasses import replace

import pytest

from deploykit.transforms.common.errors import PipelineError
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, built, error, random, says, tf, transform
from tests.transforms.examples import Example

X = {"x": random(2, 3, seed=1)}


@built(["x"], ["out"])
def placed():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    with tf.device("/device:CPU:0"):
        product = tf.raw_ops.MatMul(a=x, b=tf.constant(random(3, 2), name="w"), name="product")
    tf.raw_ops.Relu(features=product, name="out")


def devices(graph: Graph) -> dict[str, str]:
    return {node.name: node.device for node in graph}


@pytest.mark.golden("set_device/placed")
def test_golden():
    graph = placed()
    text = "set_device(device=/device:GPU:0, if_default=true)"
    assert_golden(graph, transform(graph, text))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ('device="/cpu:0"', dict.fromkeys(["x", "w", "product", "out"], "/cpu:0")),
        ("", dict.fromkeys(["x", "w", "product", "out"], "")),
        ("device=/cpu:0, if_default=true",
         {"x": "/cpu:0", "w": "/device:CPU:0", "product": "/device:CPU:0", "out": "/cpu:0"}),
        ("device=/cpu:0, if_default=false", dict.fromkeys(["x", "w", "product", "out"], "/cpu:0")),
    ],
)  # fmt: skip
def test_devices_change_and_values_stay(parameters, expected):
    graph = placed()
    result = transform(graph, f"set_device({parameters})")
    assert devices(result) == expected
    assert error(graph, result, X) == 0
    for before, after in zip(graph, result, strict=True):
        assert replace(before, device=after.device) == after


@pytest.mark.parametrize(
    "parameters", ["device=/device:CPU:0", "if_default=true", 'device="", if_default=true']
)
def test_left_alone(parameters):
    graph = transform(placed(), "set_device(device=/device:CPU:0)")
    result = transform(graph, f"set_device({parameters})")
    assert all(a is b for a, b in zip(graph, result, strict=True))


@pytest.mark.parametrize(
    "device",
    ["/job:worker/replica:0/task:1/device:GPU:0", "/GPU:1", "/device:TPU:*", "/task:3", "/job:*"],
)
def test_forms_of_a_device(device):
    assert set(devices(transform(placed(), f'set_device(device="{device}")')).values()) == {device}


@pytest.mark.parametrize("device", ["cpu:0", "gpu", "/device:CPU", "/cpu:first", "/", "/gpu:0 "])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(
        PipelineError, match=says("unexpected", what="device", expected="such as /device:CPU:0")
    ):
        transform(placed(), f'set_device(device="{device}")')


GRAPHS = [Example("set_device(device=/cpu:0)", placed)]
