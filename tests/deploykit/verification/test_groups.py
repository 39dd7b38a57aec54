"""Groups put together again are the whole, in whatever order; what names no groups is refused."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.differences import compare
from deploykit.verification import confidence
from deploykit.verification.confidence import (
    closeness_by_group,
    group_names,
    lower_bound_db,
    wilson,
    worst_first,
    worst_group,
)
from tests.deploykit.verification.test_confidence import noisy, ratio
from tests.support import says


def in_groups(seed: int, samples: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(np.array(["day", "night", "fog"], object), samples)


def power_weighted_db(right: np.ndarray, names: np.ndarray, found) -> float:
    """Return the ratio of all samples that follows from those of groups and their signals."""
    signals = {each.name: np.square(right[names == each.name]).sum() for each in found}
    noise = sum(signals[each.name] / 10 ** (each.sqnr_db / 10) for each in found)
    return 10 * math.log10(sum(signals.values()) / noise)


@pytest.mark.sampled
@given(st.integers(0, 999), st.integers(1, 40))
def test_groups_weighted_back_together_have_the_noise_of_the_whole(seed, samples):
    right, given_ = noisy(seed, samples)
    names = in_groups(seed, samples)
    found = closeness_by_group([(right, given_)], names)
    assert sum(each.samples for each in found) == samples
    assert power_weighted_db(right, names, found) == pytest.approx(ratio(right, given_))
    same = sum(each.agreement * each.samples for each in found)
    assert same == pytest.approx(np.sum(right.argmax(1) == given_.argmax(1)))


@pytest.mark.sampled
@given(st.integers(0, 999), st.integers(1, 40))
def test_the_order_of_samples_does_not_matter(seed, samples):
    right, given_ = noisy(seed, samples)
    names = in_groups(seed, samples)
    order = np.random.default_rng(seed).permutation(samples)
    found = closeness_by_group([(right, given_)], names)
    again = closeness_by_group([(right[order], given_[order])], names[order])
    for one, two in zip(found, again, strict=True):
        assert (one.name, one.samples, one.agreement) == (two.name, two.samples, two.agreement)
        assert one.sqnr_db == pytest.approx(two.sqnr_db)
        assert one.sqnr_low_db == pytest.approx(two.sqnr_low_db)


def test_a_group_has_what_its_samples_have_alone():
    right, given_ = noisy(3, 30)
    names = in_groups(3, 30)
    for each in closeness_by_group([(right, given_)], names):
        own = names == each.name
        assert each.sqnr_db == pytest.approx(compare([right[own]], [given_[own]])[0].sqnr_db)
        bound = lower_bound_db(right[own], given_[own], int(own.sum()))
        assert each.sqnr_low_db == pytest.approx(bound)
        same = int((right[own].argmax(1) == given_[own].argmax(1)).sum())
        assert each.agreement_interval == wilson(same, int(own.sum()))


def test_samples_in_the_wrong_group_are_caught(monkeypatch):
    """A broken variant: members in the order of the samples, not of their groups."""
    right, given_ = noisy(1, 24)
    names = in_groups(1, 24)
    monkeypatch.setattr(confidence.np, "argsort", lambda codes, kind: np.arange(len(codes)))
    found = closeness_by_group([(right, given_)], names)
    assert power_weighted_db(right, names, found) != pytest.approx(ratio(right, given_))


def test_the_worst_output_of_a_group_counts():
    right, given_ = noisy(0, 12)
    names = np.array(["a", "b"] * 6, object)
    worse = given_.copy()
    worse[::2] += 0.5
    both = closeness_by_group([(right, given_), (right, worse)], names)
    alone = closeness_by_group([(right, worse)], names)
    assert (
        both[0].sqnr_db
        == alone[0].sqnr_db
        < closeness_by_group([(right, given_)], names)[0].sqnr_db
    )
    assert both[1].sqnr_db == alone[1].sqnr_db
    whole_numbers, total = np.arange(12), np.float32(3)
    assert closeness_by_group([(right, given_), (whole_numbers, whole_numbers),
                               (total, total)], names) == closeness_by_group(
        [(right, given_)], names
    )  # fmt: skip


def test_few_samples_have_no_bound_and_broken_ones_no_ratio():
    right, given_ = noisy(0, 12)
    given_[:3] = right[:3]
    given_[-1, 0] = np.nan
    names = np.array(["few"] * 3 + ["most"] * 8 + ["broken"], object)
    broken, few, most = closeness_by_group([(right, given_)], names)
    assert (few.samples, few.sqnr_db, few.sqnr_low_db, few.agreement) == (3, math.inf, None, 1)
    assert (broken.sqnr_db, broken.agreement) == (-math.inf, 0)
    assert document(few)["sqnr_db"] is document(broken)["sqnr_db"] is None
    assert most.sqnr_low_db < most.sqnr_db
    assert worst_group([broken, few, most]) == most, "the others have no bound"
    assert worst_group([few]) is None
    assert worst_first([few, most, broken]) == [broken, most, few]
    (other,) = closeness_by_group([(right, given_[:, :3])], np.full(12, "all", object))
    assert (other.sqnr_db, other.sqnr_low_db) == (-math.inf, -math.inf)
    (nothing,) = closeness_by_group([], np.full(12, "all", object))
    assert (nothing.sqnr_db, nothing.agreement) == (None, None)


@pytest.mark.parametrize(
    "values", [["a", "b", "a"], [b"a", b"b", b"a"], [[1], [2], [1]], [1.0, 2.0, 1.0], [True] * 3]
)
def test_texts_and_whole_numbers_name_groups(values):
    found = group_names({"source": np.array(values)}, "source", 3)
    wanted = [str(v.decode() if isinstance(v, bytes) else v) for v in np.ravel(values).tolist()]
    assert [name.removesuffix(".0") for name in wanted] == found.tolist()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.arange(4), says("counts-differ", what="groups of 'source'", count=4, other_count=3)),
        (np.array([0.5, 1, 2]), says("group-form", name="source", dtype="float64", shape=[3])),
        (np.array([np.nan, 1, 2]), says("group-form", name="source", dtype="float64", shape=[3])),
        (np.zeros((3, 2), int), says("group-form", name="source", dtype="int64", shape=[3, 2])),
        (None, says("unknown-name", name="source", known="x")),
    ],
)
def test_what_names_no_groups_is_refused(values, said):
    data = {"x": np.zeros(3)} | ({} if values is None else {"source": values})
    with pytest.raises(GraphError, match=said):
        group_names(data, "source", 3)
