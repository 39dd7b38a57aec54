"""--columns in the commands that run a model on samples: renamed and joined columns of a table."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import deploykit as api
from deploykit.batch_inference.infer_plan import planned
from deploykit.batch_inference.infer_task import InferOptions
from deploykit.benchmarking.inputs import BenchmarkInputs
from deploykit.benchmarking.run_config import RunConfig
from deploykit.data.data import open_data
from deploykit.data.preprocessing import declared_for, preprocessing_by_graph, with_header
from deploykit.data.samples import open_feeds, open_samples, read_feeding
from deploykit.importers.metadata_file import About
from deploykit.importers.open_model import open_model
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.support import Containing, because, raises

TABLE = 'id,a,b,label,"c, d"\nr1,1,2,0,3\nr2,4,5,1,6\n'
VECTOR = ("float32", (-1, 2))


def chosen(**columns):
    """Return what --columns states."""
    return with_header(None, "auto", columns)


@pytest.mark.parametrize(
    ("content", "takes", "columns", "values"),
    [
        (TABLE, VECTOR, "b,a", [[2, 1], [5, 4]]),
        (TABLE, ("float32", (-1,)), "b", [2, 5]),
        (TABLE, ("int32", (-1, 1)), "b", [[2], [5]]),
        (TABLE, ("float32", (-1,)), "c, d", [3, 6]),
        (TABLE, ("string", (-1,)), "a", [b"1", b"4"]),
        ("1,2,3\n4,5,6\n", VECTOR, "2,0", [[3, 1], [6, 4]]),
    ],
)
def test_columns_of_a_csv_file(tmp_path, content, takes, columns, values):
    path = tmp_path / "a.csv"
    path.write_text(content)
    found = open_samples(path, graph(input=takes), chosen(input=columns))
    assert found.arrays["input"].tolist() == values
    assert found.labels is None or found.labels.tolist() == [0, 1]
    assert found.preprocessing is not None
    assert [item.get("feature") for item in found.preprocessing["inputs"].values()] == [None]


def test_columns_of_other_tables(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"a": n, "b": 2.5, "c": "r"}) + "\n" for n in range(2)))
    found = open_samples(path, graph(x=VECTOR), chosen(x="b,a"))
    assert found.arrays["x"].tolist() == [[2.5, 0], [2.5, 1]]
    with raises(GraphError, "column-not-numbers", name="c"):
        open_samples(path, graph(x=VECTOR), chosen(x="a,c"))


@pytest.mark.parametrize(("columns", "takes"), [("a,b", VECTOR), ("a", ("float32", (-1,)))])
@pytest.mark.parametrize("values", [[1, None, 3], [{}, None, {}]])
def test_the_row_of_a_chosen_column_without_a_value_is_named(tmp_path, columns, takes, values):
    rows = [{"a": value, "b": 1, "x": 2} for value in values]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with raises(GraphError, "table-row", number=1, reason=because("column-null", name="a")):
        open_samples(path, graph(x=takes), chosen(x=columns))


def test_columns_that_cannot_be_taken_are_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    model = graph(x=VECTOR)
    with raises(GraphError, "unknown-name", kind="input", name="y"):
        open_samples(path, model, chosen(y="a,b"))
    with raises(GraphError, "given-twice", name="x"):
        open_samples(path, model, with_header(None, "auto", {"x": "a,b", "x:0": "b,a"}))
    stated = {"format": 1, "inputs": {}, "columns": {"label": 3, "x": [1, 2]}}
    with raises(GraphError, "give-one"):
        open_samples(path, model, with_header(stated, "auto", {"x": "a,b"}))
    with raises(GraphError, "unknown-name", kind="column", name="z"):
        open_samples(path, model, chosen(x="a,z"))
    with raises(GraphError, "csv-row", number=2, reason=Containing("'id'", "'r1'")):
        open_samples(path, model, chosen(x="a,id"))
    with raises(GraphError, "does-not-fit"):
        open_samples(path, graph(x=("float32", (-1, 3))), chosen(x="a,b"))
    with raises(GraphError, "only-for", option="--columns"):
        open_data(str(tmp_path), None, model, chosen={"x": "a,b"})
    with raises(GraphError, "only-for", option="columns"):
        open_samples({"x": [[1, 2]]}, model, chosen(x="a,b"))


def test_columns_leave_the_known_steps_of_a_model():
    model = graph(x=VECTOR)
    model.about = About(preprocessing={"format": 1, "inputs": {"x": {"scale": 0.5}}})
    found = declared_for(model, with_header(None, "yes", {"x": "a,b"}))
    assert (found.inputs["x"].scale, found.inputs["x"].feature) == (0.5, "a,b")
    assert found.rule == "yes"


def tables(folder):
    """Write a column `x` of two rows as CSV, JSON Lines and Parquet, and as an array."""
    (folder / "a.csv").write_text("x,more\n2,0\n4,0\n")
    (folder / "a.jsonl").write_text('{"x": 2}\n{"x": 4}\n')
    pq.write_table(pa.table({"x": [2.0, 4.0]}), folder / "a.parquet")
    np.savez(folder / "a.npz", x=np.float32([2, 4]))


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet", "a.npz"])
def test_what_is_fed_names_the_steps_of_the_metadata_or_that_they_are_not_applied(tmp_path, name):
    tables(tmp_path)
    path, how = tmp_path / name, chosen(x="x")
    model = graph(x=("float32", (-1,)))
    model.about = About(preprocessing={"format": 1, "inputs": {"x": {"scale": 0.5}}})
    plain = open_samples(path, model)
    assert plain.arrays["x"].tolist() == [2, 4]
    said = "as they are, without the steps of the model metadata (multiplied by 0.5)"
    for fed in (
        plain.fed,
        open_feeds(path, model)[1],
        read_feeding(BenchmarkInputs(data=path), model)[1],
    ):
        assert fed["x"].endswith(f"from {name}, {said}")
    plan = planned(open_model(model), path, tmp_path / "out", InferOptions(), RunConfig())
    assert plan.fed["x"].endswith(f"from {name}, multiplied by 0.5")
    if name.endswith("npz"):
        return
    for found in (
        open_samples(path, model, how),
        read_feeding(BenchmarkInputs(data=path), model, columns={"x": "x"})[0].data,
    ):
        assert found.arrays["x"].tolist() == [1, 2]
        assert found.fed["x"].endswith(f"from {name}, multiplied by 0.5")


def test_columns_do_not_feed_another_axis_than_the_first(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    model = graph(x=("float32", (2, -1)))
    axes = {"format": 1, "inputs": {"x": {"batch_axis": 1}}}
    model.about = About(preprocessing=axes)
    for act in (
        lambda: open_samples(path, model, chosen(x="a,b")),
        lambda: open_feeds(path, model, chosen(x="a,b")),
        lambda: api.benchmark(model, data=path, columns={"x": "a,b"}),
        lambda: api.benchmark(
            graph(x=("float32", (2, -1))), data=path, columns={"x": "a,b"}, preprocess=axes
        ),
    ):
        with raises(GraphError, "batch-axis-not-first", name="x", axis=1, what="--columns"):
            act()


def test_columns_of_an_input_are_those_of_its_pair_in_another_model():
    models = graph(x=VECTOR), graph(y=VECTOR)
    found = preprocessing_by_graph(chosen(x="a,b"), models)
    assert [item.chosen for item in found] == [{"x": "a,b"}, {"y": "a,b"}]


def test_inputs_in_memory_take_the_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    model = graph(x=VECTOR)
    feeding, _ = read_feeding(BenchmarkInputs(data=path), model, columns={"x": "b,a"})
    assert [batch[0].tolist() for batch in feeding.batches(model, 1)] == [[[2, 1]], [[5, 4]]]
    path.write_text("1,2,0\n4,5,1\n")  # and without it, a vector and its label
    feeding, _ = read_feeding(BenchmarkInputs(data=path), model)
    assert [batch[0].tolist() for batch in feeding.batches(model, 1)] == [[[1, 2]], [[4, 5]]]
    with raises(GraphError, "option-needs", option="--columns"):
        read_feeding(BenchmarkInputs(), model, columns={"x": "b,a"})
