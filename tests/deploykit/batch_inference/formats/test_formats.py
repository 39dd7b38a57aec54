"""Each format gives back what went in, the same bytes for the same columns."""

import csv
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deploykit.batch_inference.formats import binary_formats, text_formats
from deploykit.batch_inference.formats.binary_formats import record_features, tfrecord_pieces
from deploykit.batch_inference.formats.part_table import (
    PartTable,
    features_of,
    format_named,
    texts_of,
)
from deploykit.batch_inference.infer_task import FORMATS, PartDone
from deploykit.batch_inference.results_index import index_document
from deploykit.data.data import open_data
from deploykit.data.pipeline import Pipeline
from deploykit.data.preprocessing import Steps
from deploykit.data.reading import records
from deploykit.records.examples import LISTS, Feature
from deploykit.records.index import Index, Shard
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.data.made_up import batches_eagerly
from tests.deploykit.records.conftest import parsed
from tests.support import Containing, raises

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "float32", "float64")  # fmt: skip
NAMES = st.text("abc_/.é ", min_size=1, max_size=6)
READABLE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\\"), max_size=8
).map(str.encode)
BYTES = st.binary(max_size=8)
FEW = settings(max_examples=60)


@st.composite
def tables(draw, texts=BYTES, fewest=0, most=None):
    """Return columns of at least so many rows and sizes; `most` is the largest number of uint64."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=fewest, max_side=3)
    rows = draw(st.integers(fewest, 5))
    found = {}
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        dtype, shape = draw(st.sampled_from((*NUMBERS, "string"))), (rows, *draw(shapes))
        if dtype == "string":
            count = math.prod(shape)
            flat = np.empty(count, object)
            flat[:] = draw(st.lists(texts, min_size=count, max_size=count))
            found[name] = flat.reshape(shape)
        else:
            values = st.integers(0, most) if most and dtype == "uint64" else None
            found[name] = draw(hnp.arrays(dtype, shape, elements=values))
    table = PartTable()
    table.add([f"é{row}.jpg" for row in range(rows)], list(range(rows)), found)
    return table.columns()


def same(found, expected):
    """Say whether columns are the same, in type, shape and every bit; of NaN, only that it is."""
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        np.testing.assert_array_equal(found[name], array)
        if array.dtype.kind == "f":
            signs = (np.signbit(each[~np.isnan(array)]) for each in (found[name], array))
            np.testing.assert_array_equal(*signs)
    return True


def as_bytes(columns):
    """Return columns whose texts are bytes, all of them."""
    encode = np.frompyfunc(lambda each: each if isinstance(each, bytes) else each.encode(), 1, 1)
    return {
        k: encode(v).astype(object).reshape(v.shape) if v.dtype == object else v
        for k, v in columns.items()
    }


def written(name, columns):
    pieces = format_named(name)
    content = b"".join(pieces(columns))
    assert content == b"".join(pieces({k: v.copy() for k, v in columns.items()}))
    return content


def from_npz(content, names):
    """Return columns, texts with what their lengths say stands at their ends."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = dict(file)
    found = {}
    for name in names:
        found[name] = arrays[name]
        if arrays[name].dtype.kind == "U":
            found[name] = arrays[name].astype(object)
        elif arrays[name].dtype.kind == "S":
            found[name] = arrays[name].astype(object)
            lengths = arrays.get(f"{name}_length", np.zeros(found[name].shape, np.int64))
            fill = np.frompyfunc(lambda text, size: text.ljust(size, b"\0"), 2, 1)
            found[name] = np.array(fill(found[name], lengths), object).reshape(lengths.shape)
    return found


def from_parquet(content):
    table = pyarrow.parquet.read_table(io.BytesIO(content))
    found = {}
    for name in table.column_names:
        column, metadata = table.column(name).combine_chunks(), table.field(name).metadata or {}
        if b"shape" in metadata:
            column = column.flatten()
        if str(column.type) in ("binary", "string"):
            flat = np.empty(len(column), object)
            flat[:] = column.to_pylist()
        else:
            flat = column.to_numpy(zero_copy_only=False)
        found[name] = flat.reshape(len(table), *json.loads(metadata.get(b"shape", b"[]")))
    return found


def from_csv(content, like):
    """Return columns, parsed as those of which one knows type and shape."""
    header, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
    found, place = {}, 0
    for name, array in like.items():
        inner = array.shape[1:]
        labels = [f"{name}[{','.join(map(str, at))}]" for at in np.ndindex(inner)]
        width = math.prod(inner)
        assert header[place : place + width] == (labels if inner else [name])
        flat = [text for line in lines for text in line[place : place + width]]
        place += width
        values = np.empty(len(flat), array.dtype)
        values[:] = [_parsed(text, array.dtype) for text in flat]
        found[name] = values.reshape(len(lines), *inner)
    assert {len(line) for line in (header, *lines)} == {place}
    return found


def _parsed(text, dtype):
    if dtype.kind == "O":
        return text.encode()
    if dtype.kind == "b":
        return {"True": True, "False": False}[text]
    return float(text) if dtype.kind == "f" else int(text)


@pytest.mark.parametrize(
    ("format_", "module", "name", "wrong"),
    [
        ("npz", binary_formats, "LENGTH", "_size"),  # so that texts lose the NULs at their ends
        ("csv", text_formats, "map", lambda _, values: [f"{each:.4g}" for each in values]),
        ("parquet", binary_formats, "SHAPE", "size"),  # so that rows are flat
        ("tfrecord", binary_formats, "texts_of",
         lambda array: [each[:3] for each in texts_of(array)]),
    ],
    ids=["npz", "csv", "parquet", "tfrecord"],
)  # fmt: skip
def test_what_a_format_loses_would_be_seen(format_, module, name, wrong, monkeypatch, tmp_path):
    columns = {
        "file": np.array(["é.jpg", "b"], object), "row": np.array([0, 1]),
        "x": np.array([[1 / 3, 2 / 3], [0, 1]], np.float32),
        "t": np.array([b"ab\0c\0", b""], object),
    }  # fmt: skip
    monkeypatch.setattr(module, name, wrong, raising=False)
    with pytest.raises((AssertionError, ValueError)):
        gives_back(format_, columns, tmp_path)


def gives_back(name, columns, folder):
    """Fail unless a format gives back what went in."""
    content = written(name, columns)
    if name == "npz":
        assert same(from_npz(content, columns), columns)
    elif name == "parquet":
        assert same(from_parquet(content), columns)
    elif name == "csv":
        assert same(from_csv(content, columns), as_bytes(columns))
    else:
        data = records_of(content, columns, folder)
        assert data.records == len(columns["row"])
        expected = as_bytes(as_records(columns))
        assert same(from_reader(data, expected), expected)
        by_tensorflow = parsed(folder)
        assert same({name: by_tensorflow[name] for name in expected}, expected)


@pytest.mark.sampled
@FEW
@given(tables())
def test_npz_gives_back_all_numbers_and_bytes(columns):
    gives_back("npz", columns, None)


@pytest.mark.sampled
@FEW
@given(tables())
def test_parquet_gives_back_all_numbers_and_bytes(columns):
    gives_back("parquet", columns, None)


@pytest.mark.sampled
@FEW
@given(tables(texts=READABLE))
def test_csv_gives_back_all_numbers_and_texts(columns):
    gives_back("csv", columns, None)


@pytest.mark.sampled
@settings(max_examples=30)
@given(tables(fewest=1, most=(1 << 63) - 1))
def test_records_give_back_all_numbers_and_bytes(tmp_path_factory, columns):
    gives_back("tfrecord", columns, tmp_path_factory.mktemp("records"))


def records_of(content, columns, folder):
    """Write a part and its index, and return what the next command takes them for."""
    name = "a-00000-of-00001.tfrecord"
    (folder / name).write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    rows = len(columns["row"])
    done = PartDone(0, name, rows, len(content), sha256, "", (), features_of(columns))
    made_of = {"model": {}, "data": {}, "options": {"format": "tfrecord"}, "parts": 1}
    (folder / "a.index.json").write_text(json.dumps(index_document("a", made_of, [done])))
    return open_data(str(folder))


def as_records(columns):
    """Return columns in the types that records have."""
    return {
        name: each.astype(np.int64) if each.dtype.name in ("uint32", "uint64") else each
        for name, each in columns.items()
    }


def from_reader(data, like):
    """Return columns, read record by record."""
    listed = [record for _, record in records(data, tuple(data.features))]
    found = {}
    for name, array in like.items():
        values = [each[name] for each in listed]
        if data.features[name].content == "raw":
            values = [np.frombuffer(each, array.dtype) for each in values]
        found[name] = np.empty(array.shape, array.dtype)
        for place, value in enumerate(values):
            found[name][place] = np.reshape(value, array.shape[1:])
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16", "string"])
def test_records_of_open_sizes_are_data_too(tmp_path, dtype):
    """Parts differ in a size, so that an index says that the rows are lists."""
    features = record_features({"x": Feature(dtype, (None, 2)), "y": Feature("bool")})
    assert features["x"].shape == (None,)
    assert (features["x"].content, features["y"].content) == (
        "" if dtype in LISTS else "raw", "raw"
    )  # fmt: skip
    rows = [np.arange(2 * size).reshape(size, 2) for size in (1, 3)]
    rows = [row.astype("S").astype(object) if dtype == "string" else row.astype(dtype)
            for row in rows]  # fmt: skip
    content = b"".join(
        b"".join(tfrecord_pieces({"x": row[None], "y": np.array([True])})) for row in rows
    )
    name = "a-00000-of-00001.tfrecord"
    (tmp_path / name).write_bytes(content)
    index = Index("a", features, (Shard(name, 2, len(content), "0" * 64),))
    (tmp_path / "a.index.json").write_text(index.text())
    data = open_data(str(tmp_path))
    pipeline = Pipeline(
        data, {"x:0": Steps("x", dtype=dtype), "y:0": Steps("y", dtype="bool")}, batch=2
    )
    (batch,) = batches_eagerly(pipeline)
    flat = [row.ravel() for row in rows]
    filler = b"" if dtype == "string" else 0
    assert batch["x:0"].tolist() == [[*flat[0], *[filler] * 4], [*flat[1]]]
    assert batch["y:0"].tolist() == [True, True]


@pytest.mark.parametrize("name", FORMATS)
def test_a_part_without_rows_is_a_file(name, tmp_path):
    columns = PartTable({"x": Feature("float32", (3,)), "t": Feature("string")}).columns()
    content = b"".join(format_named(name)(columns))
    assert len(content) == 0 if name in ("tfrecord", "jsonl") else content
    if name == "csv":
        assert content == b"file,row,x[0],x[1],x[2],t\r\n"
    elif content:
        gives_back(name, columns, tmp_path)


def test_labels_are_readable_in_parquet_and_texts_of_a_graph_are_bytes():
    texts = np.array([[b"cat", b"\xff"]], object)
    columns = {"file": np.array(["a"], object), "top_labels": texts, "x": texts}
    table = pyarrow.parquet.read_table(io.BytesIO(written("parquet", columns)))
    assert table.to_pydict() == {
        "file": ["a"], "top_labels": [["cat", "\\xff"]], "x": [[b"cat", b"\xff"]],
    }  # fmt: skip


def test_an_output_may_be_called_like_a_column_of_lengths():
    columns = {"x": np.array([b"a\0"], object), "x_length": np.array([5])}
    with np.load(io.BytesIO(written("npz", columns))) as file:
        assert {name: file[name].tolist() for name in file} == {
            "x": [b"a"], "x_length": [5], "x_length_": [2],
        }  # fmt: skip


def test_npz_tells_no_time():
    with zipfile.ZipFile(io.BytesIO(written("npz", {"x": np.arange(3)}))) as archive:
        assert [each.date_time for each in archive.infolist()] == [(1980, 1, 1, 0, 0, 0)]


def test_npz_names_texts_that_nobody_could_read(monkeypatch):
    monkeypatch.setattr(binary_formats, "_MAX_FILLED", 99)
    columns = {"x": np.array([b"a" * 10] * 10, object)}
    with raises(GraphError, "npz-texts-too-large", name="x", width=10):
        list(binary_formats.npz_pieces(columns))
    list(binary_formats.npz_pieces({"x": columns["x"][1:]}))


@pytest.mark.parametrize(
    ("name", "code"), [("parquet", "parquet-type"), ("tfrecord", "record-type")]
)
def test_complex_numbers_are_refused_with_a_way_out(name, code):
    columns = {"x": np.array([1j], np.complex64)}
    with raises(GraphError, code, name="x", dtype="complex64"):
        list(format_named(name)(columns))
    gives_back("npz", columns, None)


def test_a_number_that_no_record_holds_is_named():
    with raises(GraphError, "record-number", name="x", got=9223372036854775808):
        list(tfrecord_pieces({"x": np.array([1 << 63], np.uint64)}))


def test_a_format_that_is_none_is_named():
    with raises(GraphError, "not-a-results-format", name="npy"):
        format_named("npy")


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    others = Containing("csv, jsonl, tfrecord, npz")
    with raises(GraphError, "format-package-missing", otherwise=others):
        format_named("parquet")
    assert format_named("npz")


def test_another_process_writes_the_same_bytes():
    """With another seed for hashes, and in another time zone."""
    code = (
        "import hashlib, numpy as np\n"
        "from deploykit.batch_inference.formats.part_table import format_named\n"
        "columns = {'file': np.array(['a', 'é'], object), 'row': np.array([0, 1]),\n"
        "           'x': np.array([[.1, .2], [3, 4]], np.float32)}\n"
        "for name in ('npz', 'parquet', 'tfrecord', 'csv'):\n"
        "    print(hashlib.sha256(b''.join(format_named(name)(columns))).hexdigest())\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "TZ": zone},
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }  # fmt: skip
    assert len(found) == 1
    assert len(found.pop().split()) == 4
