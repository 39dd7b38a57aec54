"""Residual sums of any shape become part of a layer in 8 bits, whichever side runs last."""

import itertools

import numpy as np
import pytest

from deploykit.pipelines.int8 import int8_graph
from deploykit.quantization import calibrated_graph
from deploykit.quantization.calibrated_graph import prepare
from deploykit.transforms.int8 import plan as planning
from deploykit.transforms.int8.ranges import load_ranges
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from deploykit.transforms.runtime.session import Session
from tests.support import building, ops, random, run, tf
from tests.transforms.int8_nets import C, image, layer, relu

BAR_DB = 20.0  # 8 bits give 50 dB at best; these nets have up to 17 layers in a row

FORMS = list(itertools.product(("projection", "same"), ("first", "last"), (False, True)))
"""A block: what its shortcut is, when that is made, and whether it is the left one of the sum."""


def residual_net(forms, activation=relu) -> Graph:
    """Return blocks in a row, each a branch of two layers and a shortcut."""

    with building(["x"], ["out/biased"]) as graph:
        y = relu(layer("conv", image(), "stem"), "stem/relu")
        for number, (kind, place, is_left) in enumerate(forms):
            y = activation(block(y, f"block{number}", kind, place, is_left))
        layer("conv", y, "out", weights=random(1, 1, C, 3, seed=7))
    graph.prune()
    return graph


def block(y, name, kind, place, is_left):
    def shortcut():
        if kind == "same":
            return y
        return layer("conv", y, f"{name}/shortcut", weights=random(1, 1, C, C, seed=len(name)))

    early = shortcut() if place == "first" else None
    branch = relu(layer("conv", y, f"{name}/a", weights=random(3, 3, C, C, seed=4)))
    branch = layer("conv", branch, f"{name}/b", weights=random(3, 3, C, C, seed=5))
    late = shortcut() if early is None else early
    return late + branch if is_left else branch + late


def in_8_bits(graph: Graph, folder, keep_float=()) -> Graph:
    """Return a graph shifted, calibrated and in 8 bits, after a comparison of its numbers."""
    feeds = {"x": random(6, 9, 8, C, seed=8, low=0)}
    path = str(folder / "net.ranges.json")
    shifted, _ = prepare(graph, [feeds], path)
    result = int8_graph(shifted, path, keep_float=keep_float)
    for batch in (1, 6):
        fed = {"x": feeds["x"][:batch]}
        (found,) = compare(run(graph, fed), run(result, fed))
        assert found.sqnr_db >= BAR_DB
    return result


def sums(graph: Graph) -> int:
    return sum("Sum" in (n.attr("fused_ops") or ()) for n in graph if "fused_ops" in n.attrs)


@pytest.mark.sampled
@pytest.mark.parametrize("forms", [[form] for form in FORMS] + [FORMS[::3], FORMS[::-1]], ids=str)
def test_every_residual_sum_goes_into_a_layer(forms, in_process, tmp_path):
    result = in_8_bits(residual_net(forms), tmp_path)
    assert sums(result) == len(forms)
    assert not ops(result).keys() & {"AddV2", "Relu"}
    assert ops(result)["QuantizeV2"] == 1


@pytest.mark.sampled
def test_blocks_behind_a_float_one_have_their_sums_too(in_process, tmp_path):
    """Their summand is made in float, and is in 8 bits for the layer that begins the block."""
    same = ("same", "first", False)
    result = in_8_bits(residual_net([same] * 3), tmp_path, keep_float=["block0/b"])
    assert sums(result) == 2
    # the input, and what the float block gives: for a layer and for a sum alike
    assert ops(result)["QuantizeV2"] == 2


@pytest.mark.sampled
def test_a_float_summand_that_nobody_else_reads_in_8_bits_is_not_converted(in_process, tmp_path):
    same = ("same", "first", False)
    kept = ["block0/b", "block1/a"]
    result = in_8_bits(residual_net([same] * 2), tmp_path, keep_float=kept)
    assert sums(result) == 0


@pytest.mark.sampled
def test_of_two_layers_the_one_without_a_sign_is_added_to_the_other(
    in_process, tmp_path, monkeypatch
):
    """In the other order both have a sign, and their sum stays float."""
    graphs = [residual_net([("projection", place, False)]) for place in ("first", "last")]
    assert [sums(in_8_bits(graph, tmp_path)) for graph in graphs] == [1, 1]
    monkeypatch.setattr(planning.Planner, "_has_sign", lambda self, layer: layer.name < "block0/c")
    assert 0 in [sums(in_8_bits(graph, tmp_path)) for graph in graphs]


@pytest.mark.sampled
def test_random_residual_nets(in_process, tmp_path):
    rng = np.random.default_rng(5)
    for _ in range(4):
        forms = [FORMS[i] for i in rng.integers(len(FORMS), size=3)]
        floats = [f"block{rng.integers(3)}/{rng.choice(['a', 'b'])}"]
        in_8_bits(residual_net(forms), tmp_path, keep_float=floats)


BIAS = np.float32([0, 0, 0, 0, 0, 0, 0, 20])  # the last channel does not fall below zero


@pytest.fixture(scope="module")
def low_net():
    """A layer without activation, which gives values below zero, and one that reads them."""

    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4, 4, 6], name="x")
        y = tf.nn.bias_add(tf.nn.conv2d(x, random(1, 1, 6, 8), 1, "VALID", name="low"), BIAS)
        y = tf.nn.relu(tf.nn.conv2d(y, random(1, 1, 8, 4), 1, "VALID", name="reader"), name="relu")
        tf.identity(y, name="out")
    return graph


def test_others_may_reach_lower_by_a_tenth(low_net, in_process, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrated_graph, "equalize_channels", lambda graph, ranges: None)
    path, x = str(tmp_path / "ranges.json"), random(16, 4, 4, 6)
    shifted, _ = prepare(low_net, [{"x": x}], path)
    (name,) = [each for each in load_ranges(path).tensors if each.endswith("_shifted")]
    before = Session(b"".join(low_net.serialized())).run([name.removesuffix("_shifted")], {"x": x})[
        0
    ]
    after = Session(b"".join(shifted.serialized())).run([name], {"x": x})[0]
    lows = before.min((0, 1, 2))
    assert (lows < -0.1).any()
    assert (lows > 0).any()
    np.testing.assert_allclose(after.min((0, 1, 2)), np.where(lows < 0, -0.1, 1) * lows, atol=1e-4)
    np.testing.assert_allclose(*(run(each, {"x": x})[0] for each in (low_net, shifted)), atol=1e-4)


def test_a_layer_without_a_bias_keeps_its_name(in_process, tmp_path):
    """So a user can name it in `keep_float`, and finds it in the result."""

    with building(["x"], ["out/biased"]) as graph:
        y = relu(layer("conv", image(), "stem", bias=False))
        y = layer("conv", y, "linear", bias=False, weights=random(1, 1, C, C))
        y = relu(layer("conv", y, "head", bias=False, weights=random(1, 1, C, C, seed=5)))
        layer("conv", y, "out", weights=random(1, 1, C, 3, seed=7))
    graph.prune()
    path = str(tmp_path / "ranges.json")
    feeds = {"x": random(6, 9, 8, C, seed=8, low=0)}
    prepared, _ = prepare(graph, [feeds], path)
    layers = {"stem", "linear", "head", "out"}
    assert {node.name for node in prepared if node.op == "Conv2D"} == layers
    planned = planning.plan(prepared, load_ranges(path), ["linear"])
    assert planned.chains.keys() == layers - {"linear"}
    (found,) = compare(run(graph, feeds), run(prepared, feeds))
    assert found.sqnr_db > 100
