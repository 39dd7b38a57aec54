"""A green light means that something was compared: what proves nothing is not verified."""

import numpy as np
import pytest

import deploykit
from deploykit.transforms.common.errors import CrashError, GraphError, UnverifiedError
from deploykit.transforms.ir.graph import Graph
from deploykit.verification.verify import verify
from tests import pairwise
from tests.support import (
    Containing,
    because,
    build,
    building,
    built,
    raises,
    random,
    shows,
    tf,
    transform,
)

OUTPUTS = {
    "values": lambda tf, y: y,
    "nan": lambda tf, y: y * np.float32("nan"),
    "infinite": lambda tf, y: np.float32("inf") + 0 * y,
    "zero": lambda tf, y: tf.nn.relu(y - 99),
    "constant": lambda tf, y: 5 + 0 * y,
    "empty": lambda tf, y: y[:0],
    "of no column": lambda tf, y: y[:, :0],
    "texts": lambda tf, y: tf.strings.as_string(y),
    "one text": lambda tf, y: tf.strings.as_string(tf.zeros_like(y)),
    "whole numbers": lambda tf, y: tf.cast(100 * y, tf.int32),
    "true": lambda tf, y: y > -99,
}
PROVE = {"values", "texts", "whole numbers", "true"}  # the last is chosen, so y is compared


def times(factor: float, *kinds: str) -> Graph:
    """Return x times a factor and a matrix, with outputs of these kinds made of it."""

    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.matmul(factor * x, random(3, 4))
        for kind in kinds:
            tf.identity(OUTPUTS[kind](tf, y), name=kind.replace(" ", "_"))

    return build(body, ["x"], [kind.replace(" ", "_") for kind in kinds])


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", OUTPUTS)
def test_what_could_not_differ_is_not_verified(kind):
    for data in (None, {"x": random(6, 3)}):
        same = verify(times(1, kind), times(1, kind), data=data)
        other = verify(times(1, kind), times(7, kind), data=data)
        assert not other.passed
        assert (same.verified, same.passed) == ((kind in PROVE),) * 2, same
        if kind in PROVE:
            assert other.differs
            assert same.compared >= same.distinct >= 2
        else:
            assert not other.verified
            assert other.reason == same.reason
            codes = "reference-empty", "reference-constant"
            assert any(shows(same.reason, code) for code in codes)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("kind", sorted(OUTPUTS))
def test_every_output_counts(kind):
    """One with varying values does not stand for another that has none."""
    covered = PROVE | {"zero", "constant", "one text"}  # their values were compared
    for kinds in (("values", kind), (kind, "values")):
        found = verify(times(1, *dict.fromkeys(kinds)), times(1, *dict.fromkeys(kinds)))
        # An empty slice is one of `values`, which were compared.
        assert found.verified == (kind in covered | {"empty", "of no column"}), found


@pytest.mark.usefixtures("in_process")
def test_constant_outputs_prove_nothing_together():
    assert not verify(times(1, "zero", "constant"), times(1, "zero", "constant")).verified


def fetched(*values) -> Graph:
    """Return a graph without inputs, or with one that no output reads."""

    def body():
        tf.compat.v1.placeholder(tf.float32, [None], name="x")
        for place, value in enumerate(values):
            tf.identity(tf.constant(value) * 1, name=f"out{place}")

    return build(body, (), [f"out{place}" for place in range(len(values))])


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("inputs", [(), ("x",)])
def test_outputs_that_no_input_reaches_are_compared_by_their_values(inputs):
    for values, other in (((5.0,), (6.0,)), ((5.0, 7), (5.0, 8)), ((2, [1, 2]), (2, [2, 2]))):
        graph, result = fetched(*values), fetched(*other)
        graph.inputs = result.inputs = inputs
        assert verify(graph, graph).passed
        assert verify(graph, result).differs
    graph = fetched(5.0)
    assert verify(graph, graph, data={}).passed  # no inputs, so no arrays
    nan = fetched(np.nan)
    nan.inputs = inputs
    assert not verify(nan, nan).verified


def kept(tf, y):
    """Return no place at all, chosen by scores."""
    return tf.image.non_max_suppression(y, y[:, 0], 5, score_threshold=99.0)


def above(y):
    return y[:, 0] > 99


EMPTIED = {
    "suppressed": lambda tf, y: tf.gather(y, kept(tf, y)),
    "masked": lambda tf, y: tf.boolean_mask(y, above(y)),
    "places": lambda tf, y: tf.where(y > 99),
    "of no class": lambda tf, y: tf.dynamic_partition(y, tf.cast(above(y), tf.int32), 2)[1],
    "ragged": lambda tf, y: tf.ragged.boolean_mask(y, y > 99).flat_values,
    "sparse": lambda tf, y: tf.sparse.from_dense(tf.where(y > 99, y, 0.0)).values,
    "different": lambda tf, y: tf.unique(tf.boolean_mask(tf.cast(y, tf.int32)[:, 0], above(y)))[0],
    "padded": lambda tf, y: tf.image.combined_non_max_suppression(
        y[None, :, None, :], y[None, :, :1], 3, 3, score_threshold=99.0
    )[0],
    "summed": lambda tf, y: tf.reduce_sum(tf.boolean_mask(y, above(y))),
    "reshaped": lambda tf, y: tf.reshape(tf.boolean_mask(y, above(y)), [-1, tf.shape(y)[1]]),
    "sliced": lambda tf, y: y[:0],
}  # fmt: skip


def emptied(kind: str, before: float, behind: float, beside: bool) -> Graph:
    """Return a graph with an output that is empty, or zero, whatever is fed."""

    with building(["x"], ["beside", "out"] if beside else ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        y = tf.matmul(x, random(3, 4))
        if beside:
            tf.identity(y, name="beside")
        found = EMPTIED[kind](tf, y * np.float32(before))
        tf.multiply(found, tf.cast(behind, found.dtype), name="out")
    return graph


@pytest.mark.sampled
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    "kind",
    pairwise.drawn(
        "an_empty_output_counts_only_if_what_it_is_made_of_was_compared", list(EMPTIED), 2, quick=4
    ),
)
def test_an_empty_output_counts_only_if_what_it_is_made_of_was_compared(kind, beside):
    graph = emptied(kind, 2, 3, beside)
    same = verify(graph, emptied(kind, 2, 3, beside))
    assert same.verified == same.passed == (kind != "sliced"), same
    for before, behind in ((7, 3), (2, 7)):
        other = verify(graph, emptied(kind, before, behind, beside))
        assert not other.passed
        if kind == "sliced" or behind == 7:
            assert not other.verified
    if kind == "sliced" and beside:
        assert shows(other.reason, "empty-not-compared", output="out")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("kind", "state"), [("summed", "one value"), ("masked", "empty")])
def test_the_reason_says_whether_an_output_is_empty_or_has_one_value(kind, state):
    graphs = (emptied(kind, 2, behind, beside=False) for behind in (3, 7))
    reason = verify(*graphs).reason
    assert [word for word in ("empty", "one value") if word in reason] == [state]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("transforms", ["fold_constants", "remove_nodes(op=Identity)"])
def test_an_optimized_detector_that_keeps_nothing_is_verified(transforms):
    graph = emptied("suppressed", 1, 3, beside=False)
    assert verify(graph, transform(graph, transforms)).verified


@pytest.mark.usefixtures("in_process")
def test_one_value_of_one_sample_is_not_enough():
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.reduce_sum(x, 1, name="out")
    assert not verify(graph, graph, data={"x": random(1, 3)}).verified
    assert verify(graph, graph, data={"x": random(2, 3)}).verified
    assert verify(graph, graph).verified


@pytest.mark.usefixtures("in_process")
def test_what_changes_from_run_to_run_cannot_be_compared():
    def body():
        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        tf.add(x, tf.random.uniform([3]), name="out")
        tf.add(x, x, name="same")

    graph = build(body, ["x"], ["same", "out"])
    found = verify(graph, graph)
    assert (found.verified, found.passed) == (False, False)
    assert found.reason == because("reference-changes")


@built(["x"], ["out"])
def dies(when: bool):
    """Return x + 1; with `when`, TensorFlow's process ends where it runs."""
    x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
    end = [tf.raw_ops.Abort(error_msg="now")] if when else []
    with tf.control_dependencies(end):
        tf.add(x, 1, name="out")


@pytest.mark.sampled
def test_it_is_said_on_which_of_the_two_tensorflow_died():
    found = verify(dies(False), dies(True))
    assert found.differs
    assert "died" in found.reason
    found = verify(dies(True), dies(False))
    assert (found.verified, found.passed) == (False, False)
    assert "died" in found.not_possible
    with pytest.raises(CrashError):
        verify(dies(True), dies(True), data={"x": random(4, 3)})


@pytest.mark.usefixtures("in_process")
def test_an_output_of_one_value_for_all_samples_is_compared_on_several_feeds():
    def mean(factor):
        with building(["x"], ["out"]) as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
            tf.reduce_mean(factor * x, name="out")
        return graph

    assert verify(mean(2), mean(2)).passed
    assert verify(mean(2), mean(3)).differs


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("sign", [-1, 1])
def test_random_inputs_lie_on_both_sides_of_zero(sign):
    def one_sided(factor):
        with building(["x"], ["out"]) as graph:
            x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
            tf.multiply(tf.nn.relu(sign * x), factor, name="out")
        return graph

    assert verify(one_sided(2), one_sided(2)).passed
    assert verify(one_sided(2), one_sided(3)).differs


@pytest.mark.usefixtures("in_process")
def test_an_input_too_large_to_be_made_up_is_not_verified():
    found = verify(times(1, "values"), times(1, "values"), shapes={"x": (1 << 40, 3)})
    assert not found.verified
    assert shows(found.not_possible, "input-not-generated", shape=Containing(str(1 << 40)))


WEIGHTS = np.random.default_rng(0).normal(size=(2, 8, 300)).astype(np.float32)


def long_convolution():
    """A convolution over a length of which 200 values are cut, so that 96 are too few."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, None, 4), "x")
        made = tf.nn.conv1d(x, tf.constant(np.tile(WEIGHTS[:1, :4, :8], (201, 1, 1))), 1, "VALID")
        tf.nn.softmax(tf.reduce_sum(made, 1), name="y")
    return graph.as_graph_def()


def time_major():
    """A model whose samples lie on the second axis, and which takes two of them."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, None, 3), "x")
        states = tf.ensure_shape(tf.transpose(x, (1, 0, 2)), (2, None, 3))
        tf.tanh(tf.matmul(states, tf.constant(WEIGHTS[:, :3, :])), name="y")
    return graph.as_graph_def()


def chosen_width():
    """A matrix product whose width is an input, which has to be 8."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 8), "x")
        k = tf.compat.v1.placeholder(tf.int32, (), "k")
        tf.matmul(tf.reshape(x, tf.stack([-1, k])), tf.constant(WEIGHTS[0]), name="y")
    return graph.as_graph_def()


@pytest.mark.parametrize(
    ("model", "advice", "followed"),
    [
        (long_convolution, "--shape x=?,?,4", {"shapes": {"x": (2, 240, 4)}}),
        (time_major, "--shape x=?,?,3", {"shapes": {"x": (7, 2, 3)}}),
        (chosen_width, "--pin k=VALUE", {"pins": {"k": 8}}),
    ],
)
@pytest.mark.parametrize("command", [deploykit.optimize, deploykit.quantize])
def test_the_advice_for_sizes_that_do_not_fit_works(tmp_path, model, advice, followed, command):
    more = {"output": tmp_path / "a.pb"}
    if command is deploykit.quantize:
        more["allow_float"] = True
    with raises(UnverifiedError, "not-verified-unwritten") as caught:
        command(model(), **more)
    assert advice in caught.value.fields["advice"]
    assert not more["output"].exists()
    command(model(), **more, **followed)
    assert more["output"].exists()


@pytest.mark.sampled
@pytest.mark.parametrize("command", [deploykit.benchmark, deploykit.placement])
def test_the_advice_to_measure_with_sizes_that_fit_works(command):
    more = {"seconds": 0.1} if command is deploykit.benchmark else {}
    with raises(GraphError, "random-sizes-do-not-fit") as caught:
        command(time_major(), **more)
    assert "--shape x=?,?,3" in caught.value.fields["advice"]
    assert command(time_major(), **more, shapes={"x": (7, 2, 3)})
    with raises(GraphError, "runtime-failed"):  # the sizes are those of the data
        command(time_major(), **more, data={"x": np.zeros((3, 4, 3), np.float32)})
