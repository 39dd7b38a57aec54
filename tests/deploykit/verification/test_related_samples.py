"""Samples of one source are found, independent ones are left alone, and intervals count sources."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploykit.quantization.accuracy import Evaluator
from deploykit.verification.confidence import (
    FEWEST,
    lower_bound_db,
    wilson,
    wilson_of_groups,
)
from deploykit.verification.related_samples import related_groups
from deploykit.verification.samples import HELD_OUT_EVERY, Dataset, _held_out_groups
from tests.support import building, tf

SEEDS = st.integers(0, 2**32 - 1)


def pictures(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return images that differ in colour, contrast and roughness, as photos do."""
    noise = rng.normal(size=(count, 64, 64, 3))
    smooth = noise
    for axis in (1, 2):
        smooth = (np.roll(smooth, 1, axis) + smooth + np.roll(smooth, -1, axis)) / 3
    share = rng.uniform(0, 1, (count, 1, 1, 1))
    contrast = rng.uniform(0.2, 1.0, (count, 1, 1, 3))
    return (contrast * (share * noise + (1 - share) * 2 * smooth)
            + rng.normal(size=(count, 1, 1, 3))).astype(np.float32)  # fmt: skip


def crops(rng, images: np.ndarray, each: int) -> np.ndarray:
    found = []
    for image in images:
        for _ in range(each):
            y, x = rng.integers(0, 32, 2)
            found.append(image[y : y + 32, x : x + 32])
    return np.stack(found)


def films(rng, count: int, frames: int) -> np.ndarray:
    found = []
    for image in pictures(rng, count):
        for frame in range(frames):
            found.append(np.roll(image, (frame, -2 * frame), (0, 1))[:32, :32])
    return np.stack(found)


def recordings(rng, count: int, windows: int) -> np.ndarray:
    """Return windows of noise, each recording with its own spectrum and loudness."""
    found = []
    for _ in range(count):
        kernel = rng.normal(size=8) * rng.uniform(0.1, 3)
        whole = np.convolve(rng.normal(size=512 * windows + 7), kernel, "valid")
        found.append(whole.reshape(windows, 512))
    return np.concatenate(found).astype(np.float32)


RELATED = {
    "crops": lambda rng: (crops(rng, pictures(rng, 16), 5), 16, 5),
    "bytes": lambda rng: (
        np.clip(64 * crops(rng, pictures(rng, 20), 4) + 128, 0, 255).astype(np.uint8), 20, 4
    ),
    "films": lambda rng: (films(rng, 10, 12), 10, 12),
    "recordings": lambda rng: (recordings(rng, 12, 8), 12, 8),
    "rows": lambda rng: (
        np.repeat(rng.normal(size=(30, 6)), 6, 0) + 0.1 * rng.normal(size=(180, 6)), 30, 6
    ),
}  # fmt: skip
INDEPENDENT = {
    "pictures": lambda rng: pictures(rng, 64),
    "rows": lambda rng: rng.normal(size=(100, 5)),
    "heavy tails": lambda rng: rng.standard_cauchy(size=(80, 40)),
    "counts": lambda rng: rng.poisson(0.2, (120, 12)),
    "tokens": lambda rng: rng.integers(1, 500, (90, 32)) * (rng.random((90, 32)) < 0.6),
    "equal": lambda rng: np.zeros((40, 8, 8, 1)),
    "noise": lambda rng: rng.normal(size=(70, 400)),
    "texts": lambda rng: np.array(
        [" ".join(rng.choice(list("abcdefghij"), 5)) for _ in range(60)], object
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", RELATED)
@pytest.mark.parametrize("seed", range(3))
def test_whole_sources_are_held_out(kind, seed):
    """A source on both sides of the split would make the check too good."""
    array, sources, each = RELATED[kind](np.random.default_rng(seed))
    with building(["x"], ["y"]) as graph:
        x = tf.compat.v1.placeholder(array.dtype, [None, *array.shape[1:]], name="x")
        tf.identity(x, name="y")
    split = Dataset.of(graph, {"x": array}).split()
    held = np.zeros(len(array), bool)
    held[split.order[split.calibrating.count :]] = True
    by_source = held.reshape(sources, each)
    cut = (by_source.any(1) & ~by_source.all(1)).sum()
    assert cut <= sources / 8  # an edge may be missed where two pictures look alike
    assert len(np.unique(split.held_out.related)) >= FEWEST
    assert len(np.intersect1d(split.held_out.related, split.calibrating.related)) == 0
    assert 0.15 < held.mean() <= 0.5
    assert "sources" in split.note


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_independent_samples_keep_their_split(kind):
    for seed in range(6):
        array = INDEPENDENT[kind](np.random.default_rng(seed))
        assert related_groups({"x": array}) is None, seed
    with building(["x"], ["y"]) as graph:
        type_ = tf.string if array.dtype == object else array.dtype
        tf.identity(tf.compat.v1.placeholder(type_, [None, *array.shape[1:]], name="x"), name="y")
    split = Dataset.of(graph, {"x": array}).split()
    held = np.arange(len(array))[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    assert list(split.order[split.calibrating.count :]) == held.tolist()
    assert split.note == ""
    assert split.held_out.related is None


@pytest.mark.parametrize("is_related", [True, False])
def test_many_samples_are_screened(is_related):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 5))
    array = np.repeat(rows, 4, 0) + 0.1 * rng.normal(size=(2400, 5))
    if not is_related:
        array = array[rng.permutation(2400)]
    found = related_groups({"x": array})
    assert (found is not None) == is_related
    assert not is_related or (len(found) == 2400 and 300 < len(np.unique(found)) <= 600)


def test_every_picture_once_an_epoch():
    rng = np.random.default_rng(0)
    array = crops(rng, pictures(rng, 16), 5).reshape(16, 5, 32, 32, 3)
    epochs = array.swapaxes(0, 1).reshape(80, 32, 32, 3)
    found = related_groups({"x": epochs})
    assert found.tolist() == np.tile(np.arange(16), 5).tolist()


def test_given_groups_count_if_their_samples_are_alike():
    rng = np.random.default_rng(0)
    array, order = crops(rng, pictures(rng, 16), 5), rng.permutation(80)
    names = np.repeat(np.arange(16), 5)[order].astype(str).astype(object)
    found = related_groups({"x": array[order]}, groups=names)
    assert len(np.unique(found)) == 16
    assert all(len(np.unique(found[names == name])) == 1 for name in names)
    assert related_groups({"x": array[order]}) is None
    assert related_groups({"x": pictures(rng, 80)}, groups=names) is not None
    few = (np.arange(80) % 4).astype(str).astype(object)
    assert related_groups({"x": pictures(rng, 80)}, groups=few) is None
    for x, is_found in ((array[order], True), (pictures(rng, 80), False)):
        found = related_groups({"x": x}, groups=names, are_sources=False)
        assert (found is not None) == is_found


def test_samples_sorted_by_class_are_not_related():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 25)
    array = rng.normal(size=(100, 6)) + 3 * rng.normal(size=(4, 6))[labels]
    one_hot = np.eye(4, dtype=np.float32)[labels]
    for form in (labels, one_hot, labels[:, np.newaxis], labels.astype(np.float32)):
        assert related_groups({"x": array}, form) is None
    assert related_groups({"x": array}) is not None


@given(st.lists(st.integers(1, 60), min_size=2, max_size=40))
def test_at_most_half_of_the_samples_are_held_out(sizes):
    related = np.repeat(np.arange(len(sizes)), sizes)
    held, note = _held_out_groups(related)
    assert 0 < held.sum() < len(held)
    assert held.sum() <= len(held) / 2 or max(sizes) == 1 or len(sizes) < 4
    assert all(len(np.unique(held[related == one])) == 1 for one in range(len(sizes)))
    assert str(len(sizes)) in note


@pytest.mark.sampled
@given(SEEDS, st.integers(FEWEST, 40), st.integers(2, 6))
def test_copies_of_a_sample_count_once(seed, count, copies):
    rng = np.random.default_rng(seed)
    expected = rng.normal(size=(count, 5)).astype(np.float32)
    judged = expected + 0.1 * rng.normal(size=(count, 5)).astype(np.float32)
    many = [np.repeat(array, copies, 0) for array in (expected, judged)]
    related = np.repeat(np.arange(count), copies)
    once = lower_bound_db(expected, judged, count, np.arange(count))
    assert lower_bound_db(*many, count * copies, related) == pytest.approx(once)
    assert lower_bound_db(*many, count * copies) > once
    right = rng.random(count) < 0.8
    repeated = np.repeat(right, copies)
    assert wilson_of_groups(repeated, related) == pytest.approx(wilson(right.sum(), count))
    alone = wilson_of_groups(right, np.arange(count))
    assert alone == pytest.approx(wilson(right.sum(), count))


def test_four_groups_that_are_alike_have_no_narrow_interval():
    """Their spread alone would state a bound that most other groups miss."""
    rng = np.random.default_rng(0)
    missed = []
    for _ in range(200):
        decibels = rng.normal(36, 1, 404) - 12 * (rng.random(404) < 0.1)  # of single sources
        expected = np.ones((404, 1), np.float32)
        judged = expected + (10 ** (-decibels / 20))[:, np.newaxis].astype(np.float32)
        bound = lower_bound_db(expected[:4], judged[:4], 4, np.arange(4))
        noise = np.square(judged[4:] - expected[4:]).mean()
        missed.append(bound > -10 * np.log10(noise) + 1.5)
    assert np.mean(missed) < 0.3  # without a prior: 60 %


def test_few_groups_have_no_bound():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 6)).astype(np.float32)
    with building(["x"], ["y"]) as graph:
        placeholder = tf.compat.v1.placeholder(tf.float32, [None, 6], name="x")
        tf.add(placeholder, 1.0, name="y")
    other = graph.copy()
    const = next(node for node in other if node.op == "Const")
    other.replace(const, const.constant(const.name, np.float32(1.1)))
    for groups, is_known in ((3, False), (4, True)):
        related = np.arange(24) % groups
        with Evaluator(graph, [{"x": x}], related=related) as evaluator:
            result = evaluator.judge(other)
        assert (result.sqnr_low_db is not None) == is_known
        assert result.independent == groups
