"""Nodes that the original bypasses and should not."""

from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, net
from tests.differential.judging import gives, is_wrong, makes, stays
from tests.support import random, tf

REMOVE = "remove_nodes"


def constant_first(raw, x):
    raw.Relu(features=raw.AddV2(x=const(random(3), "c"), y=x, name="sum"), name="out")


def waits(raw, x):
    done = raw.CheckNumerics(tensor=x, message="no", name="checked")
    with tf.control_dependencies([done]):
        y = raw.Identity(input=x, name="same")
    raw.Relu(features=y, name="out")


def branch(raw, x):
    """Return a branch of TensorFlow 1: an Identity of a Switch says which side is taken."""
    tf.compat.v1.disable_control_flow_v2()
    try:
        y = tf.compat.v1.cond(
            raw.Less(x=const(0.0, "zero"), y=x[0, 0], name="positive"),
            lambda: tf.constant(random(2, 3)), lambda: tf.constant(random(2, 3, seed=1)),
        )  # fmt: skip
    finally:
        tf.compat.v1.enable_control_flow_v2()
    raw.AddV2(x=x, y=y, name="out")


DEFECTS = [
    Defect(REMOVE, "max_inputs=2 and an Add whose first input is constant", net(constant_first),
           f"{REMOVE}(op=AddV2, max_inputs=2)", "the input is not read any more",
           makes(lambda before, after: after["out"].inputs == ("c",)),
           "skips it with a reason", stays(AddV2=1)),
    Defect(REMOVE, "a node with control inputs", net(waits), f"{REMOVE}(op=Identity)",
           "they are lost, and with them the check",
           makes(lambda before, after: not after["out"].control_inputs), "its readers get them",
           gives(lambda before, after: after["out"].inputs == ("x", "^checked"))),
    Defect(REMOVE, "the Identity that selects a branch", net(branch),
           f"{REMOVE}(op=Identity)", "both branches run: wrong outputs", is_wrong,
           "skips it with a reason", stays()),
]  # fmt: skip
