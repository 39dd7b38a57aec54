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
from tests.support import Containing, because, showing, shows

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
    (COUNTS, np.array([1, 0, 40]),
     showing("values-apart", count=1, every=3, expected="5 at [1]", got=0)),
    (VALUES, VALUES[:2], showing("shape-got", expected=[3, 5], got=[2, 5])),
    (VALUES, VALUES.astype(np.float64), showing("type-got", expected="float32", got="float64")),
    (COUNTS, COUNTS.astype(np.int32), showing("type-got", expected="int64", got="int32")),
    (VALUES, changed(VALUES, (1, 2), np.nan),
     showing("values-apart", count=1, every=15, expected="0.947081 at [1, 2]", got="nan")),
    (changed(VALUES, 0, np.inf), changed(VALUES, 0, -np.inf),
     showing("values-apart", count=5, every=15, expected="inf at [0, 0]", got="-inf")),
    (np.array([True]), np.array([False]),
     showing("values-apart", expected="True at [0]", got=False)),
    (np.array([b"a"], object), np.array([b"b"], object),
     showing("values-apart", expected="b'a' at [0]", got="b'b'")),
    (VALUES[:0], VALUES[:0, :2], showing("shape-got", expected=[0, 5], got=[0, 2])),
], ids=str)  # fmt: skip
def test_what_no_bar_excuses_is_one_sentence(expected, found, said, bar):
    told = found_in(expected, found, bar)
    assert shows(told, "output-departs", output="y", batch=3, fault=said)


def test_a_missing_output_departs():
    answered = [Answered(1, {"y": VALUES, "z": VALUES}, {"y": VALUES})]
    bars = dict.fromkeys("yz", FLOAT_BAR)
    fault = because("output-absent")
    assert departure(answered, bars) == because("output-departs", output="z", batch=1, fault=fault)


def test_floats_are_held_to_the_largest_value_of_their_batch():
    near = VALUES + np.float32(1e-4 * abs(VALUES).max())
    far = changed(VALUES, (2, 4), VALUES[2, 4] + 0.01)
    assert found_in(VALUES, near) == ""
    said = found_in(VALUES, far)
    failure = showing("output-error", output="y", error=Containing("0.00"), allowed="0.0005")
    assert shows(said, "output-too-far", failure=failure, batch=3)
    large = Answered(1, {"y": VALUES * 1000}, {"y": VALUES * 1000})
    both = [large, Answered(3, {"y": VALUES}, {"y": far})]  # the first does not hide the second
    assert departure(both, {"y": FLOAT_BAR}) == said


def test_bfloat16_misses_the_bar_of_floats():
    import ml_dtypes

    said = found_in(VALUES, VALUES.astype(ml_dtypes.bfloat16).astype("f4"))
    assert shows(said, "output-error", allowed="0.0005")


@pytest.mark.parametrize(("noise", "is_right"), [(0.03, True), (0.25, False)])
def test_codes_are_held_to_a_signal_to_noise_ratio(noise, is_right):
    found = VALUES + RANDOM.normal(size=VALUES.shape).astype(np.float32) * noise
    said = found_in(VALUES, found, CODES_BAR)
    assert (said == "") is is_right
    failure = showing("output-sqnr", expected=20)
    assert is_right or shows(said, "output-too-far", failure=failure, batch=3)


def test_of_a_softmax_the_logarithm_is_judged():
    read = RANDOM.normal(size=(3, 50)) * 8
    noisy = read + RANDOM.normal(size=read.shape) * 0.6  # 22 dB

    def softmax(values):
        raised = np.exp(values)
        return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)

    bar = replace(CODES_BAR, of_logarithm=True)
    said = found_in(softmax(read), softmax(noisy), CODES_BAR)
    assert shows(said, "output-sqnr", expected=20)
    assert found_in(softmax(read), softmax(noisy), bar) == ""
    said = found_in(softmax(read), softmax(read[:, ::-1]), bar)
    assert shows(said, "output-sqnr", expected=20)
    assert found_in(softmax(read), softmax(read) * 0, bar) != ""


def test_behind_a_choice_type_and_rank_are_compared():
    assert found_in(VALUES, VALUES[::-1], None) == ""
    assert found_in(VALUES, VALUES[:1], None) == ""
    said = found_in(VALUES, VALUES[0], None)
    assert shows(said, "dimensions-got", expected=2, got=1)
    said = found_in(VALUES, VALUES.astype("f8"), None)
    assert shows(said, "type-got", expected="float32", got="float64")


def test_answers_that_could_not_differ_prove_nothing():
    def told(array, bar=FLOAT_BAR):
        return nothing_compared([Answered(1, {"y": array}, {"y": array})], {"y": bar})

    assert told(VALUES) == ""
    nothing = because("engine-nothing-finite")
    assert told(VALUES[:0]) == told(VALUES, None) == nothing
    assert told(np.full(3, np.nan, np.float32)) == nothing
    assert told(np.zeros(3, np.float32)) == because("engine-constant")
