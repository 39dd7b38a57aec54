"""The comparison of two graphs: what it sees, what it does not excuse, what it cannot judge."""

import math
import re

import numpy as np
import pytest

from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from deploykit.transforms.runtime.differences import compare
from deploykit.verification.running import Run
from deploykit.verification.tolerance import default_tolerance
from deploykit.verification.verify import verify
from tests.support import because, building, built, raises, random, shows, tf

pytestmark = pytest.mark.usefixtures("in_process")


@built(["x"], ["out"])
def net(change=0.0, softmax=True, batch=None, output="float32"):
    """Return a dense layer with large logits; `change` is added to one weight."""
    x = tf.compat.v1.placeholder(tf.float32, [batch, 6], name="x")
    weights = random(6, 4) * 0.01
    weights[2, 1] += change
    y = tf.matmul(x, weights) + np.array([30, 0, 0, 0], np.float32)
    y = tf.nn.softmax(y) if softmax else y
    y = tf.argmax(y, -1) if output == "int64" else y
    tf.identity(y, name="out")


def test_equal_graphs():
    found = verify(net(), net())
    assert (found.verified, found.passed) == (True, True)
    assert found.max_relative_error == 0
    assert found.sqnr_db == math.inf
    assert len(found.differences) == 2  # the output, and what the softmax reads


def test_a_large_graph_that_did_not_change_is_not_run(monkeypatch):
    monkeypatch.setattr("deploykit.verification.verify.LARGE_GRAPH", 3)
    monkeypatch.setattr("deploykit.verification.verify._run", None)
    found = verify(net(), net())
    assert (found.verified, found.passed, found.is_unchanged) == (True, True, True)
    monkeypatch.undo()
    monkeypatch.setattr("deploykit.verification.verify.LARGE_GRAPH", 3)
    changed = verify(net(), net(change=0.5))
    assert (changed.passed, changed.is_unchanged) == (False, False)
    given = verify(net(), net(), data={"x": random(9, 6)})
    assert (given.samples, given.is_unchanged) == (9, False)


def test_what_a_softmax_hides_is_seen_before_it():
    found = verify(net(), net(change=0.5))
    assert found.differences[0].max_relative_error < 1e-6
    assert found.differences[1].max_relative_error > 1e-3
    assert not found.passed
    assert shows(found.reason, "output-error")


def test_bars():
    changed = net(change=0.5, softmax=False)
    assert not verify(net(softmax=False), changed).passed
    assert verify(net(softmax=False), changed, tolerance=0.1).passed
    assert verify(net(softmax=False), changed, min_sqnr=20).passed
    found = verify(net(softmax=False), changed, min_sqnr=60)
    assert not found.passed
    assert shows(found.reason, "output-sqnr", expected=60)
    assert default_tolerance(net()) == pytest.approx(6e-6)


def test_classes_are_judged_by_the_scores_that_they_are_chosen_from():
    """Noise may turn a class; the scores say whether it is noise."""
    reference, other, noisy = net(output="int64"), net(output="int64"), net(1e-3, output="int64")
    constant = next(n for n in other if n.op == "Const" and n.value.shape == (4,))
    values = np.array([0, 30, 0, 0], np.float32)
    other.replace(constant, type(constant).constant(constant.name, values))
    for bar in ({}, {"min_sqnr": 10}):
        found = verify(reference, other, **bar)
        assert not found.passed
        assert "output '" in found.reason
    found = verify(reference, noisy, min_sqnr=10)
    assert found.passed
    assert found.sqnr_db < 100


def test_data_in_batches_and_accuracy():
    data = {"x": random(7, 6), "labels": np.array([0, 0, 0, 0, 0, 1, 1])}
    for batch in (None, 1, 7):
        found = verify(net(batch=batch), net(batch=batch), data=data)
        assert found.passed, found
        assert found.accuracy == pytest.approx((5 / 7, 5 / 7))
        assert found.samples == 7


def test_a_result_that_does_not_load_fails_and_a_reference_that_does_not_is_an_error():
    broken = net()
    matmul = next(n for n in broken if n.op == "MatMul")
    broken.replace(matmul, matmul.with_attrs(transpose_b=True))
    found = verify(net(), broken)
    assert (found.verified, found.passed) == (True, False)
    assert shows(found.reason, "runtime-failed", action="load the graph")
    with raises(GraphError, "runtime-failed", runtime="TensorFlow", action="load the graph"):
        verify(broken, net())


def with_switch() -> Graph:
    """Return the net with a second input that only training would need."""
    graph = net()
    switch = Node("switch", "Placeholder").with_attrs(dtype=DType("bool"), shape=())
    graph.add(switch)
    graph.inputs = ("x", "switch")
    return graph


def test_a_result_may_have_fewer_inputs_but_not_others():
    assert verify(with_switch(), net()).passed
    found = verify(net(), with_switch())
    assert (found.verified, found.passed) == (True, False)
    assert found.reason == because("inputs-differ", found="x, switch", expected="x")


def test_labels_must_be_as_many_as_the_samples():
    with raises(GraphError, "counts-differ", what="labels", count=3, other_count=7):
        verify(net(), net(), data={"x": random(7, 6), "labels": np.zeros(3, int)})


def test_an_output_more_or_less_fails():
    other = net()
    other.outputs = ("out", "x")
    for reference, result, counts in ((net(), other, "2.*1"), (other, net(), "1.*2")):
        found = verify(reference, result)
        assert (found.verified, found.passed) == (True, False)
        assert re.search(counts, found.reason)


@pytest.mark.parametrize(("crashes", "verified"), [("both", False), ("result", True)])
def test_a_crash_of_tensorflow_is_told_by_whose_it_is(monkeypatch, crashes, verified):
    """On synthetic inputs a reference that crashes says nothing about the result."""

    def called(function, reference, result, task):
        if crashes == "both" or reference != result:
            raise CrashError("child-ended", runs="x", exit_status=134, reason="")
        return Run()

    monkeypatch.setattr("deploykit.verification.verify.call", called)
    found = verify(net(), net(change=0.5))
    assert (found.verified, found.passed) == (verified, False)
    assert bool(found.not_possible) == (not verified)
    if not verified:
        with raises(CrashError, "child-ended"):
            verify(net(), net(change=0.5), data={"x": random(9, 6)})


@pytest.mark.parametrize(
    ("reference", "result", "fault"),
    [
        ([1.0, np.nan], [1.0, 2.0], "NaN"),
        ([1.0, np.inf], [1.0, -np.inf], "NaN"),
        ([1.0, 2.0], [1.0, np.nan], "NaN"),
        ([1.0, 2.0], [[1.0, 2.0]], "shape"),
        ([1, 2], [1, 3], "1 of 2 values differ"),
        ([1, 2], [1.0, 2.0], "type"),
        ([b"a"], [b"b"], "1 of 1 values differ"),
    ],
)
def test_what_no_tolerance_excuses(reference, result, fault):
    (found,) = compare([np.array(reference)], [np.array(result)])
    assert fault in found.fault
    assert found.max_relative_error == math.inf
    (same,) = compare([np.array(reference)], [np.array(reference)])
    assert (same.fault, same.max_relative_error) == ("", 0)


def test_figures():
    (found,) = compare([np.array([3.0, 4.0])], [np.array([3.0, 4.5])])
    assert found.max_relative_error == pytest.approx(0.5 / 4)
    assert found.rms_relative_error == pytest.approx(0.1)
    assert found.sqnr_db == pytest.approx(20)
    (found,) = compare([np.zeros(3)], [np.full(3, 1e-9)])
    assert found.max_relative_error == math.inf  # nothing to be relative to


def test_an_sqnr_is_judged_before_the_softmax(in_process):
    """Sharp answers: noise in the logits that is small for them is large behind the Softmax."""

    def body(noise):
        with building(["x"], ["out"]) as graph:
            x = tf.compat.v1.placeholder(tf.float32, [2, 8], name="x")
            logits = tf.matmul(x, (random(8, 99) + noise * random(8, 99, seed=1)) * 9)
            tf.nn.softmax(tf.identity(logits, name="logits"), name="out")
        return graph

    found = verify(body(0), body(0.1), min_sqnr=15)
    by_output = {d.output: d for d in found.differences}
    assert by_output["out"].sqnr_db < 15 < by_output["logits"].sqnr_db == found.sqnr_db
    assert found.passed
    assert not verify(body(0), body(0.5), min_sqnr=15).passed
    assert not verify(body(0), body(0.1), tolerance=1e-3).passed
