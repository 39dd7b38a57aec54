"""The same answers: what an engine may not change, and by how much it may miss a number."""

from dataclasses import replace

import numpy as np
import pytest

from deploykit.transforms.runtime.differences import (
    CODES_BAR,
    FLOAT_BAR,
    Answered,
    departure,
    nothing_compared,
)
from tests.support import Containing

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(3, 5)).astype(np.float32)
COUNTS = np.array([1, 5, 40])


def found_in(expected, found, bar=FLOAT_BAR):
    return departure([Answered(3, {"y": expected}, {"y": found})], {"y": bar})


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize("expected", [
    VALUES, VALUES[:0], np.float32(1.5), COUNTS, np.array([b"a", b"b"], object),
    np.array([True, False]), np.array([np.nan, np.inf, -np.inf, 1], np.float32),
    VALUES + 1j * VALUES, np.array(7),
], ids=lambda each: str(each.dtype))  # fmt: skip
def test_what_is_equal_departs_nowhere(expected):
    assert found_in(expected, np.array(expected)) == ""
    assert found_in(expected, np.array(expected), CODES_BAR) == ""
    assert found_in(expected, np.array(expected), None) == ""


@pytest.mark.parametrize("bar", [FLOAT_BAR, CODES_BAR])
@pytest.mark.parametrize(("expected", "found", "said"), [
    (COUNTS, np.array([1, 0, 40]), Containing("1 of 3", "expected 5", "[1], got 0")),
    (VALUES, VALUES[:2], Containing("shape [3, 5]", "got [2, 5]")),
    (VALUES, VALUES.astype(np.float64), Containing("expected float32, got float64")),
    (COUNTS, COUNTS.astype(np.int32), Containing("expected int64, got int32")),
    (VALUES, changed(VALUES, (1, 2), np.nan),
     Containing("1 of 15", "0.947081 at [1, 2]", "got nan")),
    (changed(VALUES, 0, np.inf), changed(VALUES, 0, -np.inf),
     Containing("5 of 15", "inf at [0, 0]", "got -inf")),
    (np.array([True]), np.array([False]), Containing("True at [0]", "got False")),
    (np.array([b"a"], object), np.array([b"b"], object), Containing("b'a' at [0]", "got b'b'")),
    (VALUES[:0], VALUES[:0, :2], Containing("shape [0, 5]", "got [0, 2]")),
], ids=str)  # fmt: skip
def test_what_no_bar_excuses_is_one_sentence(expected, found, said, bar):
    told = found_in(expected, found, bar)
    assert told == Containing("'y' at batch 3: ")
    assert told == said


def test_a_missing_output_departs():
    answered = [Answered(1, {"y": VALUES, "z": VALUES}, {"y": VALUES})]
    bars = dict.fromkeys("yz", FLOAT_BAR)
    assert departure(answered, bars) == Containing("'z' at batch 1", "missing")


def test_floats_are_held_to_the_largest_value_of_their_batch():
    near = VALUES + np.float32(1e-4 * abs(VALUES).max())
    far = changed(VALUES, (2, 4), VALUES[2, 4] + 0.01)
    assert found_in(VALUES, near) == ""
    said = found_in(VALUES, far)
    assert said.startswith("output 'y': error 0.00")
    assert said == Containing("allowed 0.0005", "batch 3")
    large = Answered(1, {"y": VALUES * 1000}, {"y": VALUES * 1000})
    both = [large, Answered(3, {"y": VALUES}, {"y": far})]  # the first does not hide the second
    assert departure(both, {"y": FLOAT_BAR}) == said


def test_bfloat16_misses_the_bar_of_floats():
    import ml_dtypes

    assert "allowed 0.0005" in found_in(VALUES, VALUES.astype(ml_dtypes.bfloat16).astype("f4"))


@pytest.mark.parametrize(("noise", "is_right"), [(0.03, True), (0.25, False)])
def test_codes_are_held_to_a_signal_to_noise_ratio(noise, is_right):
    found = VALUES + RANDOM.normal(size=VALUES.shape).astype(np.float32) * noise
    said = found_in(VALUES, found, CODES_BAR)
    assert (said == "") is is_right
    assert is_right or said == Containing("20 dB", "batch 3")


def test_of_a_softmax_the_logarithm_is_judged():
    read = RANDOM.normal(size=(3, 50)) * 8
    noisy = read + RANDOM.normal(size=read.shape) * 0.6  # 22 dB

    def softmax(values):
        raised = np.exp(values)
        return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)

    bar = replace(CODES_BAR, of_logarithm=True)
    assert "expected 20 dB" in found_in(softmax(read), softmax(noisy), CODES_BAR)
    assert found_in(softmax(read), softmax(noisy), bar) == ""
    assert "expected 20 dB" in found_in(softmax(read), softmax(read[:, ::-1]), bar)
    assert found_in(softmax(read), softmax(read) * 0, bar) != ""


def test_behind_a_choice_type_and_rank_are_compared():
    assert found_in(VALUES, VALUES[::-1], None) == ""
    assert found_in(VALUES, VALUES[:1], None) == ""
    assert "expected 2 dimensions, got 1" in found_in(VALUES, VALUES[0], None)
    assert Containing("expected float32, got float64") in found_in(
        VALUES, VALUES.astype("f8"), None
    )


def test_answers_that_could_not_differ_prove_nothing():
    def told(array, bar=FLOAT_BAR):
        return nothing_compared([Answered(1, {"y": array}, {"y": array})], {"y": bar})

    assert told(VALUES) == ""
    assert "no finite value" in told(VALUES[:0])
    assert "no finite value" in told(VALUES, None)
    assert "no finite value" in told(np.full(3, np.nan, np.float32))
    assert "one value everywhere" in told(np.zeros(3, np.float32))
