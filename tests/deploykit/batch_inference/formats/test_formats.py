"""Each format gives back what went in, the same bytes for the same columns."""

import csv
import io
import json
import math

import numpy as np
import pyarrow.parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deploykit.batch_inference.formats import csv as csv_format
from deploykit.batch_inference.formats import npz, parquet
from deploykit.batch_inference.formats.part_table import PartTable

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
           "float16", "float32", "float64")  # fmt: skip
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
NAMES = st.text("abc_/.é ", min_size=1, max_size=6)
READABLE = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\\"), max_size=8
).map(str.encode)
BYTES = st.binary(max_size=8)
FEW = settings(deadline=None, max_examples=60)


@st.composite
def tables(draw, dtypes=(*NUMBERS, "string"), texts=BYTES):
    """Return columns of some rows."""
    rows = draw(st.integers(0, 5))
    found = {}
    for name in draw(st.lists(NAMES, max_size=3, unique=True)):
        dtype, shape = draw(st.sampled_from(dtypes)), (rows, *draw(SHAPES))
        if dtype == "string":
            count = math.prod(shape)
            flat = np.empty(count, object)
            flat[:] = draw(st.lists(texts, min_size=count, max_size=count))
            found[name] = flat.reshape(shape)
        else:
            found[name] = draw(hnp.arrays(dtype, shape))
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


def written(module, columns):
    content = b"".join(module.pieces(columns))
    assert content == b"".join(module.pieces({k: v.copy() for k, v in columns.items()}))
    return content


def from_npz(content, names):
    """Return columns, texts with what their lengths say stands at their ends."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = dict(file)
    found = {}
    for name in names:
        found[name] = arrays[name]
        if arrays[name].dtype.kind == "S":
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


@FEW
@given(tables())
def test_npz_gives_back_all_numbers_and_bytes(columns):
    assert same(from_npz(written(npz, columns), columns), as_bytes(columns))


@FEW
@given(tables())
def test_parquet_gives_back_all_numbers_and_bytes(columns):
    assert same(from_parquet(written(parquet, columns)), columns)


@FEW
@given(tables(texts=READABLE))
def test_csv_gives_back_all_numbers_and_texts(columns):
    assert same(from_csv(written(csv_format, columns), columns), as_bytes(columns))
