"""What cannot be chance is doubted, what can be is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.verification.coverage import FEWEST, answers_of, doubt
from tests.support import shows

CLASSES = st.integers(2, 1000)
SEEDS = st.integers(0, 2**32 - 1)


def dealt(seed: int, count: int, classes: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, count)


@pytest.mark.sampled
@given(CLASSES, st.integers(11, 300), st.data())
def test_answers_of_one_class_are_doubted_and_it_is_named(classes, count, data):
    number = data.draw(st.integers(0, classes - 1))
    said = doubt(np.full(count, number), classes)
    assert shows(said, "all-one-class", number=number)


@given(CLASSES, st.integers(0, FEWEST - 1), SEEDS)
def test_of_few_samples_nothing_follows(classes, count, seed):
    answers = np.zeros(count, int)
    assert not doubt(answers, classes)
    assert not doubt(answers, classes, dealt(seed, count, classes))


def test_eight_answers_of_one_of_two_classes_can_be_chance():
    assert not doubt(np.ones(8, int), 2)
    assert doubt(np.ones(8, int), 10)


@given(CLASSES, st.integers(20, 300), SEEDS)
def test_a_right_model_is_never_doubted(classes, count, seed):
    labels = dealt(seed, count, classes)
    assert not doubt(labels, classes, labels)
    one = np.full(count, labels[0])
    assert not doubt(one, classes, one), "all labels are one class as well"


@given(st.integers(5, 1000), SEEDS)
def test_guesses_are_doubted_and_a_model_that_is_often_right_is_not(classes, seed):
    labels, guesses = dealt(seed, 200, classes), dealt(seed + 1, 200, classes)
    said = doubt(guesses, classes, labels)
    if (hits := np.mean(guesses == labels)) < 0.9 / classes:
        assert shows(said, "guesses-as-good", hits=round(200 * hits), count=200)
    right = np.where(np.arange(200) % 10 < 6, labels, guesses)
    assert not doubt(right, classes, labels)


@given(st.integers(11, 300), CLASSES, SEEDS)
def test_what_is_no_class_number_is_no_label(count, classes, seed):
    answers = np.zeros(count, int)
    assert not doubt(answers, classes, np.linspace(0, 1, count)), "a regression"
    assert not doubt(answers, classes, np.full(count, -1))
    assert not doubt(answers, classes, np.zeros((count, 4), int))
    labels = dealt(seed, count, classes)
    assert doubt(answers, classes, labels[:, None]) == doubt(answers, classes, labels)


def test_imbalanced_labels():
    labels = np.arange(200) % 20 == 0  # 5 % are of class 1
    labels = labels.astype(int)
    assert not doubt(np.zeros(40, int), 2, labels[:40]), "38 of 40 right: it may have missed two"
    assert shows(doubt(np.zeros(200, int), 2, labels), "all-one-class", number=0)
    eager = np.where(np.arange(200) % 5 == 0, 1, 0)  # finds all, and as many again three times
    assert np.mean(eager == labels) < 0.95, "a constant guess is right more often"
    assert not doubt(eager, 2, labels)


def test_labels_of_one_class():
    """A model that is right on most of them is not doubted, and one that hardly ever is, is."""
    labels, answers = np.full(100, 3), np.arange(100) % 10
    assert "(10.0 %)" in doubt(answers, 10, labels)
    assert not doubt(np.where(np.arange(100) < 60, 3, answers), 10, labels)


@pytest.mark.parametrize(
    ("output", "maker", "expected"),
    [
        (np.eye(4, dtype=np.float32), "Softmax", ([0, 1, 2, 3], 4, True)),
        (np.eye(4, dtype=np.float32), "BiasAdd", ([0, 1, 2, 3], 4, False)),
        (np.array([[0.4], [0.6]], np.float32), "Sigmoid", ([0, 1], 2, True)),
        (np.array([[0.4], [0.6]], np.float32), "BiasAdd", None),
        (np.ones((4, 3, 3, 2), np.float32), "Softmax", None),
        (np.ones(4, np.float32), "Softmax", None),
        (np.ones((4, 3), int), "ArgMax", None),
        (np.ones((4, 0), np.float32), "Softmax", None),
    ],
)
def test_what_is_an_answer(output, maker, expected):
    found = answers_of(output, maker)
    if expected is None:
        assert found is None
    else:
        assert (found.numbers.tolist(), found.classes, found.are_sure) == expected


@pytest.mark.sampled
@given(st.integers(2, 50), st.booleans(), st.sampled_from(["", "photos/train", "x.npz"]))
def test_a_doubt_names_the_data_and_the_options_that_change_it(classes, is_named, source):
    labels = np.arange(20 * classes) % classes
    text = doubt((labels + 1) % classes, classes, labels, source=source, is_named=is_named)
    assert text.startswith(f"{source}: 0 of" if source else "0 of")
    assert ("--labels" in text) == is_named
    assert "--preprocess" in text
    one = doubt(np.zeros_like(labels), classes, source=source)
    assert one.startswith(source)
