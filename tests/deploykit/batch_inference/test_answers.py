"""Outputs become columns with a row for each row; the best classes are those of any other sort."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from deploykit.batch_inference.answers import (
    UnrankedError,
    answer_columns,
    column_names,
    expected_columns,
)
from deploykit.batch_inference.infer_task import InferTask
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.data import Data
from deploykit.data.pipeline import Pipeline
from deploykit.importers.metadata_file import About, SignatureNames
from deploykit.importers.open_model import open_model
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import raises, says

FLOAT = DType("float32")
TASK = InferTask("m.pb", {}, {}, RunConfig(), Pipeline(Data("d", "arrays", (), {}), {}), "o", "n",
                 "npz", 1)  # fmt: skip


def best(scores, top, labels=()):
    task = dataclasses.replace(TASK, top=top, labels=labels)
    return answer_columns(task, {"scores": scores}, len(scores))


def test_outputs_are_columns_as_they_are():
    outputs = {"a": np.zeros((3, 2), np.float16), "b": np.array([b"x", b"", b"yz"], object)}
    found = answer_columns(TASK, outputs, 3)
    assert list(found) == ["a", "b"]
    assert found["a"] is outputs["a"]
    assert found["b"] is outputs["b"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros((4, 2), np.float32), r"'b' gives float32 \[4, 2\] for 3 rows"),
        (np.float32(1), r"'b' gives float32 \[\] for 3 rows"),
        (np.array([b"x"], object), r"'b' gives texts \[1\] for 3 rows"),
    ],
)
@pytest.mark.parametrize("top", [None, 1])
def test_an_output_without_a_row_for_each_row_is_named(value, said, top):
    task = dataclasses.replace(TASK, top=top)
    with raises(GraphError, "output-lacks-rows"):
        answer_columns(task, {"a": np.zeros((3, 2), np.float32), "b": value}, 3)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "bfloat16", "int8", "uint8", "uint16", "int64",
              "uint64"],
)  # fmt: skip
@pytest.mark.parametrize("top", [1, 3, 8])
def test_the_best_classes_are_those_of_a_stable_sort(dtype, top):
    type_ = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    scores = np.random.default_rng(top).integers(0, 5, (50, 8)).astype(type_)  # with many ties
    found = best(scores, top)
    for row, classes, values in zip(scores, found["top_classes"], found["top_scores"], strict=True):
        expected = sorted(range(8), key=lambda n, row=row: (-float(row[n]), n))[:top]
        assert classes.tolist() == expected
        np.testing.assert_array_equal(values, row[expected].astype(np.float32))
    assert (found["top_classes"].dtype, found["top_scores"].dtype) == (np.int64, np.float32)
    assert "top_labels" not in found


def test_whole_numbers_are_compared_as_such():
    most, low = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    found = best(np.array([[most - 1, most, low]]), 3)
    assert found["top_classes"].tolist() == [[1, 0, 2]]


def test_labels_are_those_of_the_classes():
    found = best(np.array([[1, 3, 2], [9, 0, 5]], np.float32), 2, ("cat", "dog", "Kuh ü"))
    assert found["top_labels"].tolist() == [[b"dog", "Kuh ü".encode()], [b"cat", "Kuh ü".encode()]]


def test_more_classes_than_there_are_means_all():
    assert best(np.array([[1, 3, 2]], np.float32), 5)["top_classes"].tolist() == [[1, 2, 0]]


@pytest.mark.parametrize("shape", [(2, 1, 1, 3), (2, 3, 1), (2, 1, 3)])
def test_sizes_of_1_count_for_nothing(shape):
    scores = np.array([1, 3, 2, 9, 0, 5], np.float32).reshape(shape)
    assert best(scores, 2)["top_classes"].tolist() == [[1, 2], [0, 2]]


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((2, 1), np.float32),
        np.zeros(2, np.float32),
        np.zeros((2, 3, 4), np.float32),
        np.zeros((2, 0), np.float32),
        np.zeros((2, 3), bool),
        np.zeros((2, 3), np.complex64),
        np.array([[b"a", b"b"], [b"c", b"d"]], object),
    ],
)
def test_what_scores_no_classes_has_no_best_one(scores):
    with raises(GraphError, "output-not-scores-each-class", name="scores"):
        best(scores, 1)


def test_nan_is_never_the_best_class():
    scores = np.array([[1, np.inf, -np.inf], [np.nan, 1, 2], [0, 1, 2], [1, 2, np.nan]], np.float32)
    with raises(UnrankedError, "class-scores-nan", name="scores") as error:
        best(scores, 1)
    assert error.value.rows == (1, 3)
    assert best(scores[[0, 2]], 3)["top_classes"].tolist() == [[1, 0, 2], [2, 1, 0]]


@pytest.mark.parametrize("labels", [("a", "b"), ("a", "b", "c", "d")])
def test_labels_that_do_not_fit_are_refused(labels):
    with raises(
        GraphError, "counts-differ", what="labels", other="scores", other_count=3, count=len(labels)
    ):
        best(np.zeros((1, 3), np.float32), 1, labels)


def model(*outputs, signatures=None, shape=(-1, 3), fed=True):
    """A graph whose outputs have such names, all of one shape."""
    source = "x" if fed else "fixed"
    nodes = [
        Node("x", "Placeholder").with_attrs(dtype=FLOAT, shape=shape),
        Node.constant("fixed", np.zeros((2, 3), np.float32)),
    ]
    nodes += [Node(name, "Relu", (source,)).with_attrs(T=FLOAT) for name in outputs]
    graph = Graph(nodes, ("x",), outputs)
    graph.about = About({n: SignatureNames({}, each) for n, each in (signatures or {}).items()})
    return open_model(graph)


@pytest.mark.parametrize(
    ("tensors", "signatures", "expected"),
    [
        (("a", "b/c"), {}, {"a": "a", "b/c": "b/c"}),
        (("a", "b"), {"serve": {"scores": "a"}}, {"scores": "a", "b": "b"}),
        (("a",), {"serve": {"scores:0": "a"}}, {"scores": "a"}),
        (("a",), {"x": {"other": "a"}, "serving_default": {"scores": "a"}}, {"scores": "a"}),
        (("a", "b"), {"serve": {"b": "a"}}, {"b": "a", "b_2": "b"}),
        (("file", "row"), {}, {"file_2": "file", "row_2": "row"}),
        (("a", "a_shape"), {}, {"a": "a", "a_shape_2": "a_shape"}),
        (("a_shape",), {}, {"a_shape": "a_shape"}),
        (("a", "a_shape", "a_shape_2"), {},
         {"a": "a", "a_shape_3": "a_shape", "a_shape_2": "a_shape_2"}),
    ],
)  # fmt: skip
def test_columns_are_called_as_callers_know_them(tensors, signatures, expected):
    found = column_names(model(*tensors, signatures=signatures))
    assert found == expected
    assert list(found) == list(expected)


def test_what_a_graph_tells_is_said_before_anything_runs():
    columns = column_names(model("a", "b"))
    expected_columns(model("a", "b"), columns, None, ())
    expected_columns(model("a", "b"), columns, 2, ("x", "y", "z"))
    expected_columns(model("a", shape=(2, 3)), {"a": "a"}, 2, ())
    expected_columns(model("a", shape=(-1, -1)), {"a": "a"}, 2, ("x",))
    with pytest.raises(
        GraphError,
        match=says("counts-differ", what="labels", count=2, other="scores", other_count=3),
    ):
        expected_columns(model("a", "b"), columns, 2, ("x", "y"))
    with pytest.raises(
        GraphError,
        match=says("output-lacks-rows", name="a", got="float32 [2, 3]", rows="any number of"),
    ):
        expected_columns(model("a", fed=False), {"a": "a"}, None, ())
    with pytest.raises(
        GraphError, match=says("output-lacks-rows", name="a", got="float32 [2, 3]", rows=4)
    ):
        expected_columns(model("a", fed=False, shape=(4, 3)), {"a": "a"}, None, ())
    with raises(GraphError, "output-not-scores-each-class", name="a", got="float32 [?, 3, 4]"):
        expected_columns(model("a", shape=(-1, 3, 4)), {"a": "a"}, 1, ())
    expected_columns(model("a", shape=(-1, 3, 4)), {"a": "a"}, None, ())
