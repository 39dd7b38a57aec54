"""Formats other than CSV: every reader finds the same rows and the same bad rows, or refuses."""

import gzip
import json
import pickle
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploykit.data import samples
from deploykit.records import images
from deploykit.storage.image_files import png
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import Example
from deploykit.transforms.ir.tfrecord import framed
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.deploykit.data.format_readers import (
    Here,
    Outcome,
    Reader,
    converted,
    inferred,
    loaded,
    outcome,
    requested,
)
from tests.deploykit.storage.tiny_images import ANIMATED_WEBP, AVIF, TIFF
from tests.deploykit.storage.tiny_images import GREY as OTHER_FORMATS

SCALAR = graph(x=("float32", (-1,)))
VECTOR = graph(x=("float32", (-1, 2)))
COLUMN = graph(x=("float32", (-1, 1)))
INT32 = graph(x=("int32", (-1,)))
BOOL = graph(x=("bool", (-1,)))
TEXT = graph(x=("string", (-1,)))

Write = Callable[[Path], object]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setattr(samples, "Worker", Here)
    monkeypatch.setattr(images, "Worker", Here)


@dataclass(frozen=True)
class Case:
    """A file, and what every reader finds in it."""

    name: str
    file: str
    content: bytes | Write
    model: Any = SCALAR
    rows: tuple[str, ...] = ()
    bad: Mapping[int | str, str] = field(default_factory=dict)
    refusal: str = ""
    labels: tuple[float, ...] | None = None
    differs: Mapping[str, tuple[Outcome, str]] = field(default_factory=dict)
    """What a reader finds instead, and why it differs today."""

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"

    def write(self, folder: Path) -> Path:
        """Write the file."""
        path = folder / self.file
        if isinstance(self.content, bytes):
            path.write_bytes(self.content)
        else:
            self.content(path)
        return path

    def expected(self, read: Reader) -> Outcome:
        """Return what a reader should find."""
        if read.__name__ in self.differs:
            return self.differs[read.__name__][0]
        if self.refusal:
            return Outcome(refusal=self.refusal)
        if read in (loaded, requested) and self.bad:  # they end with the first bad row
            return Outcome(bad=dict([next(iter(self.bad.items()))]))
        if read is loaded and not self.rows:
            return Outcome(refusal="no-samples")
        labels = None if self.labels is None or read is inferred else [*self.labels]
        return Outcome([*self.rows], dict(self.bad), labels=labels)


def lines(*rows: object) -> bytes:
    """Return JSON Lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def values(*items: object) -> bytes:
    """Return JSON Lines of a column x."""
    return lines(*({"x": item} for item in items))


def table(**columns: Any) -> Write:
    """Return what writes a Parquet file."""
    return lambda path: pq.write_table(pa.table(columns), path)


def only(refusal: str, why: str) -> tuple[Outcome, str]:
    """Return a refusal by one reader."""
    return Outcome(refusal=refusal), why


TABLES = [
    Case("plain", "a.jsonl", lines({"x": [1, 2], "label": 0}, {"x": [3, 4], "label": 1}), VECTOR,
         ("1 2", "3 4"), labels=(0, 1)),
    Case("NaN and infinity", "a.jsonl", b'{"x": NaN}\n{"x": -Infinity}\n', rows=("nan", "-inf")),
    Case("null", "a.jsonl", values(1, None, 3), rows=("1", "3"), bad={1: "null"}),
    Case("null in a list", "a.jsonl", values([1, 2], [1, None]), VECTOR, ("1 2",), {1: "null"}),
    Case("missing in a row", "a.jsonl", lines({"x": 1}, {"y": 1}), rows=("1",), bad={1: "null"}),
    Case("null in one of two columns", "a.jsonl", lines({"a": 1, "b": 2}, {"a": None, "b": 4}),
         refusal="column-missing", differs={"loaded": only("unknown-name", "its own words")}),
    Case("missing column", "a.jsonl", lines({"a": 1, "b": 2}), refusal="column-missing",
         differs={"loaded": only("unknown-name", "its own words")}),
    Case("extra columns", "a.jsonl", lines({"x": 1, "b": 2, "c": "t", "d": None}), rows=("1",)),
    Case("one wrong width", "a.jsonl", values([1, 2], [1, 2, 3]), VECTOR, ("1 2",), {1: "width"}),
    Case("all of the wrong width", "a.jsonl", values([1, 2, 3]), VECTOR, bad={0: "width"},
         differs={"loaded": only("data-shape", "the shape of the whole array is compared")}),
    Case("beyond float32", "a.jsonl", values(1e39, 2), rows=("2",), bad={0: "value"}),
    Case("beyond float64", "a.jsonl", b'{"x": 1e400}\n{"x": 2}\n', rows=("inf", "2")),
    Case("beyond int32", "a.jsonl", values(1, 2**40), INT32, ("1",), {1: "value"}),
    Case("fraction for an integer", "a.jsonl", values(1, 2.5), INT32, ("1",), {1: "value"}),
    Case("whole float for an integer", "a.jsonl", values(1, 2.0), INT32, ("1", "2")),
    Case("strings for numbers", "a.jsonl", values("1", "2"), refusal="column-type",
         differs={"loaded": (Outcome(["1", "2"]), "numbers in strings are numbers")}),
    Case("one string", "a.jsonl", values(1, "2"), rows=("1",), bad={1: "type"}),
    Case("numbers for strings", "a.jsonl", values(1, 2), TEXT, refusal="column-type",
         differs={"loaded": only("does-not-fit", "its own words")}),
    Case("bool", "a.jsonl", values(True, False), rows=("1", "0")),
    Case("bool, then numbers", "a.jsonl", values(True, 2), rows=("1",), bad={1: "type"},
         differs={"loaded": (Outcome(["1", "2"]), "True is 1; infer has one type for a column")}),
    Case("numbers for bool", "a.jsonl", values(1, 2), BOOL, ("1",), {1: "value"}),
    Case("empty file", "a.jsonl", b""),
    Case("blank lines", "a.jsonl", b"\n\n"),
    Case("truncated", "a.jsonl", b'{"x": 1}\n{"x":', rows=("1",), bad={1: "json"}),
    Case("not an object", "a.jsonl", b'{"x": 1}\n5\n', rows=("1",), bad={1: "json"}),
    Case("carriage returns", "a.jsonl", b'{"x": 1}\r{"x": 2}\r', bad={0: "json"}),
    Case("CRLF and a byte-order mark", "a.jsonl", b'\xef\xbb\xbf{"x": 1}\r\n\r\n{"x": 2}\r\n',
         rows=("1", "2")),
    Case("a key twice", "a.jsonl", b'{"x": 1, "x": 2}\n', rows=("2",)),
    Case("Latin-1", "a.jsonl", b'{"x": "a"}\n{"x": "\xe9"}\n', TEXT, ("a",), {1: "json"}),
    Case("half a character", "a.jsonl", values("a", "\ud800"), TEXT, ("a",), {1: "text"}),
    Case("names", "\u00fc 1.jsonl", lines({"gr\u00f6\u00dfe": 1}),
         graph(**{"gr\u00f6\u00dfe": ("float32", (-1,))}), ("1",)),
    Case("Parquet in it", "a.jsonl", table(x=[1.0]), refusal="damaged-or-not",
         differs={"loaded": (Outcome(bad={0: "json"}), "lines are parsed at once")}),
    Case("lists that differ in length", "a.jsonl", values([1, 2], [3]),
         graph(x=("float32", (-1, -1))), ("1 2", "3 0"),
         differs={"loaded": (Outcome(bad={1: "width"}), "arrays are not padded")}),
    Case("a flat list for two axes", "a.jsonl", values([1, 2, 3, 4]),
         graph(x=("float32", (-1, 2, 2))), ("1 2 3 4",),
         differs={"loaded": only("data-shape", "arrays are not reshaped")}),
    Case("array of objects", "a.json", json.dumps([{"x": 1}, {"x": 2}]).encode(),
         rows=("1", "2")),
    Case("null in the array", "a.json", json.dumps([{"x": 1}, None]).encode(), rows=("1",),
         bad={1: "null"}, differs={"loaded": (Outcome(bad={1: "json"}), "null is not an object")}),
    Case("empty array", "a.json", b"[]"),
    Case("one object", "a.json", b'{"x": 1}', rows=("1",)),
    Case("an object of columns", "a.json", b'{"x":\n[1, 2]}', refusal="json-columns"),
    Case("packed", "a.jsonl.gz", gzip.compress(values(1, 2)), rows=("1", "2")),
    Case("packed and truncated", "a.jsonl.gz", gzip.compress(values(1, 2))[:-12],
         refusal="damaged-or-not"),
    Case("wrong extension", "a.txt", values(1, 2), refusal="data-end-unknown"),
    Case("plain", "a.parquet", table(x=[[1.0, 2.0], [3.0, 4.0]], label=[0, 1]), VECTOR,
         ("1 2", "3 4"), labels=(0, 1)),
    Case("NaN and infinity", "a.parquet", table(x=[np.nan, -np.inf]), rows=("nan", "-inf")),
    Case("null", "a.parquet", table(x=[1.0, None, 3.0]), rows=("1", "3"), bad={1: "null"}),
    Case("null in an unused column", "a.parquet", table(x=[1.0, 2.0], y=[None, 1]),
         rows=("1", "2")),
    Case("null in one of two columns", "a.parquet", table(a=[1.0, None], b=[1, 2]),
         refusal="column-missing", differs={"loaded": only("unknown-name", "its own words")}),
    Case("null in a list", "a.parquet", table(x=[[1.0, 2.0], [1.0, None]]), VECTOR, ("1 2",),
         {1: "null"}),
    Case("null in the labels", "a.parquet", table(x=[1.0, 2.0], label=[0, None]),
         rows=("1", "2"),
         differs={"loaded": (Outcome(bad={1: "null"}), "infer does not read labels")}),
    Case("missing column", "a.parquet", table(a=[1.0], b=[2.0]), refusal="column-missing",
         differs={"loaded": only("unknown-name", "its own words")}),
    Case("one wrong width", "a.parquet", table(x=[[1.0, 2.0], [1.0]]), VECTOR, ("1 2",),
         {1: "width"}),
    Case("beyond float32", "a.parquet", table(x=[1e39, 1.0]), rows=("1",), bad={0: "value"}),
    Case("beyond int32", "a.parquet", table(x=[1, 2**40]), INT32, ("1",), {1: "value"}),
    Case("fraction for an integer", "a.parquet", table(x=[1.0, 1.5]), INT32, ("1",),
         {1: "value"}),
    Case("strings for numbers", "a.parquet", table(x=["1", "2"]), refusal="column-type",
         differs={"loaded": (Outcome(["1", "2"]), "numbers in strings are numbers")}),
    Case("bool", "a.parquet", table(x=[True, False]), rows=("1", "0")),
    Case("uint8", "a.parquet", table(x=pa.array([1, 255], pa.uint8())), rows=("1", "255")),
    Case("decimals", "a.parquet", table(x=[Decimal("1.5"), Decimal(2)]), rows=("1.5", "2")),
    Case("whole decimals", "a.parquet", table(x=[Decimal(1), Decimal(2)]), INT32, ("1", "2")),
    Case("dictionary", "a.parquet", table(x=pa.array(["a", "b"]).dictionary_encode()), TEXT,
         ("a", "b")),
    Case("dates", "a.parquet", table(x=pa.array([1, 2], pa.date32())), refusal="column-type",
         differs={"loaded": (Outcome(bad={0: "type"}), "its own words")}),
    Case("lists of a fixed size", "a.parquet",
         table(x=pa.array([[1, 2]], pa.list_(pa.float32(), 2))), VECTOR, ("1 2",)),
    Case("values for [?, 1]", "a.parquet", table(x=[1.0, 2.0]), COLUMN, ("1", "2")),
    Case("empty file", "a.parquet", b"", refusal="parquet-empty"),
    Case("zero rows", "a.parquet", table(x=pa.array([], pa.float32()))),
    Case("truncated", "a.parquet",
         lambda path: (table(x=[1.0])(path), path.write_bytes(path.read_bytes()[:-9])),
         refusal="damaged-or-not"),
]  # fmt: skip


def ids(cases: list[Case]) -> list[str]:
    """Return the names of cases."""
    return list(map(str, cases))


def check(case: Case, read: Reader, folder: Path) -> None:
    """Compare what a reader finds with what is expected."""
    assert outcome(read, case.write(folder), case.model) == case.expected(read)


@pytest.mark.parametrize("read", [loaded, inferred])
@pytest.mark.parametrize("case", TABLES, ids=ids(TABLES))
def test_tables(case, read, tmp_path):
    check(case, read, tmp_path)


X = np.array([[1, 2], [3, 4]], np.float32)
BOTH = ("1 2", "3 4")
INTS = graph(x=("int32", (-1, 2)))
ARRAY_READERS = [converted, loaded, inferred, requested]


def arrays(**named: Any) -> Write:
    """Return what writes a .npz file."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, **named)

    return write


def array(value: Any) -> Write:
    """Return what writes a .npy file."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, value)

    return write


def stored(*rows: str) -> tuple[Outcome, str]:
    """Return what `records convert` writes of values that no model has checked."""
    return Outcome([*rows]), "records are written without a model"


EXTRA = only("unknown-name", "predict takes inputs alone")
ARRAYS = [
    Case("labels", "a.npz", arrays(x=X, label=[0, 1]), VECTOR, BOTH, labels=(0, 1),
         differs={"requested": EXTRA}),
    Case("NaN and infinity", "a.npz", arrays(x=X * [np.nan, np.inf]), VECTOR,
         ("nan inf", "nan inf")),
    Case("float64", "a.npz", arrays(x=X.astype(float)), VECTOR, BOTH),
    Case("float16", "a.npz", arrays(x=X.astype(np.float16)), VECTOR, BOTH),
    Case("beyond float32", "a.npz", arrays(x=[[1, 2], [1e39, 4]]), VECTOR, ("1 2",),
         {1: "value"}, differs={"converted": stored("1 2", "1e+39 4")}),
    Case("beyond int32", "a.npz", arrays(x=[[1, 2], [2**40, 4]]), INTS, ("1 2",), {1: "value"},
         differs={"converted": stored("1 2", "1.09951e+12 4")}),
    Case("fraction for an integer", "a.npz", arrays(x=[[1, 2], [1.5, 4]]), INTS, ("1 2",),
         {1: "value"},
         differs={"converted": stored("1 2", "1.5 4"),
                  "inferred": (Outcome(bad={1: "value"}), "all values are checked first"),
                  "requested": only("does-not-fit", "floats are not integers")}),
    Case("uint8", "a.npz", arrays(x=X.astype(np.uint8)), VECTOR, BOTH),
    Case("bool", "a.npz", arrays(x=X > 2), VECTOR, ("0 0", "1 1")),
    Case("big-endian", "a.npz", arrays(x=X.astype(">f4"), label=np.array([0, 1], ">i8")), VECTOR,
         BOTH, labels=(0, 1), differs={"requested": EXTRA}),
    Case("Fortran order", "a.npz", arrays(x=np.asfortranarray(X)), VECTOR, BOTH),
    Case("packed", "a.npz", lambda path: np.savez_compressed(path, x=X), VECTOR, BOTH),
    Case("texts", "a.npz", arrays(x=["\u00e4", "b"]), TEXT, ("\u00e4", "b")),
    Case("bytes", "a.npz", arrays(x=[b"a", b"b"]), TEXT, ("a", "b")),
    Case("strings for numbers", "a.npz", arrays(x=[["1", "2"]]), VECTOR,
         refusal="preprocess-type-between",
         differs={"converted": stored("1 2"),
                  "loaded": (Outcome(["1 2"]), "numbers in strings are numbers"),
                  "requested": only("does-not-fit", "its own words")}),
    Case("half a character", "a.npz", arrays(x=["a", "\ud800"]), TEXT, ("a",), {1: "text"},
         differs={"converted": only("array-text-surrogate", "an array is whole"),
                  "loaded": (Outcome(["a", "\ud800"]), "texts are not checked"),
                  "requested": (Outcome(["a", "\ud800"]), "texts are not checked")}),
    Case("bytes with zeros", "a.npz", arrays(x=[b"a\0b", b"c"]), TEXT, ("a\0b", "c"),
         differs={"loaded": (Outcome(["a\0b", "c\0\0"]), "bytes of one width keep it")}),
    Case("class names", "a.npz", arrays(x=X, labels=["b", "a"]), VECTOR, BOTH,
         labels=(1, 0), differs={"requested": EXTRA}),
    Case("objects", "a.npz", arrays(x=np.array([1, "a"], object)), VECTOR,
         refusal="array-problem"),
    Case("unused objects", "a.npz", arrays(x=X, y=np.array([1, "a"], object)), VECTOR,
         refusal="array-problem"),
    Case("structured", "a.npz", arrays(x=np.zeros(2, [("a", "f4")])), VECTOR,
         refusal="array-problem"),
    Case("complex", "a.npz", arrays(x=X.astype(complex)), VECTOR, refusal="does-not-fit",
         differs={"converted": only("array-type-not-storable", "no model")}),
    Case("extra array", "a.npz", arrays(x=X, y=[1, 2]), VECTOR, BOTH,
         differs={"requested": EXTRA}),
    Case("extra scalar", "a.npz", arrays(x=X, scale=3.0), VECTOR, BOTH,
         differs={"converted": only("arrays-expected", "all arrays are stored"),
                  "requested": EXTRA}),
    Case("extra array of another length", "a.npz", arrays(x=X, names=["a", "b", "c"]), VECTOR,
         refusal="sample-counts-differ",
         differs={"converted": only("arrays-expected", "all arrays are stored"),
                  "loaded": (Outcome([*BOTH]), "arrays that are not inputs are not compared"),
                  "requested": EXTRA}),
    Case("no array of the name", "a.npz", arrays(a=X, b=X), VECTOR, refusal="unknown-name",
         differs={"converted": stored(*BOTH),
                  "inferred": only("feature-missing", "its own words")}),
    Case("another name", "a.npz", arrays(a=X), VECTOR, BOTH, differs={"requested": EXTRA}),
    Case("wrong width", "a.npz", arrays(x=[[1.0, 2, 3]]), VECTOR, refusal="data-shape",
         differs={"converted": stored("1 2 3"),
                  "inferred": only("does-not-fit", "its own words"),
                  "requested": only("value-shape", "its own words")}),
    Case("values for [?, 1]", "a.npz", arrays(x=[1.0, 2.0]), COLUMN, ("1", "2"),
         differs={"inferred": only("does-not-fit", "only columns of tables become rows"),
                  "requested": only("value-shape", "one axis is one sample")}),
    Case("names", "\u00fc 1.npz", arrays(**{"gr\u00f6\u00dfe": X}),
         graph(**{"gr\u00f6\u00dfe": ("float32", (-1, 2))}), BOTH),
    Case("zero rows", "a.npz", arrays(x=X[:0]), VECTOR),
    Case("empty file", "a.npz", b"", VECTOR, refusal="damaged-or-not",
         differs={"converted": only("nothing-to-convert", "the kind is not known")}),
    Case("truncated", "a.npz",
         lambda path: (arrays(x=X)(path), path.write_bytes(path.read_bytes()[:-30])), VECTOR,
         refusal="damaged-or-not"),
    Case("upper case", "A.NPZ", arrays(x=X), VECTOR, BOTH),
    Case("another extension", "a.dat", arrays(x=X), VECTOR, BOTH,
         differs={"requested": only("not-npy-or-image", "a name states the kind")}),
    Case("a single array", "a.npz", array(X), VECTOR, refusal="single-array-given"),
    Case("plain", "a.npy", array(X), VECTOR, refusal="single-array-given",
         differs={"requested": (Outcome([*BOTH]), "a request takes an array for each input")}),
    Case("big-endian, upper case", "A.NPY", array(X.astype(">f4")), VECTOR,
         refusal="single-array-given",
         differs={"requested": (Outcome([*BOTH]), "a request takes an array for each input")}),
    Case("objects", "a.npy", array(np.array([1, "a"], object)), VECTOR,
         refusal="single-array-given",
         differs={"requested": only("array-problem", "it takes other arrays")}),
    Case("beyond float32", "a.npy", array([[1e39, 2]]), VECTOR, refusal="single-array-given",
         differs={"requested": (Outcome(bad={0: "value"}), "it takes other arrays")}),
    Case("arrays", "a.npy", arrays(x=X), VECTOR, BOTH,
         differs={"requested": only("npz-given", "a name states the kind")}),
]  # fmt: skip


@pytest.mark.parametrize("read", ARRAY_READERS)
@pytest.mark.parametrize("case", ARRAYS, ids=ids(ARRAYS))
def test_arrays(case, read, tmp_path):
    check(case, read, tmp_path)


def record(**features: list[Any]) -> bytes:
    """Return a framed Example."""
    result = Example()
    for name, listed in features.items():
        kinds = {bytes: "bytes_list", int: "int64_list", float: "float_list"}
        kind = kinds[type(listed[0])] if listed else "float_list"
        getattr(result.features.feature[name], kind).value.extend(listed)
    return framed(result.SerializeToString())


ONE, TWO = record(x=[1.0, 2.0], label=[0]), record(x=[3.0, 4.0], label=[1])
RECORDS = [
    Case("plain", "a.tfrecord", ONE + TWO, VECTOR, BOTH, labels=(0, 1)),
    Case("packed", "a.tfrecord.gz", gzip.compress(ONE + TWO), VECTOR, BOTH, labels=(0, 1)),
    Case("NaN and infinity", "a.tfrecord", record(x=[np.nan, np.inf]), VECTOR, ("nan inf",)),
    Case("missing in a row", "a.tfrecord", record(x=[1.0, 2.0]) + record(y=[1.0]), VECTOR,
         ("1 2",), {1: "missing"}),
    Case("missing feature", "a.tfrecord", record(a=[1.0], b=[2.0]), refusal="feature-missing"),
    Case("extra feature", "a.tfrecord", record(x=[1.0, 2.0], b=[b"t"]), VECTOR, ("1 2",)),
    Case("wrong width", "a.tfrecord", record(x=[1.0, 2.0]) * 2 + record(x=[1.0]), VECTOR,
         ("1 2", "1 2"), {2: "width"}),
    Case("integers for floats", "a.tfrecord", record(x=[1.0, 2.0]) * 2 + record(x=[1, 2]), VECTOR,
         ("1 2", "1 2"), {2: "width"}),
    Case("all integers", "a.tfrecord", record(x=[1, 2]), VECTOR, ("1 2",)),
    Case("beyond int32", "a.tfrecord", record(x=[1, 2]) + record(x=[2**40, 2]), INTS, ("1 2",),
         {1: "value"}),
    Case("texts", "a.tfrecord", record(x=[b"a"]) + record(x="\u00e4".encode().split()), TEXT,
         ("a", "\u00e4")),
    Case("raw bytes", "a.tfrecord", record(x=[X[0].tobytes()]) * 2 + record(x=[b"\xff"]), VECTOR,
         ("1 2", "1 2"), {2: "record"}),
    Case("not an Example", "a.tfrecord", ONE + framed(b"\xff"), VECTOR, ("1 2",), {1: "record"}),
    Case("damaged", "a.tfrecord", ONE + TWO[:-1] + b"\0" + ONE, VECTOR, ("1 2", "1 2"),
         {1: "record"}),
    Case("truncated", "a.tfrecord", ONE + TWO[:-5], VECTOR, ("1 2",), {1: "record"}),
    Case("empty file", "a.tfrecord", b"", VECTOR),
    Case("wrong extension", "a.bin", ONE, VECTOR, refusal="data-end-unknown"),
]  # fmt: skip


@pytest.mark.parametrize("read", [loaded, inferred])
@pytest.mark.parametrize("case", RECORDS, ids=ids(RECORDS))
def test_records(case, read, tmp_path):
    check(case, read, tmp_path)


def test_no_records_are_written_from_records(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(ONE)
    assert outcome(converted, tmp_path / "a.tfrecord", VECTOR).refusal == "not-text"


PHOTO = graph(x=("float32", (-1, 4, 4, 3)))
GREY = png(np.full((4, 4), 7, np.uint8))
LARGE = png(np.full((9, 5), 7, np.uint8))
TWINS = {"a.png": GREY, "b.png": GREY}
SUM = "(4, 4, 3) 336"


def png_of(depth: int, colour: int, pixel: bytes) -> bytes:
    """Return a PNG image of 4x4 equal pixels."""
    head = struct.pack(">IIBBBBB", 4, 4, depth, colour, 0, 0, 0)
    body = zlib.compress((b"\0" + pixel * 4) * 4)
    chunks = [b"IHDR" + head, b"IDAT" + body, b"IEND"]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in chunks
    )


def folder(**files: bytes) -> Write:
    """Return what writes a folder of files."""

    def write(path: Path) -> None:
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)

    return write


PHOTOS = [
    Case("plain", "d", folder(**{"a.png": GREY}), PHOTO, (SUM,)),
    Case("classes", "d", folder(**{"0/a.png": GREY, "1/b.png": GREY}), PHOTO, (SUM, SUM),
         labels=(0, 1)),
    Case("labels.csv", "d", folder(**{**TWINS, "labels.csv": b"b.png,0\na.png,1\n"}), PHOTO,
         (SUM, SUM), labels=(1, 0)),
    Case("deep folders", "d", folder(**{"0/x/y/a.png": GREY}), PHOTO, (SUM,), labels=(0,)),
    Case("another size", "d", folder(**{"a.png": LARGE}), PHOTO, (SUM,)),
    Case("RGB", "d", folder(**{"a.png": png_of(8, 2, b"\7\7\7")}), PHOTO, (SUM,)),
    Case("RGBA", "d", folder(**{"a.png": png_of(8, 6, b"\7\7\7\1")}), PHOTO, (SUM,)),
    Case("16 bits", "d", folder(**{"a.png": png_of(16, 0, b"\7\7")}), PHOTO, (SUM,)),
    Case("no extension", "d", folder(a=GREY), PHOTO, (SUM,)),
    Case("upper case", "d", folder(**{"A.PNG": GREY}), PHOTO, (SUM,)),
    Case("truncated", "d", folder(**{"a.png": GREY, "b.png": GREY[:-20]}), PHOTO, (SUM,),
         {"b.png": "image"}),
    Case("empty file", "d", folder(**{"a.png": GREY, "b.png": b""}), PHOTO, (SUM,),
         {"b.png": "image"}),
    Case("text", "d", folder(**{"a.png": GREY, "b.jpg": b"text"}), PHOTO, (SUM,),
         {"b.jpg": "image"}),
    *(Case(name, "d", folder(a=content), PHOTO, (SUM,)) for name, content in OTHER_FORMATS.items()),
    Case("animated WebP", "d", folder(**{"a.png": GREY, "b.webp": ANIMATED_WEBP}), PHOTO, (SUM,),
         {"b.webp": "image"}),
    Case("AVIF", "d", folder(**{"a.png": GREY, "b.avif": AVIF}), PHOTO, (SUM,)),
    Case("AVIF named as JPEG", "d", folder(**{"a.png": GREY, "b.jpg": AVIF}), PHOTO, (SUM,),
         {"b.jpg": "image"}),
    Case("hidden", "d", folder(**{"a.png": GREY, ".b.png": b"", ".c/d.png": b""}), PHOTO, (SUM,)),
    Case("only hidden", "d", folder(**{".b.png": GREY}), PHOTO, refusal="data-folder-kind",
         differs={"converted": only("nothing-to-convert", "its own words")}),
]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("read", [converted, loaded, inferred])
@pytest.mark.parametrize("case", PHOTOS, ids=ids(PHOTOS))
def test_image_folders(case, read, tmp_path):
    expected = case.expected(read)
    if read is converted:
        expected = replace(expected, rows=["an image"] * len(expected.rows))
    assert outcome(read, case.write(tmp_path), case.model) == expected


@pytest.mark.parametrize("content", [GREY, GREY[:-20], b""])
def test_a_single_image_is_for_requests(content, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(content)
    found = outcome(requested, path, PHOTO)
    assert found.rows == ([SUM] if content == GREY else [])
    assert outcome(loaded, path, PHOTO).refusal == "data-end-unknown"
    assert outcome(inferred, path, PHOTO).refusal == "data-end-unknown"
    assert outcome(converted, path, PHOTO).refusal == "images-folder-expected"


@pytest.mark.parametrize("content", OTHER_FORMATS.values(), ids=OTHER_FORMATS)
def test_requests_take_the_images_that_folders_have(content, tmp_path):
    (tmp_path / "a").write_bytes(content)
    assert outcome(requested, tmp_path / "a", PHOTO).rows == [SUM]


def test_no_reader_gives_tensorflow_an_animated_webp(tmp_path):
    (tmp_path / "a").write_bytes(ANIMATED_WEBP)
    assert outcome(requested, tmp_path / "a", PHOTO).refusal == "image-animated"
    (found,) = images.Decoder().decode([ANIMATED_WEBP])
    assert found == str(GraphError("image-animated"))


def test_requests_take_no_image_that_tensorflow_does_not_decode(tmp_path):
    (tmp_path / "a.avif").write_bytes(AVIF)
    assert outcome(requested, tmp_path / "a.avif", PHOTO).refusal == "not-npy-or-image"


BATCH = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [3, 9]}
PICKLE = pickle.dumps(BATCH, 2)
PLANES = b"".join(bytes([label]) + bytes(3072) for label in (3, 9))
CIFAR = [
    Case("pickle", "data_batch_1", PICKLE, rows=("(32, 32, 3) 0",) * 2, labels=(3, 9)),
    Case("truncated", "data_batch_1", PICKLE[:-900], refusal="pickle-damaged"),
    Case("other objects", "data_batch_1", pickle.dumps({b"data": Path("a")}, 2),
         refusal="pickle-refused"),
    Case("wrong width", "data_batch_1", pickle.dumps({**BATCH, b"data": BATCH[b"data"][:, :5]}, 2),
         refusal="cifar-shape"),
    Case("float labels", "data_batch_1", pickle.dumps({**BATCH, b"labels": [3.0, 9.0]}, 2),
         refusal="cifar-labels"),
    Case("binary", "data_batch_1.bin", PLANES, rows=("(32, 32, 3) 0",) * 2, labels=(3, 9)),
    Case("label beyond the classes", "data_batch_1.bin", b"\xc8" + PLANES[1:],
         refusal="cifar-size"),
]  # fmt: skip


@pytest.mark.parametrize("case", CIFAR, ids=ids(CIFAR))
def test_cifar(case, tmp_path):
    path = case.write(tmp_path)
    assert outcome(converted, path, PHOTO) == case.expected(converted)
    for read in (loaded, inferred):
        assert outcome(read, path, PHOTO).refusal == "data-end-unknown"


FOLDERS = [
    ("CSV files", {"a.csv": b"1,2,0\n", "notes.txt": b"a", "sub/b.csv": b"3,4,1\n"},
     {"loaded": ("notes.txt", "sub/b.csv"), "inferred": ("notes.txt", "sub/b.csv")}),
    ("CSV files to convert", {"a.CSV": b"1,2,0\n", "b.npz": b"", "c.csv.gz": b""},
     {"converted": ("b.npz", "c.csv.gz")}),
    ("TFRecords", {"a.tfrecord": ONE, "labels.csv": b"", "sub/notes.txt": b"a"},
     {"loaded": ("labels.csv", "sub/notes.txt"), "inferred": ("labels.csv", "sub/notes.txt")}),
    ("tables", {"a.jsonl": values([1, 2]), "notes.txt": b"a", "sub/x.npz": b"", "_log": b""},
     {"inferred": ("notes.txt", "sub/x.npz")}),
    ("images", {"a.png": GREY, "notes.txt": b"a", "b.tif": TIFF, "b.avif": AVIF, "c/d.csv": b""},
     dict.fromkeys(("converted", "loaded", "inferred"),
                   ("notes.txt", "b.tif", "b.avif", "c/d.csv"))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("files", "read", "unread"),
    [
        pytest.param(files, read, of[read.__name__], id=f"{name}-{read.__name__}")
        for name, files, of in FOLDERS
        for read in (converted, loaded, inferred)
        if read.__name__ in of
    ],
)
def test_files_of_a_folder_that_are_not_read_are_named_once(files, read, unread, tmp_path, caplog):
    path = tmp_path / "d"
    folder(**files)(path)
    model = PHOTO if "a.png" in files else VECTOR
    for _ in range(2):
        found = outcome(read, path, model)
        assert len(found.rows) == 1
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    (said,) = [text for text in warnings if str(path) in text]
    assert f"({len(unread)})" in said or f"skipped {len(unread)} of" in said
    assert all(name in said for name in unread)
