"""Tables as arrays by column: types, gaps, headers, and what is damaged."""

import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from deploykit.storage.arrays import load_data
from deploykit.storage.tables import is_table
from deploykit.transforms.core.errors import GraphError


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
    assert "column 'gap' is not used: it holds no value in row 1" in caplog.text
    assert "column 'ragged' is not used: it holds lists of several lengths" in caplog.text


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
        ("a,b\n1,x\n2\n", "row 2 has 1 values, but the header 2 names"),
        ("a,a\nx,y\n", "two columns have the same name"),
        ('a\n"x\n', "not a CSV file in UTF-8"),
    ],
)
def test_a_damaged_csv_file_is_refused(text, said, tmp_path):
    with pytest.raises(GraphError, match=said):
        load_data(csv(tmp_path, text))


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = parquet(tmp_path, text=["a"] * 100)
    content = (tmp_path / "table.parquet").read_bytes()
    (tmp_path / "table.parquet").write_bytes(content[:-20])
    with pytest.raises(GraphError, match="not a Parquet file, or damaged"):
        load_data(path)


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch, tmp_path):
    path = parquet(tmp_path, text=["a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GraphError, match=r"install deploykit\[parquet\]"):
        load_data(path)
