"""Classes on which a model fails although the total looks good are named, and no others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deploykit as api
from deploykit.quantization.accuracy import Evaluator
from deploykit.rendering.formatters.accuracy import lines
from deploykit.rendering.tables import drawn
from deploykit.reporting.page.page import html_of
from deploykit.verification.coverage import weak_classes
from tests.support import building, tf

CLASSES, EACH, LOST = 10, 66, 6
LABELS = np.repeat(np.arange(CLASSES), EACH)
X = np.eye(CLASSES, dtype=np.float32)[LABELS]
DATA = {"x": X, "labels": LABELS}


def net(lost: int | None, delta: float = 5.0):
    """Return a classifier that is always right, but for one class that it never predicts."""
    bias = np.zeros(CLASSES, np.float32)
    if lost is not None:
        bias[lost] = -delta
    with building(["x"], ["out"]) as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, CLASSES], name="x")
        tf.nn.softmax(tf.add(x, bias, name="moved"), name="out")
    return graph


@pytest.mark.sampled
@given(st.integers(2, 50), st.integers(30, 100), st.floats(0.7, 1.0), st.randoms())
def test_the_lost_class_and_no_other(classes, each, total, random):
    """The others are right equally often in both models, whatever their number."""
    numbers = np.repeat(np.arange(classes), each)
    right = np.random.default_rng(random.getrandbits(32)).random(len(numbers)) < total
    before, after = right | (numbers == 0), right & (numbers != 0)
    assert [one.number for one in weak_classes([before, after], numbers, classes)] == [0]
    assert [one.number for one in weak_classes([after], numbers, classes)] == [0]
    assert weak_classes([right, right], numbers[::-1], classes) == ()
    assert weak_classes([after, before], numbers, classes) == ()


@pytest.mark.sampled
@pytest.mark.parametrize("each", [1, 2, 5, 20])
def test_chance_names_no_class_of_many(each):
    """Of 1,000 classes with few samples, some are never right in a model of 50 %."""
    numbers = np.repeat(np.arange(1000), each)
    named = 0
    for seed in range(10):
        right = np.random.default_rng(seed).random(len(numbers)) < 0.5
        named += len(weak_classes([right], numbers, 1000))
        named += len(weak_classes([right, right], numbers, 1000))
    assert named <= 2


def test_few_samples_of_a_class_and_a_poor_model_prove_nothing():
    numbers = np.repeat(np.arange(10), 3)
    right = np.arange(30) % 3 == 0
    right[:3] = False
    assert weak_classes([right], numbers, 10) == ()


def test_a_class_that_loses_half_is_weak_and_one_that_loses_little_is_not():
    numbers = np.repeat(np.arange(3), 100)
    before = np.ones(300, bool)
    after = before.copy()
    after[:50] = False
    after[100:103] = False
    (weak,) = weak_classes([before, after], numbers, 3, ["cat", "dog"])
    assert (weak.number, weak.label, weak.samples, weak.right) == (0, "0 cat", 100, (100, 50))


def test_accuracy_names_the_class():
    names = [f"class{n}" for n in range(CLASSES)]
    found = api.accuracy({"a": net(None), "b": net(LOST)}, DATA, labels=names)
    (weak,) = found.weak_classes
    assert (weak.number, weak.right) == (LOST, (EACH, 0))
    assert weak.text in "\n".join(drawn(lines(found)))
    assert found.document()["weak_classes"][0]["label"] == f"{LOST} class{LOST}"
    assert weak.text.removeprefix("c") in html_of([found.document()])
    alone = api.accuracy(net(LOST), DATA)
    assert [one.right for one in alone.weak_classes] == [(0,)]
    assert not api.accuracy(net(None), DATA).weak_classes


@pytest.mark.parametrize("batch", [64, 660])
def test_int8_and_verify_name_the_class(batch):
    feeds = [{"x": X[at : at + batch]} for at in range(0, len(X), batch)]
    with Evaluator(net(None), feeds, LABELS) as evaluator:
        (weak,) = evaluator.judge(net(LOST)).weak_classes
    assert (weak.number, weak.right) == (LOST, (EACH, 0))
    (weak,) = api.verify(net(None), net(LOST), data=DATA).weak_classes
    assert (weak.number, weak.right) == (LOST, (EACH, 0))
