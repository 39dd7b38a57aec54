"""A column of mostly zeros becomes a hash table; the group that fills it runs before the ids."""

from collections.abc import Callable

import numpy as np

from tests.differential.case import Case
from tests.differential.graphs import const, placeholder
from tests.support import build, random
from transforms.core.graph import Graph

NAME = "sparsify_gather"
SMALL = np.array([[0.2], [1e-6], [1.2], [0.001], [-0.5], [0.0]], np.float32)


def net(make: Callable) -> Callable[[], Graph]:
    """Return a graph whose ids, 0 to 3, wait for group_deps."""

    def body():
        import tensorflow as tf

        raw = tf.raw_ops
        ready = raw.NoOp(name="group_deps")
        x = placeholder(4)
        with tf.control_dependencies([ready]):
            x = raw.Abs(x=x, name="ready")
        ids = raw.Cast(x=raw.Mul(x=x, y=const(3.0, "three"), name="scaled"), DstT=tf.int64,
                       name="ids")  # fmt: skip
        make(raw, ids)

    return lambda: build(body, ["x"], ["out"])


def lookup(weights=SMALL, op="GatherV2"):
    def make(raw, ids):
        source = raw.Identity(input=const(weights, "w/part_1"), name="w/part_1/read")
        if op == "Gather":
            found = raw.Gather(params=source, indices=ids, name="gather")
        else:
            found = raw.GatherV2(params=source, indices=ids, axis=const(0, "axis"), name="gather")
        raw.Relu(features=found, name="out")

    return net(make)


WAIT = ("lookups wait",)

CASES = [
    Case("GatherV2", lookup(), NAME, deviations=WAIT),
    Case("Gather", lookup(op="Gather"), NAME, deviations=WAIT),
    Case("nothing but zeros", lookup(np.zeros((6, 1), np.float32)), NAME, deviations=WAIT),
    Case("dense", lookup(random(50, 1)), NAME, deviations=WAIT),
]
