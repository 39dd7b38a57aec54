"""fold_old_batch_norms: the batch norm ops alone; the forms made of single ops are left."""

import pytest

from deploykit.transforms.fold_old_batch_norms import fold_old_batch_norms
from tests.differential.cases.fold_old_batch_norms import atrous, concatenated
from tests.differential.graphs import conv, depthwise
from tests.support import assert_golden, because, error, ops, random, transform
from tests.transforms.examples import Example
from tests.transforms.test_fold_batch_norms import BAR, LAYERS, NORMS, layer_with_norm

OPS = [norm for norm in NORMS if norm.startswith(("fused", "global"))]


@pytest.mark.parametrize("layer", [name for name in LAYERS if len(LAYERS[name][1]) == 4])
@pytest.mark.parametrize("norm", OPS)
@pytest.mark.parametrize("between", ["", "bias"])
def test_folds_batch_norm_ops(layer, norm, between):
    before, feeds = layer_with_norm(layer, norm, between)
    after = transform(before, "fold_old_batch_norms")
    assert set(ops(after)) == {before["layer"].op, "BiasAdd", "Const", "Placeholder", "Relu"}
    assert error(before, after, feeds) <= BAR


@pytest.mark.golden("fold_old_batch_norms/fused")
def test_golden():
    before, _ = layer_with_norm("conv2d", "fused", "")
    assert_golden(before, transform(before, "fold_old_batch_norms"))


@pytest.mark.parametrize("norm", sorted(set(NORMS) - set(OPS)))
@pytest.mark.parametrize("between", ["", "bias", "add"])
def test_leaves_single_ops_alone(norm, between):
    before, _ = layer_with_norm("conv2d", norm, between)
    before.prune()
    assert str(transform(before, "fold_old_batch_norms")) == str(before)


JOINED = {
    "dilated": (atrous(conv, random(3, 3, 2, 4)), {"x": random(2, 7, 7, 2)}),
    "dilated depthwise": (atrous(depthwise, random(3, 3, 2, 2)), {"x": random(2, 7, 7, 2)}),
    "channels": (concatenated(3), {name: random(1, 1, 6, 2, seed=ord(name)) for name in "xy"}),
    "columns": (concatenated(2), {name: random(1, 1, 6, 2, seed=ord(name)) for name in "xy"}),
    "last axis": (concatenated(-1), {name: random(1, 1, 6, 2, seed=ord(name)) for name in "xy"}),
}


@pytest.mark.parametrize("name", JOINED)
def test_folds_before_joins(name):
    make, feeds = JOINED[name]
    before = make()
    after = transform(before, "fold_old_batch_norms")
    assert "FusedBatchNorm" not in ops(after)
    assert ops(after)["BiasAdd"] == len(feeds)
    assert error(before, after, feeds) <= BAR
    assert str(transform(after, "fold_old_batch_norms")) == str(after)


def read_elsewhere(graph):
    graph.outputs = (*graph.outputs, "one")


def layer_fed(graph):
    graph.inputs = ("one", "y")


def axis_fed(graph):
    graph.inputs = (*graph.inputs, "axis")


def one_layer_twice(graph):
    graph.redirect({"two": "one"})


def waited_for(graph):
    graph.replace(graph["out"], graph["out"].with_control_inputs("^concat"))


def other_output_read(graph):
    graph.outputs = (*graph.outputs, "bn:3")


def training(graph):
    graph.replace(graph["bn"], graph["bn"].with_attrs(is_training=True))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (read_elsewhere, because("joined-used-elsewhere", tensor="one", join="concat")),
        (layer_fed, because("joined-used-elsewhere", tensor="one", join="concat")),
        (axis_fed, because("join-axis-not-constant", join="concat")),
        (one_layer_twice, because("joined-used-elsewhere", tensor="one", join="concat")),
        (waited_for, because("join-used-elsewhere", join="concat")),
        (other_output_read, because("second-output-read", tensor="bn:3")),
        (training, because("norm-in-training")),
    ],
)
def test_leaves_alone_behind_joins(edit, reason):
    graph = JOINED["channels"][0]()
    edit(graph)
    before = str(graph)
    fold_old_batch_norms(graph)
    assert str(graph) == before
    assert graph.skipped[0] == f"node 'bn': {reason}"


@pytest.mark.golden("fold_old_batch_norms/concat")
def test_golden_before_a_join():
    before = JOINED["channels"][0]()
    assert_golden(before, transform(before, "fold_old_batch_norms"))


GRAPHS = [
    Example("fold_old_batch_norms", lambda: layer_with_norm("conv2d", "fused v3", "")[0], BAR),
    *(Example("fold_old_batch_norms", make, BAR) for make, _ in JOINED.values()),
]
