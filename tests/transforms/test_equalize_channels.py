"""Channels of linear tensors are scaled where the readers divide again; else nothing changes."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from tests.support import assert_golden, because, random, says, tf, transform
from tests.transforms.examples import Example
from tests.transforms.test_shift_activations import (
    add,
    biased,
    channels_first,
    compared,
    conv,
    depthwise,
    fed_weights,
    graph_of,
    mobile_net,
    net,
    pooled,
    random_net,
    relu,
    res_net,
    sum_of_sums,
    tensors_of,
    transposed_a,
    with_tensors,
)

C = 6


@pytest.fixture
def equalized(tmp_path):
    """Return what equalizes a graph by its own ranges, in which channels are made uneven."""

    def equalize(graph: Graph, left_out=(), without_max=False):
        found = {}
        for name, values in tensors_of(graph).items():
            if name not in left_out and values.ndim > 1:
                flat = values.reshape(-1, values.shape[-1]).astype(float)
                flat *= np.linspace(0.1, 1, flat.shape[1])
                per_channel = [tuple(v) for v in (flat.mean(0), flat.min(0), flat.max(0))]
                found[name] = TensorRange(float(flat.min()), float(flat.max()), *per_channel)
                if without_max:
                    found[name] = replace(found[name], channel_max=())
        path = tmp_path / "model.ranges.json"
        path.write_text(Ranges("", 3, found).text())
        return pipeline.run(graph, pipeline.parse(f'equalize_channels(ranges="{path}")'))

    return equalize


@pytest.fixture
def equal(equalized):
    """Return what equalizes a graph, and compares the numbers."""
    return partial(compared, equalized)


def moved(graph: Graph) -> set[str]:
    return {n.name.removesuffix("_equalized") for n in graph if n.name.endswith("_equalized")}


@pytest.mark.golden("equalize_channels/mobile_net")
def test_golden(equal):
    graph = mobile_net(1)
    assert_golden(graph, equal(graph))


def ratio(values: np.ndarray) -> float:
    """Return how much wider the widest channel is than the narrowest."""
    peaks = np.abs(values.reshape(-1, values.shape[-1])).max(0)
    return float(peaks.max() / peaks.min())


def test_channels_come_closer(tmp_path):
    weights = random(1, 1, C, C) * np.geomspace(0.1, 1, C).astype(np.float32)
    graph = net(
        lambda y: conv(y, "second"), lambda x: conv(x, "first", weights=weights, bias=False)
    )
    values = tensors_of(graph)["first"]
    flat = values.reshape(-1, C).astype(float)
    lists = [tuple(v) for v in (flat.mean(0), flat.min(0), flat.max(0))]
    found = TensorRange(float(flat.min()), float(flat.max()), *lists)
    path = tmp_path / "ranges.json"
    path.write_text(Ranges("", 3, {"first": found}).text())
    result = transform(graph, f'equalize_channels(ranges="{path}")')
    after = tensors_of(result)["first_equalized"]
    assert ratio(after) < 0.7 * ratio(values)
    assert np.abs(after).max() <= np.abs(values).max() * (1 + 1e-6)


def test_a_residual_group_shares_its_factors(equal):
    result = equal(mobile_net(2))
    sums = {"start_biased", "project0_biased", "project1_biased", "sum0", "sum1"}
    assert moved(result) == sums - {"project0_biased", "project1_biased"}


READERS = {
    "1x1": (lambda y: conv(y, "second"), {"first_biased"}),
    "3x3, padded": (lambda y: conv(y, "second", 3), {"first_biased"}),
    "grouped": (
        lambda y: conv(y, "second", weights=random(1, 1, C // 2, 4, seed=4), channels=4),
        {"first_biased"},
    ),
    "depthwise": (lambda y: conv(relu(depthwise(y, "second")), "third"), {"first_biased"}),
    "two": (
        lambda y: add(relu(conv(y, "second"), "r"), relu(conv(y, "third", seed=4), "s"), "t"),
        {"first_biased"},
    ),
    "MaxPool": (pooled("MaxPool", padding="SAME"), {"first_biased", "pool"}),
    "AvgPool": (pooled("AvgPool", padding="SAME"), {"first_biased", "pool"}),
    "a sum of sums": (
        sum_of_sums,
        {"first_biased", "one", "two", "both"},
    ),
    "its own sum": (
        lambda y: relu(conv(add(conv(y, "second"), y), "third")),
        {"first_biased", "sum"},
    ),
}


@pytest.mark.parametrize(("reader", "names"), READERS.values(), ids=READERS)
def test_readers_that_divide(reader, names, equal):
    assert moved(equal(net(reader))) == names


@pytest.mark.parametrize("transposed", [False, True])
def test_a_matmul_divides(transposed, equal):
    def make(x):
        y = biased(tf.raw_ops.MatMul(a=x, b=random(C, 4), name="first"))
        b = random(*[(4, 5), (5, 4)][transposed], seed=3)
        return tf.raw_ops.MatMul(a=y, b=b, transpose_b=transposed, name="second")

    assert moved(equal(graph_of(make, (None, C)))) == {"biased"}


def test_random_nets_keep_their_outputs(equal):
    count = sum(len(moved(equal(random_net(seed)))) for seed in range(20))
    assert count > 25, "hardly anything was scaled, so this shows nothing"


def divide(reader: str, op: str) -> str:
    return because("reader-cannot-divide", reader=reader, op=op)


LEFT_ALONE = {
    "activation": (lambda: net(relu), divide("relu", "Relu")),
    "one reader of two": (lambda: net(lambda y: conv(y, "second") * y), divide("mul", "Mul")),
    "MaxPool over channels": (
        lambda: net(pooled("MaxPool", ksize=[1, 1, 1, 2], strides=[1, 1, 1, 2])),
        divide("pool", "MaxPool"),
    ),
    "transposed": (lambda: graph_of(transposed_a, (3, C)), divide("second", "MatMul")),
    "output": (
        lambda: with_tensors(net(lambda y: conv(y, "second")), outputs="first_biased"),
        because("tensor-fetched", tensor="first_biased"),
    ),
    "output in its group": (
        lambda: with_tensors(
            net(lambda y: conv(add(conv(y, "second"), y), "third")), outputs="sum"
        ),
        because("tensor-fetched", tensor="sum"),
    ),
    "fed": (
        lambda: with_tensors(net(lambda y: conv(y, "second")), inputs="first"),
        because("fed"),
    ),
    "sum with an activation": (
        lambda: net(lambda y: conv(add(relu(conv(y, "second")), y), "third")),
        because("summand-not-scalable", tensor="sum", summand="relu"),
    ),
}


@pytest.mark.parametrize(("make", "reason"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_left_alone(make, reason, equalized):
    graph = make()
    (step,) = equalized(graph)
    assert "first_biased" not in moved(step.graph)
    assert f"node 'first': {reason}" in step.skipped


def test_ranges_without_the_maximum_change_nothing(equalized):
    graph = net(lambda y: conv(y, "second"))
    (step,) = equalized(graph, without_max=True)
    assert str(step.graph) == str(graph)
    reason = because("ranges-lack-channel-max", tensor="first_biased")
    assert f"node 'first': {reason}" in step.skipped


NO_LAYERS = {
    "fed weights": (fed_weights, because("weights-not-constant")),
    "channels first": (channels_first, because("layout-unfit", layout="NCHW")),
}


@pytest.mark.parametrize(("make", "reason"), NO_LAYERS.values(), ids=NO_LAYERS)
def test_layers_without_factors(make, reason, tmp_path):
    (tmp_path / "ranges.json").write_text(Ranges("", 1, {}).text())
    text = f'equalize_channels(ranges="{tmp_path / "ranges.json"}")'
    (step,) = pipeline.run(make(), pipeline.parse(text))
    assert str(step.graph) == str(make())
    assert step.skipped[0] == f"node 'first': {reason}"


def test_ranges_of_another_model_are_refused(tmp_path):
    graph, path = net(lambda y: conv(y, "second")), tmp_path / "other.json"
    path.write_text(Ranges("", 1, {"other": TensorRange(0, 1)}).text())
    with pytest.raises(GraphError, match=says("ranges-lack-tensors", example="first_biased")):
        transform(graph, f'equalize_channels(ranges="{path}")')


def test_shared_constants_keep_their_value(equal):
    graph = net(lambda y: conv(y, "second"))
    shared = graph["first_biased"].inputs[1]
    second = graph["second_biased"]
    graph.replace(second, second.with_data_inputs(second.inputs[0], shared))
    assert moved(equal(graph)) == {"first_biased"}


def test_a_net_whose_sums_have_activations_stays(equalized):
    (step,) = equalized(res_net())
    assert moved(step.graph) == set()


GRAPHS = [Example("equalize_channels(ranges={ranges})", lambda: mobile_net(1), bar=1e-5)]
