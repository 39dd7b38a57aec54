"""No value changes on its way into an input: every numeric type into every other."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.verification.fitting import of_rank, of_type
from tests.support import because, raises, says

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
TYPES = [*INTEGERS, *FLOATS, "bool"]


def values(dtype):
    """Return the ends of a type, and what is beyond the ends of smaller ones."""
    if dtype == "bool":
        return [False, True]
    if dtype in FLOATS:
        limits = np.finfo(dtype)
        return [limits.min, -1.0, 0.0, 0.5, 1.0, 200.0, 2.0**15, limits.max, np.inf, np.nan]
    limits = np.iinfo(dtype)
    edges = [-(2**31) - 1, -129, -1, 0, 1, 127, 128, 300, 2**16, 2**31, 2**32 + 5, 2**63 - 1, 2**63]
    return [limits.min, *(v for v in edges if limits.min <= v <= limits.max), limits.max]


CASES = [
    (source, target, value)
    for source, target in itertools.product(TYPES, TYPES)
    for value in values(source)
]


def fits(source, target, value):
    """Say by Python's exact numbers whether a value is the same in another type."""
    exact = np.array([value], source)[0].item()
    if target == "bool":
        return exact in (0, 1)
    if target in INTEGERS:
        limits = np.iinfo(target)
        return np.isfinite(exact) and exact == int(exact) and limits.min <= int(exact) <= limits.max
    with np.errstate(over="ignore"):
        return not np.isfinite(exact) or bool(np.isfinite(np.array([exact]).astype(target)[0]))


@pytest.mark.sampled
def test_each_value_is_kept_or_refused():
    for source, target, value in CASES:
        array = np.array([value], source)
        if not fits(source, target, value):
            with raises(GraphError, "data-value-misfit", dtype=source, expected=target):
                of_type("x", array, target)
            continue
        found = of_type("x", array, target)
        assert found.dtype == target
        same = np.array([value], source).astype(target)
        np.testing.assert_array_equal(found, same)
        if target in INTEGERS:
            assert found[0].item() == np.array([value], source)[0].item()


@pytest.mark.parametrize("value", [2.0**63, 2.0**64, -(2.0**63) * 1.01])
def test_floats_at_the_end_of_64_bits_do_not_wrap(value):
    with raises(GraphError, "data-value-misfit", index=[0], name="x"):
        of_type("x", np.array([value]), "int64")
    if value == 2.0**63:
        assert of_type("x", np.array([value]), "uint64")[0].item() == 2**63


@pytest.mark.sampled
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_is_no_integer(source, target, value):
    with raises(GraphError, "data-value-misfit", index=[1], name="x"):
        of_type("x", np.array([1, value], source), target)


def test_bfloat16_takes_what_it_holds():
    assert of_type("x", np.array([1.5], np.float32), "bfloat16").dtype == ml_dtypes.bfloat16
    with raises(GraphError, "data-value-misfit", expected="bfloat16"):
        of_type("x", np.array([3.4e38, 1.7e308]), "bfloat16")


@pytest.mark.parametrize("array", [[1, 2], [1.5], [True]])
def test_numbers_are_no_texts(array):
    with raises(GraphError, "does-not-fit", expected="string"):
        of_type("x", np.array(array), "string")


@pytest.mark.parametrize("kind", ["O", "S", "U"])
@pytest.mark.parametrize(
    ("cells", "target", "expected"),
    [
        (["12", "0013"], "int32", [12, 13]),
        (["12", "1e2", "nan"], "float32", [12.0, 100.0, np.nan]),
        (["18446744073709551615"], "uint64", [2**64 - 1]),
        (["9007199254740993", "1.0"], "int64", [9007199254740993, 1]),
        (["true", "False", "1", "0"], "bool", [True, False, True, False]),
    ],
)
def test_texts_are_the_numbers_that_they_are(kind, cells, target, expected):
    array = np.array([c.encode() for c in cells] if kind != "U" else cells).astype(kind)
    found = of_type("x", array, target)
    np.testing.assert_array_equal(found, np.array(expected, target))


@pytest.mark.parametrize(
    ("cells", "target", "reason"),
    [
        (["1", "1_0"], "int32", says("data-not-number", got="1_0", index=1)),
        (["1", "two"], "float32", says("data-not-number", got="two", index=1)),
        (["yes"], "bool", says("data-not-number", got="yes")),
        (["2"], "bool", says("data-value-misfit", index=[0], misfit=because("misfit-not-bool"))),
        (["300"], "uint8", says("data-value-misfit", value=300)),
    ],
)
def test_texts_that_are_no_such_number_are_named(cells, target, reason):
    with pytest.raises(GraphError, match=reason):
        of_type("x", np.array(cells, object), target)


def test_one_sequence_is_read_as_samples_of_one_value_with_a_message(caplog):
    with caplog.at_level("INFO", logger="deploykit"):
        assert of_rank("x", np.arange(4), (-1, 1)).shape == (4, 1)
        assert not caplog.records
        assert of_rank("x", np.arange(4), (-1, -1)).shape == (4, 1)
    assert because("one-axis", name="x", count=4) in caplog.text
