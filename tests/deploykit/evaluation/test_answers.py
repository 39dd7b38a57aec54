"""Where answers differ most is what NumPy says of each sample, whatever is broken in between."""

import numpy as np
import pytest

from deploykit.evaluation.answers import NONE, classes, confidences, of_classes, of_numbers

COUNT, CLASSES = 60, 5


def scores(seed, logits=False):
    found = np.random.default_rng(seed).normal(size=(COUNT, CLASSES)) * 3
    return (found if logits else confidences(found)).astype(np.float32)


def labels(seed=9):
    return np.random.default_rng(seed).integers(0, CLASSES, COUNT)


def test_logits_become_shares_and_shares_stay():
    logits = scores(0, logits=True)
    shares = confidences(logits)
    np.testing.assert_allclose(shares.sum(1), 1)
    np.testing.assert_allclose(shares, np.exp(logits.astype(float)) / np.exp(
        logits.astype(float)).sum(1, keepdims=True))  # fmt: skip
    np.testing.assert_array_equal(confidences(scores(0)), scores(0))
    large = confidences(np.array([[1e4, 0.0], [-3.0, np.nan]]))
    assert large[0].tolist() == [1, 0]
    assert np.isnan(large[1]).all()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("logits", [False, True])
def test_other_classes_come_first_then_what_was_lost_of_the_label(seed, logits):
    first = scores(seed, logits)
    noise = np.random.default_rng(seed + 50).normal(size=first.shape).astype(np.float32)
    last = first + noise / (1 if logits else 4)
    last = last if logits else np.clip(last, 0, 1)
    found = of_classes(first, last, labels(), "abcde", COUNT)
    one, two = confidences(first), confidences(last)
    rows = np.arange(COUNT)
    lost = one[rows, labels()] - two[rows, labels()]
    differs = first.argmax(1) != last.argmax(1)
    assert 0 < differs.sum() < COUNT
    assert sorted(found.samples) == np.flatnonzero(differs | (lost > 0)).tolist()
    keys = [(not differs[n], -lost[n]) for n in found.samples]
    assert keys == sorted(keys)
    np.testing.assert_allclose(found.sizes, lost[list(found.samples)])
    at = found.samples[0]
    number = int(last[at].argmax())
    assert (found.last[0].name, found.last[0].score) == (
        f"{number} {'abcde'[number]}", pytest.approx(two[at].max()),
    )  # fmt: skip
    assert of_classes(first, last, labels(), "abcde", 3).samples == found.samples[:3]


def test_without_labels_the_distance_of_scores_counts():
    first, last = scores(1), scores(2)
    found = of_classes(first, last, None, (), COUNT)
    distance = np.abs(first.astype(float) - last).sum(1) / 2
    np.testing.assert_allclose(found.sizes, distance[list(found.samples)])
    assert min(found.sizes) >= 0
    assert max(found.sizes) <= 1 + 1e-6
    same = of_classes(first, first, None, (), COUNT)
    assert same.samples == []


def test_one_model_is_told_its_surest_mistakes():
    first = scores(3)
    found = of_classes(first, None, labels(), (), COUNT)
    wrong = np.flatnonzero(first.argmax(1) != labels())
    assert sorted(found.samples) == wrong.tolist()
    sure = [first[n].max() - first[n, labels()[n]] for n in found.samples]
    assert sure == sorted(sure, reverse=True)
    np.testing.assert_allclose(found.sizes, sure, rtol=1e-6)
    assert set(found.last) == {None}
    assert of_classes(first, None, None, (), 5).samples == ()


def test_what_is_broken_lost_all_and_names_no_class():
    first, last = scores(4), scores(4)
    last[7, 2] = np.nan
    assert classes(last)[7] == NONE
    found = of_classes(first, last, labels(), (), 3)
    assert (found.samples, found.sizes) == ([7], [1.0])
    assert (found.last[0].name, found.last[0].score) == (None, None)
    one_hot = np.eye(CLASSES)[labels()]
    assert of_classes(first, last, one_hot, (), 3) == found


def test_numbers_that_became_worse():
    truth = np.random.default_rng(0).normal(size=COUNT)
    first = (truth + 0.1)[:, None]
    last = first.copy()
    last[[5, 9, 11], 0] += 3, -2, np.nan
    found = of_numbers(first, last, truth, 10)
    assert found.samples == [11, 5, 9]
    np.testing.assert_allclose(found.sizes[1:], [3, 1.8])
    assert found.last[0].score is None
    assert found.last[1].score == pytest.approx(last[5, 0])
    assert of_numbers(first, last, None, 10).samples == [11, 5, 9]
    alone = of_numbers(last, None, truth, 2)
    assert alone.samples == [11, 5]
    assert of_numbers(first, last[:, :0], truth, 3).samples == ()
