"""Types that the start of a table does not show, and values that are easily changed when read."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import deploykit
from deploykit.batch_inference.formats.text_formats import csv_pieces, jsonl_pieces
from deploykit.batch_inference.tables.frames import Frame
from deploykit.storage.table_formats import json_lines
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tables.made_up_tables import graph, opened, read
from tests.deploykit.batch_inference.tiny_models import tiny_model
from tests.support import raises


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_column_of_json_lines_that_begins_with_nulls_has_the_type_of_its_first_value(
    tmp_path, monkeypatch, ending
):
    monkeypatch.setattr(json_lines, "_LOOKED_AT", 64)
    rows = [{"n": n, "x": None, "k": None, "l": []} for n in range(40)]
    rows += [{"n": 40, "x": 1.5, "k": "text", "l": [1, 2]}]
    path = lines(tmp_path / "t.jsonl", rows)
    path.write_text(path.read_text().rstrip("\n") + ending)
    found = opened(path, graph(x=("float32", (-1,))), keep=["n", "k"])
    good, bad = read(found)
    assert [(row, item["x"].item(), str(kept["k"])) for _, row, item, kept in good] == [
        (40, 1.5, "text")
    ]
    assert set(bad) == set(range(40))
    assert [*opened(path, graph(l=("int64", (-1, -1)))).features] == ["l"]


def test_a_column_without_any_value_is_named(tmp_path):
    path = lines(tmp_path / "t.jsonl", [{"x": None}] * 3)
    with raises(GraphError, "column-type", name="x"):
        opened(path, graph(x=("float32", (-1,))))


@pytest.mark.parametrize("first", [2**64 - 1, 2**63])
@pytest.mark.parametrize("last", [5, "no JSON"])
def test_large_integers_of_json_lines_stay_exact(tmp_path, first, last):
    path = lines(tmp_path / "t.jsonl", [{"id": first, "x": 1.0}, {"id": 7, "x": 2.0}])
    with path.open("a") as file:
        file.write(json.dumps({"id": last, "x": 3.0}) + "\n" if last == 5 else f"{last}\n")
    good, _ = read(opened(path, graph(x=("float32", (-1,))), keep=["id"]))
    assert [kept["id"] for *_, kept in good][:2] == [first, 7]


def test_hexadecimal_cells_are_no_numbers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x\n1\n0x1F\n2\n")
    good, bad = read(opened(path, graph(x=("int32", (-1,)))))
    assert ([item["x"].item() for _, _, item, _ in good], set(bad)) == ([1, 2], {1})


@pytest.mark.parametrize("type_", [pa.float32(), pa.list_(pa.float32()), pa.list_(pa.float32(), 1)])
def test_small_floats_of_the_data_keep_their_digits_in_text(type_):
    value = 0.1 if type_ == pa.float32() else [0.1]
    columns = {"row": np.arange(2), "x": pa.array([value, None], type_)}
    assert b'"x":' + json.dumps(value).encode() in b"".join(jsonl_pieces(columns))
    assert json.dumps(value).encode() in b"".join(csv_pieces(columns))


def test_a_dataframe_keeps_columns_that_arrow_holds():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, None], "mixed": [1, "a"], 3: ["u", "v"]})
    with Frame.of(frame).in_folder() as folder:
        found = pa.parquet.read_table(folder / "data.parquet")
    assert found.to_pydict() == {"x": [1.0, None], "3": ["u", "v"]}


def test_a_column_of_vectors_is_its_lists_and_no_tensor_is_reshaped():
    values = pa.array([[1, 2, 3, 4]], pa.list_(pa.float32(), 4))
    model = graph(x=("float32", (-1, 2, 2)))
    for shape in ((4,), (2, 2)):
        tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), shape), values)
        with Frame.of(pa.table({"x": tensors})).in_folder() as folder:
            if len(shape) > 1:
                with raises(GraphError, "column-type", name="x"):
                    opened(folder / "data.parquet", model)
                continue
            good, _ = read(opened(folder / "data.parquet", model))
        assert np.asarray(good[0][2]["x"]).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("values", [[5, 10**19, 1.5], [1, 2**63, -2], [10**30, 1, None]])
def test_large_integers_among_floats_are_floats(tmp_path, values):
    path = lines(tmp_path / "t.jsonl", [{"v": value} for value in values])
    good, bad = read(opened(path, graph(v=("float64", (-1,))), keep=["v"]))
    found = [item["v"].item() for _, _, item, _ in good]
    assert (found, len(bad)) == ([float(v) for v in values if v is not None], values.count(None))


def test_lists_that_begin_empty_stay_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LOOKED_AT", 64)
    rows = [{"x": 1.0, "v": []}] * 6 + [{"x": 1.0, "v": None}] * 10
    path = lines(tmp_path / "t.jsonl", rows)
    good, bad = read(opened(path, graph(x=("float32", (-1,))), keep=["v"]))
    assert ([kept["v"] for *_, kept in good], bad) == ([[]] * 6 + [None] * 10, {})


def test_a_dataframe_without_a_usable_column_is_an_error():
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame({"b": pandas.Series([2**70, 1], dtype=object)}), pandas.DataFrame()]
    for frame in frames:
        with raises(GraphError, "data-not-a-table"), Frame.of(frame).in_folder():
            pass


def test_a_table_keeps_columns_that_parquet_holds(caplog):
    months = pa.array([None], pa.month_day_nano_interval())
    table = pa.table({"months": months, "x": [1.5], "none": pa.array([{}], pa.struct([]))})
    with Frame.of(table).in_folder() as folder:
        assert pa.parquet.read_table(folder / "data.parquet").to_pydict() == {"x": [1.5]}
    assert [name in caplog.text for name in ("'months'", "'x'", "'none'")] == [True, False, True]
    with raises(GraphError, "data-not-a-table"), Frame.of(table.select([0])).in_folder():
        pass


@pytest.mark.parametrize("cells", [pa.array(["a"]), pa.array([[1.0], None])])
def test_errors_name_the_table_and_not_its_temporary_file(tmp_path, cells):
    model = tmp_path / "model.pb"
    model.write_bytes(tiny_model().SerializeToString())
    with pytest.raises(GraphError) as caught:
        deploykit.infer(model, pa.table({"x": cells}))
    assert str(caught.value).startswith("the table: ")
    assert "parquet" not in str(caught.value)


def test_views_are_read_as_what_they_show(tmp_path):
    columns = {
        "s": pa.array(["a", None], pa.string_view()),
        "b": pa.array([None, b"\xff"], pa.binary_view()),
        "l": pa.array([["a", None], None], pa.list_(pa.string_view())),
        "m": pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string_view())),
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    model = graph(s=("string", (-1,)))
    good, bad = read(opened(tmp_path / "t.parquet", model, keep=["s", "b", "l", "m"]))
    assert [(item["s"], kept) for _, _, item, kept in good] == [
        (b"a", {"s": "a", "b": None, "l": ["a", None], "m": [("k", "v")]})
    ]
    assert set(bad) == {1}


@pytest.mark.parametrize("first", [[2**64 - 1, 2], [1, 2**63], [[2**63], []], [None, 2**63]])
@pytest.mark.parametrize("last", ['{"v": null}', "no JSON"])
def test_large_integers_in_lists_stay_exact(tmp_path, first, last):
    path = lines(tmp_path / "t.jsonl", [{"x": 1.0, "v": first}, {"x": 2.0, "v": []}])
    with path.open("a") as file:
        file.write(f"{last}\n")
    good, _ = read(opened(path, graph(x=("float32", (-1,))), keep=["v"]))
    assert [kept["v"] for *_, kept in good][:2] == [first, []]


def test_large_integers_among_floats_in_lists_are_floats(tmp_path):
    path = lines(tmp_path / "t.jsonl", [{"v": [1.5, 2**63]}, {"v": [10**30, 1]}])
    good, bad = read(opened(path, graph(v=("float64", (-1, 2)))))
    assert [list(item["v"]) for _, _, item, _ in good] == [[1.5, 2.0**63], [1e30, 1]]
    assert not bad


def test_deep_lists_do_not_exhaust_the_stack(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{{"x": 1, "v": {}{}{}}}\nno JSON\n'.format("[" * 400, 2**63, "]" * 400))
    good, bad = read(opened(path, graph(x=("float32", (-1,)))))
    assert (len(good), set(bad)) == (1, {1})


def test_data_is_not_iterated_to_check_the_arguments():
    class Endless:
        def __iter__(self):
            raise AssertionError("its items were read")

    with raises(GraphError, "unexpected", what="the data", got="Endless"):
        deploykit.infer("model.pb", Endless())


@pytest.mark.parametrize(
    "cell", ["9007199254740993.0", "9007199254740993e0", "90071992547409930e-1"]
)
def test_integers_with_a_point_stay_exact(tmp_path, cell):
    path = tmp_path / "t.csv"
    path.write_text(f"x,n\n{cell},a\n1e999999999,b\n1.5,c\n1e3,d\n\u0661,e\n")
    good, bad = read(opened(path, graph(x=("int64", (-1,)))))
    assert [item["x"].item() for _, _, item, _ in good] == [2**53 + 1, 1000]
    assert set(bad) == {1, 2, 4}


def test_times_in_lists_and_objects_of_json_lines_are_their_texts(tmp_path):
    row = {"t": "2024-01-01", "l": ["2024-01-01"], "s": {"t": "2024-01-01", "u": [{"v": "10:00"}]}}
    path = lines(tmp_path / "t.jsonl", [{"x": 1, **row}] * 2)
    good, _ = read(opened(path, graph(x=("float32", (-1,))), keep=[*row]))
    assert [kept for *_, kept in good] == [row] * 2
    good, _ = read(opened(path, graph(l=("string", (-1, -1)))))
    assert [list(item["l"]) for _, _, item, _ in good] == [[b"2024-01-01"]] * 2


def test_an_object_with_a_key_that_the_start_lacks_is_an_invalid_row(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LOOKED_AT", 64)
    rows = [{"x": 1, "m": {"a": 1}, "other": 1}] * 9 + [{"x": 2, "m": {"a": 2, "b": "new"}}]
    path = lines(tmp_path / "t.jsonl", [*rows, {"x": 3, "m": {}}, {"x": 4, "new": 1}])
    good, bad = read(opened(path, graph(x=("float32", (-1,))), keep=["m"]))
    assert set(bad) == {9}
    assert [kept["m"] for *_, kept in good] == [{"a": 1}] * 9 + [{"a": None}, None]


def test_half_a_character_of_json_lines_is_an_invalid_row(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"text": "good"}\n{"text": "cut \\ud83d"}\n')
    good, bad = read(opened(path, graph(text=("string", (-1,)))))
    assert (len(good), set(bad)) == (1, {1})


@pytest.mark.parametrize("type_", ["int64", "uint8", "bool", "float32"])
def test_booleans_of_json_lines_are_numbers_beside_numbers_too(tmp_path, type_):
    path = lines(tmp_path / "t.jsonl", [{"x": 1, "k": 1}, {"x": True, "k": True}])
    good, bad = read(opened(path, graph(x=(type_, (-1,)))))
    assert ([item["x"].item() for _, _, item, _ in good], bad) == ([1, 1], {})
    _, bad = read(opened(path, graph(x=(type_, (-1,))), keep=["k"]))
    assert set(bad) == {1}  # no integer is a copy of it


def test_times_beyond_those_of_python_are_written():
    column = pa.array([1704067200000, 0], pa.timestamp("s"))
    assert b"1704067200000" in b"".join(csv_pieces({"row": np.arange(2), "t": column}))
    assert b"1704067200000" in b"".join(jsonl_pieces({"row": np.arange(2), "t": column}))


def test_copies_of_dataframes_have_their_dtypes():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    ids = pandas.array([2**53 + 1, 2, None], "Int64")
    periods = pandas.period_range("2024-01", periods=3, freq="M")
    frame = pandas.DataFrame({"x": [1.0, None, 3.0], "id": ids, 7: periods}, index=["a", "b", "b"])
    model = tiny_of_one_number()
    found = deploykit.infer(model, frame, keep_columns=["id", 7], on_error="skip")
    assert [*found.columns] == ["row", "id", "7", "y"]
    assert [*found.index] == ["a", "b"]
    assert found["id"].tolist() == [2**53 + 1, pandas.NA]
    assert found["7"].dtype == frame[7].dtype
    kinds = polars.Series("e", ["r", "b"], polars.Enum(["r", "b"]))
    objects = polars.Series("o", ["r", "b"], polars.Object)
    frame = polars.DataFrame({"x": [1.0, 2.0]}).with_columns(kinds, objects)
    assert deploykit.infer(model, frame).to_dict(as_series=False) == {"row": [0, 1], "y": [2, 3]}
    found = deploykit.infer(model, frame, keep_columns=["e"])
    assert (found.columns, found["e"].dtype) == (["row", "e", "y"], kinds.dtype)
    with raises(GraphError, "unknown-name"):
        deploykit.infer(model, frame, keep_columns=["o"])


def test_a_column_that_cannot_be_written_is_ignored():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 2.0], "bin": pandas.cut([1, 2], 2)})
    nulls = pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([None, "a"]))
    for data in (frame, pa.table({"x": [1.0], "d": nulls})):
        with Frame.of(data).in_folder() as folder:
            assert pa.parquet.read_table(folder / "data.parquet").column_names == ["x"]


def tiny_of_one_number():
    """Return a GraphDef from `x` [rows] to `y` [rows]."""
    import tensorflow as tf

    with tf.Graph().as_default() as made:
        tf.add(tf.compat.v1.placeholder(tf.float32, (None,), "x"), 1.0, name="y")
    return made.as_graph_def()
