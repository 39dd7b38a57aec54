"""Tables as arrays by column: types, gaps, headers, and what is damaged."""

import gzip
import json
import sys
from decimal import Decimal

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from deploykit.storage.arrays import load_data
from deploykit.storage.data_files import format_of
from deploykit.storage.tables import column, is_table
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.untrusted import files
from tests.support import because, raises, says, shows


def csv(tmp_path, text: str) -> str:
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    return str(tmp_path / "table.csv")


def parquet(tmp_path, **columns) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "table.parquet")
    return str(tmp_path / "table.parquet")


def test_the_columns_of_a_csv_file_have_types(tmp_path):
    path = csv(tmp_path, '\ufeffid, price,city\n1,2,"Åre, north"\n-2,1.5,b\n\n')
    found = load_data(path)
    assert {name: array.dtype.kind for name, array in found.items()} == {
        "id": "i", "price": "f", "city": "O",
    }  # fmt: skip
    assert found["id"].tolist() == [1, -2]
    assert found["price"].tolist() == [2.0, 1.5]
    assert found["city"].tolist() == ["Åre, north".encode(), b"b"]


def test_the_columns_of_a_parquet_file_have_types(tmp_path, caplog):
    caplog.set_level("INFO", "deploykit")
    path = parquet(
        tmp_path, flag=[True, False], half=pyarrow.array([0.5, 1.0], pyarrow.float32()),
        text=["a", "bå"], row=[[1, 2], [3, 4]], gap=[1, None], ragged=[[1], [1, 2]],
        raw=[b"\0", b""],
    )  # fmt: skip
    found = load_data(path)
    assert [*found] == ["flag", "half", "text", "row", "raw"]
    assert found["flag"].dtype == bool
    assert found["text"].tolist() == [b"a", "bå".encode()]
    assert found["raw"].tolist() == [b"\0", b""]
    np.testing.assert_array_equal(found["row"], [[1, 2], [3, 4]])
    missing, ragged = because("no-value-in-row", row=1), because("several-lengths")
    assert shows(caplog.text, "column-skipped", name="gap", what=missing)
    assert shows(caplog.text, "column-skipped", name="ragged", what=ragged)


@pytest.mark.parametrize(
    ("values", "row", "reason"),
    [
        ([1, 2**70], 1, "has an integer beyond 64 bits"),
        ([[1], [2**70]], 1, "has an integer beyond 64 bits"),
        ([1, [2]], 1, "has shape [1], and row 0 has []"),
        ([[1], [[2]]], 1, "has shape [1, 1], and row 0 has [1]"),
        ([[1, 2], [1]], 1, "has 1 values, and row 0 has 2"),
    ],
)
def test_the_row_and_the_reason_are_those_of_the_difference(values, row, reason, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"x": value}) + "\n" for value in values))
    with raises(GraphError, "table-row", number=row, reason=f"column 'x' {reason}"):
        load_data(path)["x"]


@pytest.mark.parametrize(
    ("texts", "kind"), [([["1.50", "2"], ["3", "4"]], "f"), ([["1", "2"], ["3", str(2**60)]], "i")]
)
@pytest.mark.parametrize("width", [None, 2])
def test_lists_of_decimals_are_numbers(texts, kind, width, tmp_path):
    scalar = pyarrow.decimal128(30, 2)
    type_ = pyarrow.list_(scalar) if width is None else pyarrow.list_(scalar, width)
    values = [[Decimal(text) for text in row] for row in texts]
    deep = pyarrow.array([[row] for row in values], pyarrow.list_(type_))
    found = load_data(parquet(tmp_path, x=pyarrow.array(values, type_), deep=deep))
    numbers = [[float(text) if kind == "f" else int(text) for text in row] for row in texts]
    assert (found["x"].dtype.kind, found["x"].tolist()) == (kind, numbers)
    assert found["deep"].tolist() == [[row] for row in numbers]


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("review\ngood\n", "text", True),
        ("a,b\n1,x\n", "text", True),
        ("a,b\n1,x\n", (), False),
        ("a,b\n1,2\n", "text", False),
        ("a,b\n1,2\n", (), False),  # lines of numbers, the last of which is the label
        ("a,b\n1,2\n", ("b",), True),
        ("1,2\n3,4\n", ("1",), False),
        ("", (), False),
    ],
)
def test_which_csv_files_have_columns_by_name(text, names, expected, tmp_path):
    takes_text, names = names == "text", () if names == "text" else names
    assert is_table(csv(tmp_path, text), names, takes_text) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,x\n2\n", says("csv-row", number=3, reason="it has 1 cell, expected 2")),
        ("a,a\nx,y\n", says("two-columns-same-name")),
        ('a\n"x\n', says("csv-quote-open", number=2)),
    ],
)
def test_a_damaged_csv_file_is_refused(text, said, tmp_path):
    with pytest.raises(GraphError, match=said):
        load_data(csv(tmp_path, text))


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = parquet(tmp_path, text=["a"] * 100)
    content = (tmp_path / "table.parquet").read_bytes()
    (tmp_path / "table.parquet").write_bytes(content[:-20])
    with raises(GraphError, "damaged-or-not", what="Parquet file"):
        load_data(path)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch, tmp_path):
    path = parquet(tmp_path, text=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GraphError, match=says("package-missing", extra="parquet")):
        load_data(path)


@pytest.mark.parametrize(
    "cells", [["01234", "00777"], ["1e5", "2.50"], ["18446744073709551615", "7"]]
)
def test_texts_are_the_cells_as_they_are_written(cells, tmp_path):
    table = load_data(csv(tmp_path, "zip,n\n" + "".join(f"{each},1\n" for each in cells)))
    assert column(table, "zip", is_text=True).tolist() == [each.encode() for each in cells]
    assert column(table, "zip", is_text=False).dtype.kind in "iuf"
    assert column({"zip": table["zip"]}, "zip", is_text=True) is table["zip"]  # not of a CSV file


def test_digits_beyond_int64_are_kept_and_underscores_make_texts(tmp_path):
    table = load_data(csv(tmp_path, "a,b\n18446744073709551615,1_0\n"))
    assert table["a"].tolist() == [2**64 - 1]
    assert table["b"].tolist() == [b"1_0"]


def test_a_long_cell_is_read(tmp_path):
    table = load_data(csv(tmp_path, f"a,b\n{'x' * 200_000},1\n"))
    assert len(table["a"][0]) == 200_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("id,label\n5,1\n", True), ("id,age,label\n5,3,1\n", False), ("id\n5\n", False)],
)
def test_one_name_beside_the_label_makes_columns(text, expected, tmp_path):
    assert is_table(csv(tmp_path, text), ("ids",), labels=("label", "labels")) is expected
    assert not is_table(csv(tmp_path, text), ("ids",))


def test_columns_of_parquet_keep_their_types_and_their_size(tmp_path):
    texts = ["a"] * 30_000 + ["b" * 2_000_000]  # of one width, they would take 60 GB
    small, half = [3] * 30_001, [0.5] * 30_001
    types = {"text": pyarrow.string(), "small": pyarrow.uint8(), "half": pyarrow.float32()}
    table = pyarrow.table({"text": texts, "small": small, "half": half}, pyarrow.schema(types))
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    found = load_data(tmp_path / "t.parquet")
    assert [str(found[name].dtype) for name in types] == ["object", "uint8", "float32"]
    assert len(found["text"][-1]) == 2_000_000


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path):
    table = pyarrow.table([[1], [2]], names=["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with raises(GraphError, "two-columns-same-name"):
        load_data(tmp_path / "t.parquet")


ROWS = [{"id": 2**53 + 1, "price": 1.5, "city": "\u00c5re", "row": [1, 2], "gap": 1},
        {"id": -2, "price": 2, "city": "b", "row": [3, 4]}]  # fmt: skip
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)
ARRAY = json.dumps(ROWS, indent=2)


@pytest.mark.parametrize(
    ("end", "text"),
    [(end, text) for text in (LINES, f"\ufeff \n{LINES}") for end in ("jsonl", "ndjson", "json")]
    + [("JSON", ARRAY), ("json", f"\ufeff\n{ARRAY}")],
)  # fmt: skip
@pytest.mark.parametrize("is_packed", [False, True])
def test_the_columns_of_json_have_types(tmp_path, caplog, end, text, is_packed):
    caplog.set_level("INFO", "deploykit")
    path = tmp_path / f"table.{end}{'.gz' if is_packed else ''}"
    path.write_bytes(gzip.compress(text.encode()) if is_packed else text.encode())
    found = load_data(path)
    assert {name: array.tolist() for name, array in found.items()} == {
        "id": [2**53 + 1, -2], "price": [1.5, 2.0], "city": ["\u00c5re".encode(), b"b"],
        "row": [[1, 2], [3, 4]],
    }  # fmt: skip
    missing = because("no-value-in-row", row=1)
    assert shows(caplog.text, "column-skipped", name="gap", what=missing)


def test_a_compressed_csv_file_is_read(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"))  # two members
    assert is_table(path, ["b"])
    assert {name: array.tolist() for name, array in load_data(path).items()} == {
        "a": [1, 3], "b": [2, 4],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("a.csv.gz", gzip.compress(b"a\n1\n", mtime=0)[:-9], "damaged-or-not"),
        ("a.csv.gz", b"a\n1\n", "damaged-or-not"),
        ("a.jsonl.gz", gzip.compress(b"{}\n" * 999, mtime=0)[:-30], "damaged-or-not"),
        ("a.jsonl", b'{"a": 1}\n[]\n', "unexpected"),
        ("a.jsonl", b'{"a": 1\n', "json-expected"),
        ("a.json", b'[{"a": 1},', "json-expected"),
    ],
)
def test_a_damaged_table_of_text_is_named(tmp_path, name, content, code):
    (tmp_path / name).write_bytes(content)
    with raises(GraphError, code) as caught:
        load_data(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}:")


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 20)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a\n" + b"0\n" * (1 << 20)))
    with raises(GraphError, "archive-bomb"):
        load_data(tmp_path / "a.csv.gz")


@pytest.mark.parametrize("end", [".tsv", ".csv.zst", ".csv.bz2", ".feather", ".xlsx", "", ".gz"])
@pytest.mark.parametrize("content", [b"x", b"PK\3\4" + bytes(40)])
def test_an_unknown_end_lists_those_that_are_read(tmp_path, end, content):
    path = tmp_path / f"data{end}"
    path.write_bytes(content)
    with raises(GraphError, "data-end-unknown") as caught:
        load_data(path)
    for known in caught.value.fields["known"]:  # the advice
        assert known == ".npz" or format_of(f"data{known}")


def test_an_npz_file_may_have_any_name(tmp_path):
    np.savez(tmp_path / "a.npz", x=[1, 2])
    (tmp_path / "a.npz").rename(tmp_path / "a.data")
    assert load_data(tmp_path / "a.data")["x"].tolist() == [1, 2]
