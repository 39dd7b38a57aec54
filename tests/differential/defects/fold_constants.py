"""Constants that the original folds wrongly, or not."""

from deploykit.transforms.ir.graph import Graph
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, placeholder
from tests.differential.judging import fails, gives, keeps, leaves, makes
from tests.support import built, ops, random, tf

CONSTANTS = "fold_constants"


@built(["relu"], ["out"])
def fed_inside():
    y = tf.raw_ops.Relu(features=placeholder(2, 3), name="relu")
    w = tf.raw_ops.Neg(x=const(random(3), "w"), name="minus")
    tf.raw_ops.Mul(x=y, y=w, name="out")


@built(["x"], ["out"])
def read_and_waited_for():
    """Return large weights behind an Identity, with the NoOp that TensorFlow 2 leaves behind."""
    w = const(random(200, 200), "w")
    with tf.control_dependencies([w.op]):
        done = tf.raw_ops.NoOp(name="done")
    read = tf.raw_ops.Identity(input=w, name="w/read")
    y = tf.raw_ops.MatMul(a=placeholder(2, 200), b=read, name="y")
    with tf.control_dependencies([done]):
        tf.raw_ops.Identity(input=y, name="out")


@built(["x", "rate"], ["out"])
def with_default():
    rate = tf.raw_ops.PlaceholderWithDefault(input=const(0.5, "half"), shape=[], name="rate")
    tf.raw_ops.Mul(x=placeholder(2, 3), y=rate, name="out")


def size(graph: Graph) -> int:
    return sum(map(len, graph.serialized()))


@built(["x"], ["out"])
def dense():
    w = const(random(64, 32), "w")
    tf.raw_ops.MatMul(a=placeholder(2, 64), b=w, name="out")


DEFECTS = [
    Defect(CONSTANTS, "an input other than a Placeholder", fed_inside, CONSTANTS,
           "refuses the graph", fails("expected to be a Placeholder"), "folds",
           keeps(Neg=0)),
    Defect(CONSTANTS, "weights behind an Identity that a NoOp waits for, as TensorFlow 2 "
           "freezes them", read_and_waited_for, CONSTANTS, "doubles the file",
           makes(lambda before, after: size(after) > 1.9 * size(before)),
           "reads the weights themselves",
           gives(lambda before, after: size(after) <= size(before))),
    Defect(CONSTANTS, "8-bit weights", dense, "quantize_weights fold_constants",
           "converts them to float32", leaves(Dequantize=0), "keeps them 8-bit",
           gives(lambda before, after: ops(after)["Dequantize"] == 1)),
    Defect(CONSTANTS, "PlaceholderWithDefault", with_default, CONSTANTS,
           "its default is lost", leaves(PlaceholderWithDefault=0), "keeps it",
           keeps(PlaceholderWithDefault=1)),
]  # fmt: skip
