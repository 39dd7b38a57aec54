"""Outputs and copied columns of every type are read back from each format as they were."""

import csv
import datetime
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.batch_inference.formats.part_table import PartTable, format_named, in_numpy
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, raises

TEXTS = st.text(st.characters(codec="utf-8"), max_size=9)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2200, 1, 1))
KINDS = {
    "texts": (pa.string(), TEXTS),
    "ints": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "floats": (pa.float32(), FLOATS),
    "bools": (pa.bool_(), st.booleans()),
    "times": (pa.timestamp("us"), TIMES),
    "lists": (pa.list_(pa.int32()), st.lists(st.integers(-9, 9), max_size=3)),
    "records": (pa.struct([("a", pa.string())]), st.fixed_dictionaries({"a": TEXTS})),
}


def written(rows, type_, format_, scores=None):
    """Return the bytes of a part whose rows came in two batches."""
    table, half = PartTable(), len(rows) // 2
    scores = np.arange(len(rows), dtype=np.float32) if scores is None else scores
    for start, stop in ((0, half), (half, len(rows))):
        places = list(range(start, stop))
        kept = {"kept": pa.array(rows[start:stop], type_)}
        table.add(["f"] * len(places), places, {"score": scores[start:stop]}, kept)
    return b"".join(format_named(format_)(table.columns()))


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", ["parquet", "jsonl", "csv"])
def test_a_copied_column(kind, format_):
    type_, values = KINDS[kind]

    @settings(max_examples=15)
    @given(st.lists(st.none() | values, min_size=1, max_size=12))
    def check(rows):
        content = written(rows, type_, format_)
        if format_ == "parquet":
            table = pq.read_table(io.BytesIO(content))
            assert table.column_names == ["file", "row", "kept", "score"]
            assert table["kept"].type == type_
            assert table["kept"].to_pylist() == pa.array(rows, type_).to_pylist()
            return
        if format_ == "jsonl":
            found = [json.loads(line)["kept"] for line in content.decode().split("\n")[:-1]]
            if kind == "times":
                found = [value and datetime.datetime.fromisoformat(value) for value in found]
            if kind == "floats":
                found = [value if value is None else float(np.float32(value)) for value in found]
            assert found == rows
            return
        cells = [row["kept"] for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]
        if kind in ("lists", "records"):
            assert [json.loads(cell) if cell else None for cell in cells] == rows
        elif kind == "floats":  # the digits restore the exact float32
            assert [float(np.float32(cell)) if cell else None for cell in cells] == rows
        else:
            assert cells == ["" if row is None else str(row) for row in rows]

    check()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_json_has_the_numbers_of_outputs(dtype):
    scores = np.array([[0, 1], [1, 0.1], [0, 3]]).astype(dtype)
    content = written(["a", "b", "c"], pa.string(), "jsonl", scores)
    found = [json.loads(line)["score"] for line in content.splitlines()]
    assert np.array_equal(np.array(found).astype(dtype), scores)


def test_json_has_null_for_nan_and_no_complex_numbers():
    scores = np.array([np.nan, np.inf], np.float32)
    lines = written(["a", "b"], pa.string(), "jsonl", scores).splitlines()
    assert [json.loads(line)["score"] for line in lines] == [None, None]
    with raises(GraphError, "jsonl-type", name="score"):
        written(["a", "b"], pa.string(), "jsonl", scores.astype(np.complex64))


@pytest.mark.parametrize(
    ("rows", "type_"), [(["a", None], pa.string()), ([[1]], pa.list_(pa.int64()))]
)
def test_formats_of_numpy_refuse_nulls_and_lists(rows, type_):
    with raises(GraphError, "kept-column-type", name="id", got=Containing(), format="npz"):
        in_numpy("id", pa.array(rows, type_), "npz")
    assert in_numpy("id", pa.array([1, 2]), "npz").tolist() == [1, 2]
    assert in_numpy("id", pa.array(["a", "b"]), "npz").tolist() == [b"a", b"b"]
