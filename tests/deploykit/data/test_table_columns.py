"""Columns of CSV and Parquet files as the inputs of a model: by name, or as the only one."""

import pyarrow
import pyarrow.parquet
import pytest

from deploykit.data.data import open_data
from deploykit.data.pipeline import pipeline_for
from deploykit.data.reading import records
from deploykit.data.samples import open_samples
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.support import because, raises, says

HOUSES = {"id": [1, 2, 3], "city": ["a", "bb", "c"], "price": [1.5, 2.0, -1.0], "rooms": [3, 4, 5]}


def graph(**inputs: tuple[str, tuple[int, ...]]) -> Graph:
    nodes = [
        Node(name, "Placeholder").with_attrs(dtype=DType(type_), shape=shape)
        for name, (type_, shape) in inputs.items()
    ]
    return Graph(nodes, list(inputs), list(inputs))


MODEL = graph(city=("string", (-1, 1)), rooms=("float32", (-1, 1)), price=("float32", (-1,)))


@pytest.fixture(params=["csv", "parquet"])
def houses(request, tmp_path) -> str:
    path = tmp_path / f"houses.{request.param}"
    if request.param == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(HOUSES), path)
    else:
        rows = [",".join(map(str, row)) for row in zip(*HOUSES.values(), strict=True)]
        path.write_text("\n".join([",".join(HOUSES), *rows]) + "\n")
    return str(path)


def test_columns_are_samples_by_name(houses):
    found = open_samples(houses, MODEL).arrays
    assert found["city"].tolist() == [[b"a"], [b"bb"], [b"c"]]
    assert found["rooms"].tolist() == [[3.0], [4.0], [5.0]]
    assert found["price"].tolist() == [1.5, 2.0, -1.0]


def test_columns_are_features_by_name(houses):
    pipeline = pipeline_for(open_data(houses, None, MODEL), MODEL, batch=2)
    assert {name: each.shape for name, each in pipeline.features.items()} == {
        "city": (1,), "rooms": (1,), "price": (),
    }  # fmt: skip


def parquet(tmp_path, **columns) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    return str(tmp_path / "table.parquet")


@pytest.mark.parametrize("unused", [[1, None], ["a", None], [[[1]], None]])
def test_a_column_that_cannot_fit_does_not_hide_the_one_that_does(unused, tmp_path):
    path = parquet(tmp_path, feat=[[1.0, 2.0], [3.0, 4.0]], price=unused, label=[0, 1])
    model = graph(x=("float32", (-1, 2)))
    assert open_samples(path, model).arrays["x"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    pipeline = pipeline_for(open_data(path, None, model), model, batch=2)
    assert pipeline.steps["x"].feature == "feat"


@pytest.mark.parametrize(
    ("columns", "bad"),
    [
        ({"x": [[1.0, 2.0], None], "feat": [[1.0, 2.0], [3.0, 4.0]]}, "x"),
        ({"x": [1.0, None], "feat": [[1.0, 2.0], [3.0, 4.0]]}, "x"),
        ({"a": [[1.0, 2.0], None], "city": ["a", "b"]}, "a"),
        ({"a": ["1", None], "label": [0, 1]}, "a"),
        ({"x": [[1.0, 2.0], None]}, "x"),
        ({"id": [1, None], "x": [[1.0, 2.0], None]}, "x"),
    ],
)
def test_the_bad_row_of_a_column_that_an_input_takes_is_named(columns, bad, tmp_path):
    path, model = parquet(tmp_path, **columns), graph(x=("float32", (-1, 2)))
    reason = because("column-null", name=bad)
    with raises(GraphError, "table-row", number=1, reason=reason):
        open_samples(path, model)
    with raises(GraphError, "table-row", number=1, reason=reason):
        pipeline_for(open_data(path, None, model), model, batch=2)
    with raises(GraphError, "table-row", number=1, reason=reason):
        open_samples(path, model, {"format": 1, "inputs": {"x": {"scale": 0.5}}})


def test_two_columns_that_might_fit_are_not_guessed(tmp_path):
    path = parquet(tmp_path, a=[[1.0, 2.0], None], b=[[1.0, 2.0], [3.0, 4.0]])
    model = graph(x=("float32", (-1, 2)))
    with raises(GraphError, "unknown-name", kind="array for input"):
        open_samples(path, model)
    with raises(GraphError, "feature-missing", name="x"):
        pipeline_for(open_data(path, None, model), model, batch=2)


@pytest.mark.parametrize("name", ["review", "text"])
def test_the_only_column_of_texts_is_taken(houses, name):
    model = graph(**{name: ("string", (-1,))})
    assert open_samples(houses, model).arrays[name].tolist() == [b"a", b"bb", b"c"]
    pipeline = pipeline_for(open_data(houses, None, model), model, batch=2)
    assert pipeline.steps[name].feature == "city"


def test_a_value_that_is_not_whole_is_named(houses):
    model = graph(price=("int32", (-1,)))
    for read in (
        lambda: open_samples(houses, model),
        lambda: pipeline_for(open_data(houses, None, model), model, batch=2),
    ):
        with pytest.raises(GraphError, match=says("data-value-misfit", value=1.5, index=[0])):
            read()


def test_a_text_for_a_number_is_named(houses):
    code, fields = "data-not-number", {"type": "float32", "got": "a"}
    if houses.endswith(".csv"):
        reason = because("cell-not-number", column="'city'", got="'a'")
        code, fields = "csv-row", {"number": 2, "reason": reason}
    with raises(GraphError, code, **fields):
        open_samples(houses, graph(city=("float32", (-1,))))


@pytest.mark.parametrize("name", ["zip", "other"])
def test_numbers_that_an_input_takes_as_texts_are_the_cells(name, tmp_path):
    """However they are read: whole or one by one."""
    path = tmp_path / "zips.csv"
    path.write_text("zip,label\n01234,1\n00777,0\n")
    model = graph(**{name: ("string", (-1,))})
    expected = [b"01234", b"00777"]
    assert open_samples(str(path), model).arrays[name].tolist() == expected
    data = open_data(str(path), None, model)
    assert pipeline_for(data, model, batch=2).features["zip"].dtype == "string"
    found = [each["zip"] for _, each in records(data, ("zip",))]
    assert found == expected
