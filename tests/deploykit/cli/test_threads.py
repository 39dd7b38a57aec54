"""Threads as users write them: one number, or two."""

import pytest

from deploykit.benchmarking.run_config_grid import RunConfigGrid
from deploykit.cli.value_types import Value, threads
from deploykit.transforms.common.errors import Error
from tests.support import raises


@pytest.mark.parametrize(
    ("text", "pairs"),
    [("2", ((2, 1),)), ("2x1,2", ((2, 1),)), ("1,4,2x3", ((1, 1), (4, 1), (2, 3)))],
)
def test_one_number_is_that_of_threads_inside_an_op(text, pairs):
    assert Value("N", threads).convert(text, None, None) == pairs


@pytest.mark.parametrize("text", ["", "x", "x2", "2x", "0", "1,", "5000"])
def test_anything_else_is_refused(text):
    with raises(Error, "option-value", got=text.split(",")[-1]):
        Value("N", threads).convert(text, None, None)


def test_python_takes_one_number_too():
    assert [each.threads for each in RunConfigGrid(threads=2).settings()] == [(2, 1)]
