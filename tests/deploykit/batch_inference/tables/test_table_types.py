"""Every type of column in every format becomes the input's array, or an invalid row or an error."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.batch_inference.reading import partitions
from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.tables.table_data import ColumnChoice, takes_columns
from deploykit.data.data import open_data
from deploykit.data.preprocessing import Preprocessing
from deploykit.storage import record_offsets
from deploykit.storage.table_formats import json_lines
from deploykit.transforms.common.errors import GraphError
from tests import pairwise
from tests.deploykit.batch_inference.tables.made_up_tables import graph, opened, read, write_table
from tests.support import Containing, because, raises

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)
INTS = st.integers(-(2**31), 2**31 - 1)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
KINDS = {
    "texts": (pa.string(), TEXTS, "string", ()),
    "ints": (pa.int64(), INTS, "int32", ()),
    "floats": (pa.float64(), FLOATS, "float32", ()),
    "bools": (pa.bool_(), st.booleans(), "bool", ()),
    "bools as numbers": (pa.bool_(), st.booleans(), "float32", ()),
    "rows of one": (pa.int64(), INTS, "int64", (1,)),
    "fixed lists": (pa.list_(pa.float64(), 3), st.lists(FLOATS, min_size=3, max_size=3),
                    "float32", (3,)),
    "lists": (pa.list_(pa.int64()), st.lists(INTS, max_size=5), "int64", (-1,)),
    "texts in lists": (pa.list_(pa.string()), st.lists(TEXTS, min_size=2, max_size=2),
                       "string", (2,)),
    "lists of lists": (pa.list_(pa.list_(pa.float64())), st.lists(
        st.lists(FLOATS, min_size=2, max_size=2), min_size=2, max_size=2), "float64", (2, 2)),
}  # fmt: skip
LISTS = [name for name in KINDS if "list" in name]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(partitions, "MAX_ROWS", 6)
    monkeypatch.setattr(partitions, "MIN_ROWS", 6)
    monkeypatch.setattr(record_offsets, "_BLOCK", 37)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "end",
    pairwise.drawn(
        "values_and_nulls",
        ["parquet", "jsonl", "csv", "json", "jsonl.gz", "csv.gz", "json.gz"],
        2,
        quick=3,
    ),
)
@pytest.mark.parametrize("name", KINDS)
def test_values_and_nulls(tmp_path_factory, small_parts, name, end):
    type_, values, dtype, shape = KINDS[name]
    if end.startswith("csv") and name in (*LISTS, "bools as numbers"):
        pytest.skip("CSV has no lists, and true is no number in it")

    @settings(max_examples=12)
    @given(st.lists(st.none() | values, min_size=1, max_size=20).filter(any))
    def check(rows):
        folder = tmp_path_factory.mktemp("table")
        table = pa.table({"n": pa.array(range(len(rows))), "x": pa.array(rows, type_)})
        path = write_table(folder / f"t.{end}", table)
        model = graph(x=(dtype, (-1, *shape)))
        nulls = {n for n, value in enumerate(rows) if value is None}
        if end.startswith("csv") and dtype == "string":
            nulls, rows = set(), [value or "" for value in rows]
        elif end == "jsonl" and not [item for row in rows if row for item in np.ravel(row)]:
            return  # only empty lists, whose type nobody can know
        good, bad = read(opened(path, model, keep=["n"]))
        assert set(bad) == nulls
        assert {*bad.values()} <= {because("column-null", name="x")}
        assert [row for _, row, _, _ in good] == [n for n in range(len(rows)) if n not in nulls]
        for file, row, found, kept in good:
            assert (file, str(kept["n"])) == (f"t.{end}", str(row))
            if dtype == "string":
                expected = np.array(rows[row], object)
                encoded = [text.encode() for text in expected.reshape(-1)]
                assert np.array(found["x"], object).reshape(-1).tolist() == encoded
            else:
                array = np.asarray(found["x"])
                assert array.dtype == dtype
                assert array.reshape(-1).tolist() == np.array(rows[row], dtype).reshape(-1).tolist()

    check()


@pytest.mark.parametrize("end", ["parquet", "jsonl", "csv"])
@pytest.mark.parametrize(("given_", "type_"), [("text", "float32"), ("number", "string")])
def test_a_column_of_another_type_is_named_with_what_it_is(tmp_path, end, given_, type_):
    table = pa.table({"text": ["a", "b"], "number": [1.5, 2.5]})
    path = write_table(tmp_path / f"t.{end}", table)
    if end == "csv" and type_ == "string":
        (_, _, first, _), _ = read(opened(path, graph(**{given_: (type_, (-1,))})))[0]
        assert first == {"number": b"1.5"}
        return
    with raises(GraphError, "column-type", name=given_, got=Containing(), input=given_,
                expected=f"{type_} [?]"):  # fmt: skip
        opened(path, graph(**{given_: (type_, (-1,))}))


@pytest.mark.parametrize("end", ["parquet", "jsonl", "csv"])
def test_the_only_column_that_fits_is_taken_and_others_by_name(tmp_path, end):
    table = pa.table({"id": [4, 5], "review": ["a", "b"], "label": [0, 1]})
    path = write_table(tmp_path / f"t.{end}", table)
    text = graph(text=("string", (-1, 1)))
    assert [*opened(path, text).features] == ["review"]
    assert [*opened(path, graph(x=("int64", (-1,)))).features] == ["id"]
    two = graph(a=("string", (-1,)), b=("int64", (-1,)))
    with raises(GraphError, "column-missing", input="a"):
        opened(path, two)
    found = opened(path, two, {"a": "review", "b": "label"})
    assert [*found.features] == ["review", "label"]
    with raises(GraphError, "unknown-name", kind="column", name="reviews"):
        opened(path, text, {"text": "reviews"})
    with raises(GraphError, "unknown-name", kind="input", name="texts"):
        opened(path, text, {"texts": "review"})
    with raises(GraphError, "unknown-name", kind="column", name="key"):
        opened(path, text, keep=["key"])


@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_lists_that_do_not_fit_are_invalid_rows(tmp_path, end):
    table = pa.table({"x": pa.array([[1.0, 2.0], [1.0], [None, 2.0], [3.0, 4.0]])})
    path = write_table(tmp_path / f"t.{end}", table)
    good, bad = read(opened(path, graph(x=("float32", (-1, 2)))))
    assert [row for _, row, _, _ in good] == [0, 3]
    assert bad == {1: "column 'x' has 1 values, expected 2", 2: "column 'x' has a null in its list"}


def test_numbers_that_do_not_fit_are_invalid_rows(tmp_path):
    path = write_table(tmp_path / "t.parquet", pa.table({"x": [1.0, 2.5, 3e9, 4.0]}))
    good, bad = read(opened(path, graph(x=("int32", (-1,)))))
    assert [row for _, row, _, _ in good] == [0, 3]
    assert set(bad) == {1, 2}


@pytest.mark.parametrize("blanks", ["", "\n", "\r\n"])
def test_lines_of_csv_that_do_not_fit_are_invalid_rows(tmp_path, small_parts, blanks):
    lines = ["x,y"] + [f'{n},"a\n{n}"' for n in range(20)]
    lines[4], lines[9], lines[14] = "7", "many,b", ",c"
    (tmp_path / "t.csv").write_bytes("\n".join([*lines[:6], blanks, *lines[6:], ""]).encode())
    good, bad = read(opened(tmp_path / "t.csv", graph(x=("int64", (-1,)), y=("string", (-1,)))))
    assert bad == {
        3: because("cell-count", count=1, expected=2),
        8: Containing("'x'", "'many'"),
        13: because("column-null", name="x"),
    }
    assert [row for _, row, _, _ in good] == [n for n in range(20) if n not in bad]
    assert all(values == {"x": row, "y": f"a\n{row}".encode()} for _, row, values, _ in good)


def test_lines_that_are_not_json_are_invalid_rows(tmp_path, small_parts):
    lines = [f'{{"x": {n}, "other": {{"deep": [1]}}}}' for n in range(20)]
    lines[3], lines[8], lines[9], lines[11] = "{", "[1]", '{"x": "a"}', '{"y": 1}'
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n\n")
    good, bad = read(opened(tmp_path / "t.jsonl", graph(x=("int64", (-1,)))))
    assert set(bad) == {3, 8, 9, 11}
    assert bad[11] == because("column-null", name="x")
    assert [values["x"] for _, _, values, _ in good] == [n for n in range(20) if n not in bad]


def test_a_column_of_a_vector_is_read_like_one_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LOOKED_AT", 20)  # the first line decides on the types
    (tmp_path / "t.jsonl").write_text('{"a": 1, "b": 2}\n{"a": 2.5, "b": 3}\n')
    found = opened(tmp_path / "t.jsonl", graph(x=("float32", (-1, 2))), {"x": "a,b"})
    good, bad = read(found)
    assert ([values["a,b"].tolist() for _, _, values, _ in good], bad) == ([[1, 2], [2.5, 3]], {})


def test_fractions_of_json_are_no_integers(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "_LOOKED_AT", 30)  # the first line decides on the types
    lines = ['{"x": 1, "k": [1]}', '{"x": 1.5, "k": [1]}', '{"x": 2, "k": [1.5]}',
             '{"x": 3.0, "k": [4]}', '{"x": "\\ud800", "k": [4]}']  # fmt: skip
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    good, bad = read(opened(tmp_path / "t.jsonl", graph(x=("int64", (-1,))), keep=["k"]))
    assert [(values["x"], kept["k"]) for *_, values, kept in good] == [(1, [1]), (3, [4])]
    assert set(bad) == {1, 2, 4}
    assert bad[1] == Containing("'x'", "1.5", "int64")


@pytest.mark.parametrize("values", [["true", "false"], ["1", "0"]])
@pytest.mark.parametrize("dtype", ["bool", "int64", "float32", "uint64"])
def test_booleans_and_numbers_of_json_fit_each_other(tmp_path, dtype, values):
    (tmp_path / "t.jsonl").write_text("".join(f'{{"x": {value}}}\n' for value in values))
    good, bad = read(opened(tmp_path / "t.jsonl", graph(x=(dtype, (-1,)))))
    assert [values["x"] for *_, values, _ in good] == [1, 0]
    assert not bad


@pytest.mark.parametrize("other", ["1.0", "abc", "1.5", "5", "1e400", "1_0"])
@pytest.mark.parametrize(
    ("dtype", "value"), [("int64", 2**53 + 1), ("int64", -(2**63)), ("uint64", 2**64 - 1)]
)
def test_integers_of_csv_are_exact(tmp_path, dtype, value, other):
    (tmp_path / "t.csv").write_text(f"x,y\n{value},a\n{other},b\n")
    good, bad = read(opened(tmp_path / "t.csv", graph(x=(dtype, (-1,)))))
    found = [int(values["x"]) for *_, values, _ in good]
    assert found == ([value, int(float(other))] if other in ("1.0", "5") else [value])
    assert set(bad) == set(range(len(found), 2))
    assert good[0][2]["x"].dtype == dtype


def test_decimals_for_integers_are_exact(tmp_path):
    texts = [f"{2**53 + 1}.00", "1.50", "7.00"]
    column = pa.array([decimal.Decimal(text) for text in texts], pa.decimal128(20, 2))
    path = write_table(tmp_path / "t.parquet", pa.table({"x": column}))
    good, bad = read(opened(path, graph(x=("int64", (-1,)))))
    assert [int(values["x"]) for *_, values, _ in good] == [2**53 + 1, 7]
    assert bad == {1: Containing("'x'", "1.50", "int64")}


NESTED = [[[1, 2], [3, 4]], [[1], [2, 3, 4]], [[1, 2, 3, 4]], [[1, 2, 3], [4, 5, 6]], []]


@pytest.mark.parametrize("end", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("shape", "fitting"), [((2, 2), [0]), ((-1, 2), [0, 4]), ((2, -1), [0, 3]),
                           ((-1, -1), [0, 2, 3, 4])],
)  # fmt: skip
def test_nested_lists_keep_their_shape(tmp_path, end, shape, fitting):
    path = write_table(tmp_path / f"t.{end}", pa.table({"x": NESTED}))
    good, bad = read(opened(path, graph(x=("int64", (-1, *shape)))))
    assert [row for _, row, _, _ in good] == fitting
    for _, row, values, _ in good:
        assert values["x"].tolist() == NESTED[row]
        assert values["x"].ndim == 2
    assert bad[1] == because("column-ragged", name="x")
    if shape == (2, 2):
        assert bad[2] == Containing("'x'", "[1, 4]", "[2, 2]")


def test_a_text_of_csv_may_look_like_another_type(tmp_path):
    (tmp_path / "t.csv").write_text("day,none,x\n2026-01-01,,1\n2026-01-02,,2\n")
    texts = graph(day=("string", (-1,)), none=("string", (-1,)), x=("string", (-1,)))
    good, bad = read(opened(tmp_path / "t.csv", texts))
    assert not bad
    assert good[0][2] == {"day": b"2026-01-01", "none": b"", "x": b"1"}
    _, bad = read(opened(tmp_path / "t.csv", graph(none=("float32", (-1,)))))
    assert set(bad) == {0, 1}


def test_a_column_has_one_type_for_all_inputs(tmp_path):
    path = write_table(tmp_path / "t.parquet", pa.table({"id": [1, 2]}))
    same = opened(path, graph(a=("int32", (-1,)), b=("int32", (-1,))), {"a": "id", "b": "id"})
    assert same.features["id"].dtype == "int32"
    with raises(GraphError, "column-type", input="b", expected="float32 [?]"):
        opened(path, graph(a=("int32", (-1,)), b=("float32", (-1,))), {"a": "id", "b": "id"})


CELLS = st.lists(st.sampled_from(["1", "\r", "\n", "\r\n", "\n\r", '"', "a b", ","]), max_size=4)


@pytest.mark.sampled
@settings(max_examples=60)
@given(
    rows=st.lists(CELLS.map("".join), min_size=1, max_size=12),
    ends=st.lists(st.sampled_from(["\r", "\n", "\r\n", "\r\r\n", "\n\n"]), min_size=1, max_size=3),
    is_last_ended=st.booleans(),
    block=st.integers(1, 40),
)
def test_rows_end_where_the_parser_ends_them(tmp_path_factory, rows, ends, is_last_ended, block):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    lines = ["n,x", *(f'{n},"{cell.replace(chr(34), chr(34) * 2)}"' for n, cell in enumerate(rows))]
    text = "".join(line + ends[n % len(ends)] for n, line in enumerate(lines))
    path.write_bytes(text.encode() if is_last_ended else text.rstrip("\r\n").encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "MAX_ROWS", 3)
        patch.setattr(partitions, "MIN_ROWS", 3)
        patch.setattr(record_offsets, "_BLOCK", block)
        good, bad = read(opened(path, graph(x=("string", (-1,)), n=("int64", (-1,)))))
    assert not bad
    assert [(values["n"], values["x"].decode()) for *_, values, _ in good] == list(enumerate(rows))


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_a_table_of_any_line_ends_is_detected(tmp_path, end):
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["q,id", "1,2", "3,4", ""]).encode())
    model = graph(q=("float32", (-1,)))
    assert takes_columns(str(path), model, Preprocessing(), ColumnChoice())
    assert open_data(str(path), graph=model).records == 2
    path.write_bytes(end.join(["1,2", "3,4", ""]).encode())
    assert sum(part.rows for part in cut_parts(open_data(str(path)), None)) == 2
