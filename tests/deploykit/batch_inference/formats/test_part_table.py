"""Rows of batches become columns, whatever their types and shapes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.batch_inference.formats.part_table import PartTable, features_of
from deploykit.records.examples import Feature
from deploykit.transforms.common.errors import GraphError
from tests.support import raises


def table(*batches, expected=None):
    """Return the columns of batches of `x`."""
    found = PartTable(expected)
    for batch in batches:
        rows = range(found.rows, found.rows + len(batch))
        found.add([f"{row}.jpg" for row in rows], rows, {"x": batch})
    return found.columns()


def test_rows_know_where_they_come_from():
    columns = table(np.zeros((2, 3), np.float32), np.ones((1, 3), np.float32))
    assert list(columns) == ["file", "row", "x"]
    assert columns["file"].tolist() == ["0.jpg", "1.jpg", "2.jpg"]
    assert columns["row"].tolist() == [0, 1, 2]
    assert columns["x"].tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert features_of(columns) == {
        "file": Feature("string"), "row": Feature("int64"), "x": Feature("float32", (3,)),
    }  # fmt: skip


SHAPES = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4
)


@settings(max_examples=60)
@given(SHAPES, st.booleans())
def test_rows_of_different_shapes_are_filled_up_and_can_be_cut_again(shapes, is_text):
    batches, number = [], 1
    for shape in shapes:
        count = int(np.prod(shape))
        batch = np.arange(number, number + count).reshape(shape)
        number += count
        batches.append(batch.astype(str).astype("S").astype(object) if is_text else batch)
    columns = table(*batches)
    assert ("x_shape" in columns) == (len({shape[1:] for shape in shapes}) > 1)
    rows = [row for batch in batches for row in batch]
    shapes = columns.get("x_shape", [row.shape for row in rows])
    for row, filled, shape in zip(rows, columns["x"], shapes, strict=True):
        cut = filled[tuple(map(slice, shape))]
        assert cut.tolist() == row.tolist()
        assert tuple(shape) == row.shape
        rest = [each for each in filled.ravel().tolist() if each not in row.ravel().tolist()]
        assert set(rest) <= {b"" if is_text else 0}


def test_a_size_that_the_graph_leaves_open_has_shapes_in_every_part():
    expected = {"x": Feature("float32", (None,))}
    columns = table(np.zeros((2, 3), np.float32), expected=expected)
    assert columns["x_shape"].tolist() == [[3], [3]]
    assert "x_shape" not in table(np.zeros((2, 3)), expected={"x": Feature("float32", (3,))})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "string", "qint8"])
def test_a_part_without_rows_has_the_columns_of_others(dtype):
    columns = table(expected={"x": Feature(dtype, (None, 2))})
    shapes = {name: each.shape for name, each in columns.items()}
    assert shapes == {"file": (0,), "row": (0,), "x": (0, 0, 2), "x_shape": (0, 2)}


def test_rows_of_different_ranks_are_refused():
    with raises(GraphError, "output-rank-varies", name="x"):
        table(np.zeros((1, 2)), np.zeros((1, 2, 2)))


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (np.array([1.5, -2], ml_dtypes.bfloat16), np.array([1.5, -2], np.float32)),
        (np.array([1.5, -2], ml_dtypes.float8_e4m3fn), np.array([1.5, -2], np.float32)),
        (np.array([7, -8], ml_dtypes.int4), np.array([7, -8], np.int8)),
        (np.array([(3,), (-4,)], [("qint8", np.int8)]), np.array([3, -4], np.int8)),
        (np.array([b"a", b"bc"]), np.array([b"a", b"bc"], object)),
    ],
    ids=lambda each: str(each.dtype),
)
def test_types_that_numpy_lacks_become_larger_ones(given, held):
    found = table(given)["x"]
    assert found.dtype == held.dtype
    assert found.tolist() == held.tolist()
