"""Gathers that the original makes sparse wrongly."""

from collections.abc import Callable

from deploykit.transforms.ir.graph import Graph
from tests.differential.cases.sparsify_gather import SMALL
from tests.differential.defects.defect import Defect
from tests.differential.graphs import const, placeholder
from tests.differential.judging import does_not_run, fails, keeps, stays
from tests.support import build, random, tf

SPARSIFY = "sparsify_gather"
CLOSE = 1e-5


def net(make: Callable, dtype="int64", group="") -> Callable[[], Graph]:
    """Return a graph of ids, 0 to 3, which wait for a group that may fill tables."""

    def body():
        raw = tf.raw_ops
        x = placeholder(4)
        with tf.control_dependencies([raw.NoOp(name=group)] if group else []):
            x = raw.Abs(x=x, name="ready")
        scaled = raw.Mul(x=x, y=const(3.0, "three"), name="scaled")
        make(raw, raw.Cast(x=scaled, DstT=tf.as_dtype(dtype), name="ids"))

    return lambda: build(body, ["x"], ["out"])


def gather(raw, ids, weights, name="gather"):
    return raw.GatherV2(params=weights, indices=ids, axis=const(0, f"{name}/axis"), name=name)


def read(raw, weights=SMALL):
    return raw.Identity(input=const(weights, "w/part_1"), name="w/part_1/read")


def one(raw, ids):
    raw.Relu(features=gather(raw, ids, read(raw)), name="out")


def shared(raw, ids):
    weights = read(raw)
    first = gather(raw, ids, weights)
    again = gather(raw, raw.Neg(x=raw.Neg(x=ids, name="minus"), name="same"), weights, "again")
    raw.AddV2(x=first, y=again, name="out")


def read_by_another(raw, ids):
    weights = read(raw)
    found = gather(raw, ids, weights)
    whole = raw.Sum(input=weights, axis=const(0, "rows"), name="whole")
    raw.AddV2(x=found, y=whole, name="out")


def two_columns(raw, ids):
    raw.Relu(features=gather(raw, ids, read(raw, random(6, 2))), name="out")


GROUP = "group_deps"

DEFECTS = [
    Defect(SPARSIFY, "int32 ids", net(one, "int32", GROUP), SPARSIFY,
           "a lookup takes only int64: the graph does not load", does_not_run("cannot load"),
           "casts them", keeps(CLOSE, LookupTableFind=1)),
    Defect(SPARSIFY, "Gathers that share weights", net(shared, group=GROUP), SPARSIFY,
           "one of them loses its weights: the graph does not load", does_not_run("cannot load"),
           "share one table",
           keeps(CLOSE, LookupTableFind=2, HashTable=1)),
    Defect(SPARSIFY, "weights that another node reads", net(read_by_another, group=GROUP),
           SPARSIFY, "are removed from it: the graph does not load", does_not_run("cannot load"),
           "are kept for that node",
           keeps(CLOSE, LookupTableFind=1)),
    Defect(SPARSIFY, "a graph without an initializer", net(one), SPARSIFY,
           "the table is empty: the graph does not run",
           does_not_run("Table not initialized"),
           "fills the table before the lookup", keeps(CLOSE, LookupTableFind=1)),
    Defect(SPARSIFY, "weights of two columns", net(two_columns, group=GROUP), SPARSIFY,
           "fails for the whole graph", fails("shape [N, 1]"), "skips them with a reason",
           stays(GatherV2=1)),
]  # fmt: skip
