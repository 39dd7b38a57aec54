"""ConcatV2 that the original backports wrongly."""

from tests.differential.cases.backport_concatv2 import join
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, net
from tests.differential.judging import does_not_run, keeps
from tests.support import tf

BACKPORT = "backport_concatv2"


def wide_axis(raw, x):
    raw.Relu(features=join(raw, x, 1, "int64"), name="out")


def waits(raw, x):
    checked = raw.CheckNumerics(tensor=x, message="no", name="checked")
    axis = const(1, "axis")
    with tf.control_dependencies([checked]):
        y = raw.ConcatV2(values=[x, x], axis=axis, name="joined")
    raw.Relu(features=y, name="out")


DEFECTS = [
    Defect(BACKPORT, "an int64 axis", net(wide_axis), BACKPORT,
           "stays int64, which Concat does not take: the graph does not load",
           does_not_run("cannot load"), "becomes int32", keeps(Concat=1)),
    Defect(BACKPORT, "a ConcatV2 with control inputs", net(waits), BACKPORT,
           "uses one as the axis: the graph does not load", does_not_run("cannot load"),
           "keeps them last", keeps(Concat=1, CheckNumerics=1)),
]  # fmt: skip
