"""Inputs that the original cuts wrongly."""

from tests.differential.cases.strip_unused_nodes import classifier
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const
from tests.differential.judging import aborts, does_not_run, gives, keeps, makes, refuses
from tests.support import built, tf

STRIP = "strip_unused_nodes"


@built(["x"], ["out"])
def fed_default():
    row = const([1, 2, 3, 4], "row")
    x = tf.raw_ops.PlaceholderWithDefault(input=row, shape=[4], name="x")
    tf.raw_ops.BitwiseAnd(x=x, y=const(6, "mask"), name="out")


DEFECTS = [
    Defect(STRIP, "an int32 input that is not a Placeholder", fed_default, STRIP,
           "becomes a float scalar: the graph does not load", does_not_run("cannot load"),
           "keeps its type and shape", keeps(Placeholder=1)),
    Defect(STRIP, 'shape="-1,4"', classifier(["row"]), f'{STRIP}(shape="-1,4")', "aborts",
           aborts("Check failed"), "accepts -1 and ? for any size",
           gives(lambda before, after: after["row"].attr("shape") == (-1, 4))),
    Defect(STRIP, "an input that the graph does not have", classifier(["row", "nonesuch"]), STRIP,
           "ignores it", makes(lambda before, after: "nonesuch" not in after),
           "error with the nearest names",
           refuses("graph-node-missing", name="nonesuch", role="input")),
]  # fmt: skip
