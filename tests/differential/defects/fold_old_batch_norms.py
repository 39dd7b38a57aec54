"""Batch norm ops that the original folds wrongly, or not."""

from collections import Counter

from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.protos import GraphDef
from tests.differential.defects.defect import SOON, Defect
from tests.differential.graphs import const, conv, placeholder
from tests.differential.judging import (
    aborts,
    does_not_run,
    gives,
    hangs,
    is_wrong,
    keeps,
    leaves,
    stays,
)
from tests.support import build, built, random, tf

OLD = "fold_old_batch_norms"
ONE_FOLD = 6e-6


def fused(version, between=None, **attrs):
    """Return a convolution, perhaps something between, and a batch norm."""

    def make():
        y = conv(placeholder(2, 3, 6, 2), random(1, 2, 2, 2))
        y = y if between is None else between(y)
        tf.raw_ops.Relu(features=norm(y, version, **attrs), name="out")

    return lambda: build(make, ["x"], ["out"])


def norm(y, version="", name="bn", width=2, parameters=None, **attrs):
    gamma, beta, mean, variance = parameters or (
        const(random(width, seed=i, low=0.2), f"{name}/{i}") for i in range(4)
    )
    op = getattr(tf.raw_ops, f"FusedBatchNorm{version}")
    return op(
        x=y, scale=gamma, offset=beta, mean=mean, variance=variance, name=name,
        **{"is_training": False, "epsilon": 1e-3, **attrs},
    )[0]  # fmt: skip


def bias(y):
    return tf.raw_ops.BiasAdd(value=y, bias=const(random(2), "b"), name="biased")


@built(["x"], ["out"])
def layer_read_twice():
    y = conv(placeholder(2, 3, 6, 2), random(1, 2, 2, 2))
    tf.raw_ops.Sub(x=norm(y), y=y, name="out")


def layer_is_fetched() -> Graph:
    graph = fused("")()
    graph.outputs = ("conv", "out")
    return graph


@built(["x"], ["out"])
def one_weights():
    x, w = placeholder(2, 3, 6, 2), const(random(1, 2, 2, 2), "w")
    a, b = norm(conv(x, w, "one"), name="a"), norm(conv(x, w, "two"), name="b")
    tf.raw_ops.Sub(x=a, y=b, name="c")
    tf.raw_ops.AddV2(x=a, y=b, name="out")


@built(["x"], ["out"])
def one_norm_for_two():
    x = placeholder(2, 3, 6, 2)
    values = [const(random(2, seed=i, low=0.2), f"p{i}") for i in range(4)]
    a = norm(conv(x, random(1, 2, 2, 2), "one"), name="a", parameters=values)
    b = norm(conv(x, random(1, 2, 2, 2, seed=1), "two"), name="b", parameters=values)
    tf.raw_ops.AddV2(x=a, y=b, name="out")


def without_epsilon() -> Graph:
    graph = fused("")()
    graph.replace(graph["bn"], graph["bn"].with_attrs(epsilon=None))
    return graph


def of_another_width() -> Graph:
    graph = fused("")()
    for i in range(4):
        old = graph[f"bn/{i}"]
        graph.replace(old, old.with_attrs(value=random(3, seed=i, low=0.2)))
    return graph


@built(["x"], ["out"])
def mean_is_read():
    y = norm(conv(placeholder(2, 3, 6, 2), random(1, 2, 2, 2)))
    tf.raw_ops.AddV2(x=y, y=y.op.outputs[1], name="out")


@built(["x"], ["out"])
def one_input_concatenated():
    x = placeholder(1, 1, 6, 2)
    a, b = conv(x, random(1, 2, 2, 2), "one"), conv(x, random(1, 2, 2, 2, seed=1), "two")
    y = tf.raw_ops.ConcatV2(values=[a, b], axis=const(3, "axis"), name="concat")
    tf.raw_ops.Relu(features=norm(y, width=4), name="out")


def occurs_twice(before: Graph, answer) -> bool:
    names = Counter(node.name for node in GraphDef.FromString(answer.graph_def).node)
    return names["x"] == 2


DEFECTS = [
    *(Defect(OLD, f"FusedBatchNorm{version}", fused(version), OLD, "does not support it",
             leaves(**{f"FusedBatchNorm{version}": 1}), "folds",
             keeps(ONE_FOLD, **{f"FusedBatchNorm{version}": 0})) for version in ("V2", "V3")),
    Defect(OLD, "a batch norm in training mode",
           fused("", is_training=True, exponential_avg_factor=0.5), OLD,
           "folds it: wrong outputs", is_wrong, "skips it with a reason",
           stays(FusedBatchNorm=1)),
    Defect(OLD, "a layer that another node reads as well", layer_read_twice, OLD,
           "that node gets the scaled layer: wrong outputs", is_wrong, "skips it with a reason",
           stays(FusedBatchNorm=1)),
    Defect(OLD, "a layer that is an output as well", layer_is_fetched, OLD,
           "the output is scaled: wrong outputs", is_wrong, "skips it with a reason",
           stays(FusedBatchNorm=1)),
    Defect(OLD, "two layers with one weights Const", one_weights, OLD,
           "both scales apply to both: wrong outputs", is_wrong, "gives each its own",
           keeps(ONE_FOLD, FusedBatchNorm=0)),
    Defect(OLD, "two batch norms with the same parameters", one_norm_for_two, OLD,
           "hangs", hangs, "folds both", keeps(ONE_FOLD, FusedBatchNorm=0), seconds=SOON),
    Defect(OLD, "a batch norm without the attribute epsilon", without_epsilon, OLD, "aborts",
           aborts("epsilon"), "uses the op's default", keeps(ONE_FOLD, FusedBatchNorm=0)),
    Defect(OLD, "parameters that do not fit the layer's width", of_another_width, OLD, "aborts",
           aborts("Check failed"), "skips it with a reason",
           gives(lambda before, after: str(after) == str(before) and after.skipped)),
    Defect(OLD, "a BiasAdd between the layer and the batch norm", fused("", bias), OLD,
           "does not fold", leaves(FusedBatchNorm=1), "folds",
           keeps(ONE_FOLD, FusedBatchNorm=0, BiasAdd=1)),
    Defect(OLD, "a batch norm whose mean is read", mean_is_read, OLD,
           "the graph no longer loads", does_not_run("cannot load"),
           "skips it with a reason", stays(FusedBatchNorm=1)),
    Defect(OLD, "a batch norm of two layers side by side that read one input",
           one_input_concatenated, OLD, "the input is duplicated: the graph does not load",
           occurs_twice, "folds", keeps(ONE_FOLD, FusedBatchNorm=0)),
]  # fmt: skip
