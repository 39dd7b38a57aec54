"""What each sample gives, its mean, and how far both may be from what is so on other samples."""

import numpy as np
import pytest

from deploykit.quantization.metrics import change, metric_named
from deploykit.transforms.common.errors import GraphError
from deploykit.verification.confidence import interval_of_mean, paired_wilson, wilson
from tests.support import raises

TRIALS = 400


def scores(count=40, classes=7, seed=0):
    return np.random.default_rng(seed).normal(size=(count, classes)).astype(np.float32)


def labels(count=40, classes=7, seed=1):
    return np.random.default_rng(seed).integers(0, classes, count)


@pytest.mark.parametrize("name", ["top1", "top5"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, bool])
def test_rows_of_a_single_one_are_class_numbers(name, dtype):
    metric, outputs = metric_named(name), {"out": scores()}
    one_hot = np.eye(7, dtype=dtype)[labels()]
    assert metric(outputs, one_hot) == metric(outputs, labels())
    assert metric(outputs, labels().astype(np.float32)) == metric(outputs, labels())
    soft = 0.9 * np.eye(7, dtype=np.float32)[labels()] + 0.1 / 7
    for wrong in (soft, np.zeros((40, 7)), np.ones((40, 7)), 2 * np.eye(7)[labels()]):
        with raises(GraphError, "metric-labels-form", count=40, classes=7):  # fmt: skip
            metric(outputs, wrong)


@pytest.mark.parametrize("name", ["top1", "top5", "mae"])
def test_a_metric_is_the_mean_of_what_each_sample_gives(name):
    metric = metric_named(name)
    truth = scores(seed=3) if name == "mae" else labels()
    each = metric.per_sample({"out": scores()}, truth)
    found = metric({"out": scores()}, truth)
    assert each.shape == (40,)
    assert found.value == pytest.approx(each.mean())
    assert found.interval[0] < found.value < found.interval[1]
    one = metric.per_sample({"out": scores()[5:6]}, truth[5:6])
    np.testing.assert_allclose(one, each[5:6])


def answers(count, both, lost, won, seed):
    """Return which samples two models have right: both of them, the first alone, the second."""
    drawn = np.random.default_rng(seed).uniform(size=count)
    only_first = (both <= drawn) & (drawn < both + lost)
    only_second = (both + lost <= drawn) & (drawn < both + lost + won)
    return (drawn < both) | only_first, (drawn < both) | only_second


@pytest.mark.sampled
@pytest.mark.parametrize("count", [30, 200, 1000])
@pytest.mark.parametrize(
    "shares", [(0.9, 0.02, 0.01), (0.6, 0.1, 0.1), (0.5, 0.02, 0.2), (0, 0, 1)]
)
def test_a_change_of_a_share_lies_in_its_interval_as_often_as_promised(count, shares):
    inside = 0
    for seed in range(TRIALS):
        low, high = paired_wilson(*answers(count, *shares, seed))
        assert -1 <= low <= high <= 1
        inside += low <= shares[2] - shares[1] <= high
    assert inside >= 0.93 * TRIALS


def test_pairs_say_more_than_two_shares_apart():
    """An interval that forgets that the samples are the same is too wide to see the change."""
    before, after = answers(1000, 0.8, 0.03, 0.002, 0)
    found = change(before, after)
    assert found.value == pytest.approx(after.mean() - before.mean())
    low, high = found.interval
    assert low < found.value < high < 0
    apart = np.random.default_rng(0).permutation(after)
    wide = paired_wilson(before, apart)
    assert wide[1] - wide[0] > 2 * (high - low)
    assert paired_wilson(after, before) == pytest.approx((-high, -low))


def test_no_change_and_the_ends():
    same = answers(50, 0.7, 0, 0, 0)[0]
    low, high = paired_wilson(same, same)
    assert -0.1 < low <= 0 <= high < 0.1
    all_, none = np.ones(20, bool), np.zeros(20, bool)
    assert paired_wilson(none, all_) == pytest.approx((2 * wilson(20, 20)[0] - 1, 1), abs=0.2)
    assert paired_wilson(all_[:1], all_[:1])[0] < 0


def test_a_mean_lies_in_its_interval_as_often_as_promised():
    inside = 0
    for seed in range(TRIALS):
        drawn = np.random.default_rng(seed).normal(3, 2, 12)
        low, high = interval_of_mean(drawn)
        inside += low <= 3 <= high
    assert 0.925 * TRIALS <= inside <= 0.975 * TRIALS
    assert interval_of_mean(np.ones(1)) is None


def test_a_change_of_errors_is_that_of_each_sample():
    before = np.random.default_rng(0).uniform(1, 100, 60)
    found = change(before, before + 0.5)
    assert found.value == pytest.approx(0.5)
    assert found.interval == pytest.approx((0.5, 0.5))
    assert metric_named("json:dumps").per_sample({}, None) is None
