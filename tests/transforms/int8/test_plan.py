"""Which tensors share a range, and how codes stand for what they stand for."""

from dataclasses import replace

import pytest

from deploykit.transforms.int8.affine_codes import Form
from deploykit.transforms.int8.plan import Plan, plan
from deploykit.transforms.int8.ranges import Ranges, TensorRange
from deploykit.transforms.ir.graph import Graph
from tests.support import because, build, random, tf
from tests.transforms.int8_nets import C, feeds_of, image, layer, ranges_of, relu


def planned(graph: Graph, changes=None, keep_float=()) -> Plan:
    """Return the plan of a graph for the values that the tests feed, with other ranges in it."""
    known = ranges_of(graph, [feeds_of(graph, 3)])
    return plan(graph, replace(known, tensors={**known.tensors, **(changes or {})}), keep_float)


def net(make, outputs=("out",)) -> Graph:
    graph = build(make, ["x"], outputs)
    graph.prune()
    return graph


def joined() -> Graph:
    """Return three branches that are joined in two steps."""

    def make():
        x = image()
        a, b, c = (
            relu(layer("conv", x, n, weights=random(3, 3, C, 4, seed=ord(n))), f"{n}/relu")
            for n in "abc"
        )
        inner = tf.concat([a, b], -1, name="inner")
        outer = tf.concat([inner, c], -1, name="outer")
        relu(layer("conv", outer, "last"), "out")

    return net(make)


def test_what_is_joined_shares_the_largest_peak():
    changes = {f"{n}/relu": TensorRange(0, peak) for n, peak in zip("abc", (1, 9, 4), strict=True)}
    found = planned(joined(), changes)
    for name in ("a/relu", "b/relu", "c/relu", "inner", "outer"):
        assert found.forms[name] == Form(False, 9.0)
    assert found.reads["last"] == Form(False, 9.0)
    assert found.passing == {"inner", "outer"}


def test_a_float_branch_keeps_the_join_float():
    found = planned(joined(), keep_float=["b"])
    assert found.passing == set()
    assert found.forms["a/relu"].peak != found.forms["c/relu"].peak
    assert found.reasons == {"b": because("listed", option="keep_float")}
    assert found.reads["last"].peak > 0


FORMS = {
    "without a sign": (TensorRange(0, 4), Form(False, 4.0)),
    "rounding below zero": (TensorRange(-1e-6, 4), Form(False, 4.0)),
    "with a sign": (TensorRange(-5, 4), Form(True, 5.0)),
}


@pytest.mark.parametrize(("found", "form"), FORMS.values(), ids=FORMS)
def test_the_form_of_what_a_layer_makes(found, form):
    graph = net(lambda: layer("conv", image(), "layer", bias=False), outputs=("layer",))
    assert planned(graph, {"layer": found}).forms["layer"] == form


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (-2.0, -1.0), (-1e-1, 7.0)])
def test_zero_has_a_code_of_its_own_in_what_a_layer_made(low, high):
    """Small images have many zeros around them."""

    def make():
        first = layer("conv", image(), "first", bias=False)
        layer("depthwise", first * relu(first), "layer", bias=False)

    form = planned(net(make, ("layer",)), {"mul": TensorRange(low, high)}).reads["layer"]
    step = form.peak / 255
    zero = -form.offset / step
    assert zero == pytest.approx(round(zero), abs=1e-9)
    assert form.zero == round(zero)
    assert form.offset == pytest.approx(low, abs=step)
    assert form.peak + form.offset == pytest.approx(max(high, 0.0), abs=step)


@pytest.mark.parametrize(("low", "high"), [(-1.0, 3.0), (-2.0, -1.0)])
def test_the_lowest_value_of_an_input_has_a_code_of_its_own(low, high):
    """Photos from -1 to 1 are whole codes so, and none lies half-way between two."""
    graph = net(lambda: layer("matmul", image((None, C)), "layer", bias=False), outputs=("layer",))
    form = planned(graph, {"x": TensorRange(low, high)}).reads["layer"]
    assert (form.offset, form.peak + form.offset) == (low, pytest.approx(max(high, 0.0)))


def test_an_input_without_a_range():
    graph = net(lambda: layer("conv", image(), "layer", bias=False), outputs=("layer",))
    found = plan(graph, Ranges("", 1, {"layer": TensorRange(0, 1)}))
    assert found.reasons == {"layer": because("ranges-lack-tensor", tensor="x")}
    assert not found.chains
