"""Nodes behind which the original prints wrongly."""

from tests.differential.cases.remove_nodes import second_port
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, net
from tests.differential.judging import does_not_run, keeps, makes, refuses, stays
from tests.support import Containing, tf

LOG = "insert_logging"


def nothing(raw, x):
    with tf.control_dependencies([raw.NoOp(name="nothing")]):
        raw.Neg(x=x, name="out")


def only_last_port(raw, x):
    parts = raw.Split(axis=const(1, "axis"), value=x, num_split=3, name="parts")
    raw.Relu(features=parts[2], name="out")


DEFECTS = [
    Defect(LOG, "a node with unread outputs", net(second_port), f"{LOG}(op=Split)",
           "declares all of them: the graph does not load", does_not_run("cannot load"),
           "prints those that are read", keeps(Print=1)),
    Defect(LOG, "a node with an unread first output", net(only_last_port), f"{LOG}(op=Split)",
           "the same", does_not_run("cannot load"), "prints what is read", keeps(Print=1)),
    Defect(LOG, "a NoOp", net(nothing), f"{LOG}(op=NoOp)",
           "prints an output that it does not have: the graph does not load",
           does_not_run("cannot load"), "skips it with a reason", stays(Print=0)),
    Defect(LOG, "an op that TensorFlow does not have", net(second_port), f"{LOG}(op=Splitt)",
           "silently does nothing",
           makes(lambda before, after: len(after) == len(before)),
           "error with the nearest names",
           refuses("missing", kind="op", name="Splitt", hint=Containing("Split"))),
]  # fmt: skip
