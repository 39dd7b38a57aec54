from dataclasses import replace

import pytest

from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, built, random, tf, transform
from tests.transforms.examples import Example


@built(["x"], ["out"])
def placed():
    x = tf.raw_ops.Placeholder(dtype=tf.float32, shape=[2, 3], name="x")
    with tf.device("/device:CPU:0"):
        w = tf.constant(random(3, 2), name="w")
        product = tf.raw_ops.MatMul(a=x, b=w, name="product")
    with tf.device("/job:worker/task:1"):
        tf.raw_ops.Relu(features=product, name="out")


def on_this_machine(graph: Graph) -> Graph:
    """Return the graph with its devices that no machine here has replaced by one that it has."""
    result = graph.copy()
    for node in result:
        if "worker" in node.device:
            result.replace(node, replace(node, device="/device:CPU:0"))
    return result


def devices(graph: Graph) -> set[str]:
    return {node.device for node in graph}


@pytest.mark.golden("remove_device/placed")
def test_golden():
    graph = placed()
    assert_golden(graph, transform(graph, "remove_device"))


def test_only_the_device_changes():
    graph = placed()
    for before, after in zip(graph, transform(graph, "remove_device"), strict=True):
        assert replace(before, device="") == after


GRAPHS = [Example("remove_device", lambda: on_this_machine(placed()))]
