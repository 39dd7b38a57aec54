"""Another order of the classes is found if predictions fit it far better, and not by chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.verification.class_order import RARE, other_order

DRAWS = 1000
SEEDS = st.integers(0, 2**32 - 1)


def predicted(order, labels, accuracy, seed=0):
    """Return predictions: the class in an order with a probability, and otherwise any other one."""
    random, classes = np.random.default_rng(seed), len(order)
    right = np.asarray(order)[labels]
    others = (right + random.integers(1, classes, len(labels))) % classes
    return np.where(random.random(len(labels)) < accuracy, right, others)


def test_an_order_that_fits_far_better_is_found():
    """As in a report by a user: 24 % of the predictions are right, and 79 % in another order."""
    order = (0, 1, 4, 3, 2, 6, 7, 9, 5, 8)
    labels = np.repeat(np.arange(10), 20)
    found = other_order(predicted(order, labels, 0.79), labels, 10)
    assert found.fitting == order
    assert found.used == tuple(range(10))
    assert found.hits < 60 < 140 < found.hits_of_other < found.count == 200


@pytest.mark.parametrize("order", [(1, 0), (1, 2, 0), (0, 1, 3, 2), (1, 0, 2, 3, 4)])
def test_two_exchanged_classes_of_few_are_enough(order):
    labels = np.repeat(np.arange(len(order)), 10)
    found = other_order(np.asarray(order)[labels], labels, len(order))
    assert found.fitting == order
    assert found.hits_of_other == len(labels)


@pytest.mark.sampled
@given(st.integers(2, 30), st.integers(1, 12), st.floats(0.6, 1), SEEDS)
def test_a_model_that_is_often_right_is_in_order(classes, each, accuracy, seed):
    labels = np.repeat(np.arange(classes), each)
    assert other_order(predicted(range(classes), labels, accuracy, seed), labels, classes) is None


@given(st.integers(2, 30), st.integers(1, 12))
def test_predictions_of_one_class_are_in_no_order(classes, each):
    labels = np.repeat(np.arange(classes), each)
    assert other_order(np.ones_like(labels), labels, classes) is None


def test_classes_outside_the_data_are_no_other_order():
    """A model of many classes may take those of the data for similar ones."""
    labels = np.repeat([3, 5], 50)
    assert other_order(labels + 1, labels, 1000) is None
    assert other_order(8 - labels, labels, 1000).fitting == (5, 3)


def test_a_few_samples_are_no_evidence():
    for classes in (2, 4, 10):
        labels = np.arange(classes)
        assert other_order((labels + 1) % classes, labels, classes) is None


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("classes", "each"), [(2, 6), (2, 12), (3, 5), (4, 5), (8, 1), (8, 2), (10, 1), (10, 20)]
)
@pytest.mark.parametrize("kind", ["uniform", "skewed", "pairs"])
def test_random_predictions_raise_no_alarm(classes, each, kind):
    """`pairs`: a model that knows the classes, but not which is which of two similar ones."""
    random, labels = np.random.default_rng(5), np.repeat(np.arange(classes), each)
    shares = np.full(classes, 1 / classes) if kind == "uniform" else None
    alarms = 0
    for _ in range(DRAWS):
        if kind == "pairs":
            other = np.where(labels ^ 1 < classes, labels ^ 1, labels)
            answers = np.where(random.random(len(labels)) < 0.5, labels, other)
        else:
            drawn = random.dirichlet(np.ones(classes)) if shares is None else shares
            answers = random.choice(classes, len(labels), p=drawn)
        alarms += other_order(answers, labels, classes) is not None
    assert alarms <= RARE * DRAWS
