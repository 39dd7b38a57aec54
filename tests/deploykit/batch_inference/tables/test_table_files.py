"""Files of tables: of a folder, of a pattern, and of an object store."""

import gzip
import io
import json
import subprocess
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploykit.batch_inference.reading.data_parts import fingerprint, source_name
from deploykit.batch_inference.tables.table_data import ColumnChoice, takes_columns
from deploykit.data.data import open_data
from deploykit.data.pipeline import pipeline_for
from deploykit.data.preprocessing import Preprocessing
from deploykit.data.reading import batches
from deploykit.storage.table_formats.table_files import table_files
from deploykit.storage.tables import load_table
from deploykit.transforms.common.errors import FileError, GraphError
from tests import pairwise
from tests.deploykit.batch_inference.tables.made_up_tables import (
    graph,
    opened,
    read,
    write_table,
)
from tests.deploykit.batch_inference.tables.object_store import object_store
from tests.support import Containing, raises, shows

MODEL = graph(x=("int64", (-1,)))


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    objects = {}
    for number, end in ((0, "csv"), (1, "parquet"), (2, "csv")):
        content = io.BytesIO()
        rows = list(range(10 * number, 10 * number + 10))
        if end == "csv":
            content.write("\n".join(map(str, ["x", *rows])).encode())
        else:
            pq.write_table(pa.table({"x": rows}), content)
        objects[f"data/{number}.{end}"] = content.getvalue()
    with object_store("bucket", objects) as options:
        yield options


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "files", "name"),
    [("s3://bucket/data/1.parquet", ["1.parquet"], "1"),
     ("s3://bucket/data/*.csv", ["0.csv", "2.csv"], "data"),
     ("s3://bucket/data/2.csv", ["2.csv"], "2")],
)  # fmt: skip
def test_an_object_store(store, path, files, name):
    data = opened(path + store, MODEL)
    good, bad = read(data)
    assert not bad
    assert list(dict.fromkeys(file for file, *_ in good)) == files
    numbers = [int(file[0]) for file in files]
    expected = np.concatenate([np.arange(10 * n, 10 * n + 10) for n in numbers])
    assert [values["x"] for *_, values, _ in good] == expected.tolist()
    assert source_name(data) == name
    assert fingerprint(data) == fingerprint(opened(path + store, MODEL))


@pytest.mark.sampled
@pytest.mark.parametrize("path", ["my data", "my data/*.csv"])
def test_names_in_an_object_store_may_contain_any_characters(store, path):
    objects = {f"my data/{name}.csv": b"x\n1\n" for name in ("a b", "c%20#", "d?e=1", "\u00e9")}
    with object_store("bucket", objects) as options:
        data = opened(f"s3://bucket/{path.replace(' ', '%20')}{options}", MODEL)
        good, bad = read(data)
    assert not bad
    assert [f"my data/{file}" for file, *_ in good] == sorted(objects)


def test_what_is_not_in_an_object_store_is_named(store):
    with raises(FileError, "file-action-failed"):
        table_files(f"s3://bucket/other.csv{store}")
    with raises(GraphError, "table-formats-several"):
        table_files(f"s3://bucket/data{store}")


def test_a_folder_without_tables_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    for path in (tmp_path, tmp_path / "*.csv"):
        with raises(FileError, "table-files-missing"):
            table_files(str(path))


def test_files_with_other_columns_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.5]}), tmp_path / "b.parquet")
    other = str(tmp_path / "a.parquet")
    with raises(GraphError, "column-differs", name="x", got="double", other=other):
        opened(tmp_path, MODEL)


def test_other_columns_of_parquet_files_may_differ(tmp_path):
    first = {"n": pa.array([None, None]), "x": [1, 2], "k": pa.array([None, None], pa.null())}
    second = {"k": ["a", "b"], "x": [3, 4], "extra": [1, 1], "n": [1.5, 2.5]}
    pq.write_table(pa.table(first), tmp_path / "a.parquet")
    pq.write_table(pa.table(second | {"n": ["s", "t"]}), tmp_path / "b.parquet")
    pq.write_table(pa.table(second), tmp_path / "c.parquet")
    good, bad = read(opened(tmp_path, MODEL, keep=["k"]))
    assert [(values["x"].item(), kept["k"]) for *_, values, kept in good] == [
        (1, None), (2, None), (3, "a"), (4, "b"), (3, "a"), (4, "b")
    ]  # fmt: skip
    assert not bad
    with raises(GraphError, "column-differs", name="n", expected="string"):
        opened(tmp_path, MODEL, keep=["n"])
    with raises(GraphError, "column-differs", name="extra", expected="missing"):
        opened(tmp_path, MODEL, keep=["extra"])


@pytest.mark.parametrize("path", ["b.parquet", ".", "*.parquet"])
@pytest.mark.parametrize("content", [b"PAR1", b"\xff" * 9, None])
def test_a_damaged_file_is_named_among_others(tmp_path, content, path):
    for name in ("a", "b", "c"):
        pq.write_table(pa.table({"x": [1]}), tmp_path / f"{name}.parquet")
    damaged = tmp_path / "b.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9] if content is None else content)
    with raises(GraphError, "damaged-or-not", what="parquet file", source=Containing("/b.parquet")):
        opened(tmp_path / path, MODEL)


def test_a_damaged_file_of_text_is_named_among_others(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": null}\n')
    (tmp_path / "b.jsonl").write_text('{"x": ' + "[" * 2000 + "]" * 2000 + "}\n")
    with raises(GraphError, "damaged-or-not", what="jsonl file", source=Containing("/b.jsonl")):
        opened(tmp_path, MODEL)
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "a.jsonl").write_text("x\n")
    with raises(GraphError, "damaged-or-not", what="jsonl file", source=tmp_path):
        opened(tmp_path, MODEL)


def test_an_open_quote_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text('x,y\n1,"a\n2,b\n')
    with pytest.raises(GraphError, match=r"a\.csv"):
        read(opened(tmp_path / "a.csv", MODEL))


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,x\n1,2\n")
    with raises(GraphError, "two-columns-same-name"):
        opened(tmp_path / "a.csv", MODEL)


@pytest.mark.parametrize("second", ["y,x\n2,1\n", "3,4\n", "x\n1\n", "x;y\n1;2\n"])
def test_a_csv_file_with_another_header_is_refused(tmp_path, second):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "b.csv").write_text(second)
    path = str(tmp_path)
    with raises(GraphError, "csv-files-differ", other=f"{path}/a.csv") as caught:
        opened(path, MODEL)
    assert "b.csv" in str(caught.value)


def test_a_header_in_other_quotes_and_an_empty_file_are_the_same(tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    (tmp_path / "c.csv").write_bytes(b'\xef\xbb\xbf"x", y\r\n3,4\r\n')
    good, bad = read(opened(tmp_path, MODEL))
    assert [int(values["x"]) for *_, values, _ in good] == [1, 3]
    assert not bad


@pytest.mark.sampled
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\r\n"])
@pytest.mark.parametrize("end", ["csv", "csv.gz"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("row", [b"1,2", b'7,"a,b"'])
def test_an_empty_file_among_others_has_no_rows(tmp_path, content, end, place, row):
    parts = [b"x,y\n" + row + b"\n"] * 2
    parts.insert(place, content)
    for number, part in enumerate(parts):
        packed = gzip.compress(part) if end.endswith("gz") and (part or place) else part
        (tmp_path / f"{number}.{end}").write_bytes(packed)
    assert takes_columns(str(tmp_path), MODEL, Preprocessing(), ColumnChoice())
    good, bad = read(opened(tmp_path, MODEL))
    assert ([values["x"] for *_, values, _ in good], bad) == ([int(row[:1])] * 2, {})
    for path in (tmp_path, tmp_path / f"*.{end}"):
        assert list(opened(path, MODEL).skipped) == [f"{place}.{end}"]
    if row == b"1,2":
        data = open_data(str(tmp_path))
        assert (data.header, data.skipped) == (True, (f"{place}.{end}",))
        assert [len(batch["x"]) for batch in batches(pipeline_for(data, None, epochs=1))] == [2]


def test_an_empty_parquet_file_among_others_is_skipped(tmp_path):
    for name in ("a", "c"):
        (tmp_path / f"{name}.parquet").write_bytes(b"")
    for path in (tmp_path, tmp_path / "*.parquet", tmp_path / "a.parquet"):
        with raises(GraphError, "parquet-empty", source=str(path)):
            opened(path, MODEL)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "b.parquet")
    for path in (tmp_path, tmp_path / "*.parquet"):
        data = opened(path, MODEL)
        assert ([values["x"] for *_, values, _ in read(data)[0]], data.counts) == ([1, 2], (2,))
        assert list(data.skipped) == ["a.parquet", "c.parquet"]


@pytest.mark.parametrize("end", ["jsonl", "json", "ndjson.gz"])
def test_json_lines_of_blanks_are_listed_as_skipped(tmp_path, end):
    for name, text in (("a", b"\xef\xbb\xbf\n"), ("b", b'{"x": 1}\n'), ("c", b""), ("d", b" \n")):
        packed = gzip.compress(text) if end.endswith("gz") else text
        (tmp_path / f"{name}.{end}").write_bytes(packed)
    assert list(opened(tmp_path, MODEL).skipped) == [f"{name}.{end}" for name in "acd"]


HEADERS = [  # the contents of CSV files without rows, and those that are listed as skipped
    ([b"x,y\n"], []), ([b"x,y"], []), ([b"\xef\xbb\xbfx,y\r\n\r\n"], []),
    ([b'"x","a\nb"\n'], []), ([b"x,y\n", b"x,y\n"], []), ([b"\n", b"x,y\n", b""], [0, 2]),
    ([b"other,y\n", b"other,y\n"], []), ([b"other,label\n", b""], [1]),
]  # fmt: skip


@pytest.mark.parametrize(("contents", "skipped"), HEADERS)
@pytest.mark.parametrize("type_", ["int64", "string", "float32"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, 4), (-1, 2, 2)])
def test_headers_without_rows_fit_any_input(tmp_path, contents, skipped, type_, shape):
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.csv").write_bytes(content)
    data = opened(tmp_path, graph(x=(type_, shape)))
    assert (data.records, read(data)) == (0, ([], {}))
    assert list(data.skipped) == [f"{number}.csv" for number in skipped]
    (feature,) = data.features.values()
    assert (feature.dtype, feature.shape) == (type_, shape[1:])
    with raises(GraphError, "unknown-name", name="gone"):
        opened(tmp_path, MODEL, {"x": "gone"})


def test_the_first_file_with_rows_states_the_types(tmp_path):
    for number, rows in enumerate(["", "b,5\n", "c,oops\n"]):
        (tmp_path / f"{number}.csv").write_text(f"id,value\n{rows}")
    good, bad = read(opened(tmp_path, graph(q=("int64", (-1,))), keep=["id"]))
    assert [(values["value"], kept["id"]) for *_, values, kept in good] == [(5, "b")]
    assert len(bad) == 1


@pytest.mark.parametrize("contents", [[b"", b""], [b"\n", b"\xef\xbb\xbf"], [b"\r\n\r\n", b""]])
def test_files_without_any_text_are_refused(tmp_path, contents):
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.csv").write_bytes(content)
    for function in (open_data, lambda path: opened(path, MODEL)):
        with raises(GraphError, "csv-empty", source=str(tmp_path)):
            function(str(tmp_path))


ROW, COLUMNS, UNEVEN, OTHER = "row", "columns", "uneven columns", "json-rows"
LONG = ",".join(["1"] * 600_000)  # above 1 MiB
DOCUMENTS = {  # the content of a file whose name ends in .json, and how it is read
    '{"x": 1}': ROW,
    '{"x": 1}\n\n': ROW,
    '{\n "x": 1,\n "y": [2, 3]\n}\n': ROW,
    '\ufeff\n {\n\n"x":\n1}': ROW,
    '{"x": 1\n}': ROW,
    '{"x": 1\n, "y": 2\n}': ROW,
    '{"x": 1\r\n, "y": "\\n\\r a"}\r\n': ROW,
    '{\r"x": 1,\r"y": [2]\r}\r': ROW,
    '{"y": [1,\n2], "x": 1}': ROW,
    '{"y": "\u00e9\u2028", "z": 1e400, \n"x": 1}': ROW,
    '{"x": 1, "y": [' + LONG + "]}": ROW,
    '{"x": 1, "yy": [' + LONG + "]}": ROW,
    '{"x": 1, "y": [' + LONG + "]\n}": ROW,
    '[{"x": 1}]': ROW,
    '{\n "x": [1, 2],\n "y": [3, 4]\n}': COLUMNS,
    '{\r "x": [1, 2],\r "y": [3, 4]\r}': COLUMNS,
    '{"x": {"0": 1, "1": 2}, "y": {"0": 3, "1": 4}}': COLUMNS,
    '\ufeff{"x": {"0": 1, "1": 2}, "y": {"1": 4, "0": 3}}': COLUMNS,
    '{"x": {"b": 1, "a": 2}, "y": {"a": 4, "b": 3}}': COLUMNS,
    '{"columns": ["x", "y"],\n "index": [0, 1],\n "data": [[1, 3], [2, 4]]}': COLUMNS,
    '{"columns": ["x", "y"], "index": [7, 8], "data": [[1, 3], [2, 4]]}': COLUMNS,
    '{"data": [[1, 3], [2, 4]], "columns": ["x", "y"]}': COLUMNS,
    '{"0": {"x": 1, "y": 3}, "1": {"y": 4, "x": 2}}': COLUMNS,
    '{"x": {"0": 1, "1": 2}, "y": {"0": 3, "1": 4' + " " * (1 << 20) + "}}": COLUMNS,
    '{\n "x": [1, 2],\n "y": [3, 4, 5]\n}': UNEVEN,
    '{"x": {"0": 1, "1": 2}, "y": {"0": 3}}': UNEVEN,
    '{"x": {"0": 1}, "y": {"0": 3, "1": 2}}': UNEVEN,
    '{"data": [{"x": 1}]}': OTHER,
    '{"schema": {"fields": []}, "data": [{"x": 1}]}': OTHER,
    '{\n "x": 1\n}\n{\n "x": 2\n}\n': OTHER,
    '{"x": 1\n}\n{"x": 2}\n': OTHER,
    "[1, 2]": OTHER,
    "[[1, 2], [3, 4]]": OTHER,
    '["a"]': OTHER,
    "[null]": OTHER,
    "5": OTHER,
    '"text"\n': OTHER,
    "null": OTHER,
}


@pytest.mark.parametrize(
    ("end", "text", "expected"),
    [
        *(("json", *document) for document in DOCUMENTS.items()),
        *pairwise.drawn(__name__, [("json.gz", *each) for each in DOCUMENTS.items()], 4, quick=5),
    ],
    ids=map(repr, range(2 * len(DOCUMENTS))),
)
def test_a_json_document_is_rows_or_refused_with_what_is_expected(tmp_path, end, text, expected):
    path = tmp_path / f"it's a.{end}"
    path.write_bytes(gzip.compress(text.encode()) if end == "json.gz" else text.encode())
    if expected == ROW:
        good, bad = read(opened(path, MODEL))
        assert ([values["x"] for *_, values, _ in good], bad) == ([1], {})
        assert load_table(path)["x"].tolist() == [1]
        return
    for function in (lambda: read(opened(path, MODEL)), lambda: load_table(path)):
        code = OTHER if expected == OTHER else "json-columns"
        with raises(GraphError, code, source=path) as caught:
            function()
    if expected != OTHER:
        command = caught.value.fields["command"].replace("OUT", "out")
        run = subprocess.run(["bash", "-c", command], check=False, cwd=tmp_path)
        assert (run.returncode == 0, (tmp_path / "out.json").exists()) == (expected == COLUMNS,) * 2
    if expected == COLUMNS:
        table = {
            name: values.tolist() for name, values in load_table(tmp_path / "out.json").items()
        }
        assert table == {"x": [1, 2], "y": [3, 4]}


def test_a_json_document_is_not_taken_for_lines_however_long_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("deploykit.storage.data_files.LONGEST_LINE", 3000)
    path = tmp_path / "a.json"
    row = json.dumps({"x": 1, "y": [1] * 600})
    path.write_text(row)
    assert load_table(path)["y"].shape == (1, 600)
    for text, code in ((json.dumps({"x": [1] * 2000}), "line-too-long"),
                       (json.dumps({"x": [1] * 2000}, indent=1), "json-rows")):  # fmt: skip
        path.write_text(text)
        with raises(GraphError, code):
            load_table(path)
    path.write_text("{\n" + f"{row}\n" * 9)
    good, bad = read(opened(path, MODEL))
    assert ([values["x"] for *_, values, _ in good], list(bad)) == ([1] * 9, [0])


@pytest.mark.parametrize(
    "first", ["null", " null ", "nullx", "5", "[]", "{", '{"x": 1,', '{"x": 1}{"x": 2}']
)
@pytest.mark.parametrize("end", ["json", "jsonl"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\r\n", "\ufeff\n"])
def test_a_line_that_is_no_object_is_a_bad_row_wherever_it_is(tmp_path, first, end, start):
    for lines in ([first, '{"x": 3}'], ['{"x": 3}', first]):
        if first == "[]" and lines[0] == first and end == "json":
            continue  # the start of an array
        (tmp_path / f"a.{end}").write_text(start + "\n".join(lines))
        good, bad = read(opened(tmp_path, MODEL))
        assert ([values["x"] for *_, values, _ in good], list(bad)) == ([3], [lines.index(first)])


@pytest.mark.slow
def test_a_large_table_whose_rows_end_in_carriage_returns_is_read(tmp_path):
    path = tmp_path / "a.csv"
    cell = b'"' + b"a" * (1 << 20) + b'"'
    path.write_bytes(b"x,y\r" + b"".join(b"%d,%b\r" % (n, cell) for n in range(66)))
    assert takes_columns(str(path), MODEL, Preprocessing(), ColumnChoice())
    assert [values["x"] for *_, values, _ in read(opened(path, MODEL))[0]] == [*range(66)]
    path.write_bytes(b"1,2\r" * (17 << 20))
    assert not takes_columns(str(path), MODEL, Preprocessing(), ColumnChoice())
    assert open_data(str(path)).width == 2


def test_json_next_to_other_tables_only_describes_them(tmp_path, caplog):
    (tmp_path / "notes.json").write_text('{"x": 7}\n')
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'[{"x": 8}]'))
    assert [values["x"] for *_, values, _ in read(opened(tmp_path, MODEL))[0]] == [8, 7]
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x\n1\n"))
    assert takes_columns(str(tmp_path), MODEL, Preprocessing(), ColumnChoice())
    assert [values["x"] for *_, values, _ in read(opened(tmp_path, MODEL))[0]] == [1]
    assert shows(caplog.text, "tables-not-read", count=2)
    assert "notes.json" in caplog.text
    with raises(GraphError, "table-formats-several"):  # of a pattern, all files are meant
        table_files(f"{tmp_path}/*")


def test_json_and_json_lines_are_one_table(tmp_path):
    for number, end in enumerate(("json", "jsonl", "ndjson", "json")):
        (tmp_path / f"{number}.{end}").write_text(f'{{"x": {number}}}\n')
    for path in (tmp_path, tmp_path / "*"):
        good, bad = read(opened(path, MODEL))
        assert ([values["x"] for *_, values, _ in good], bad) == ([0, 1, 2, 3], {})


def test_a_folder_is_a_table_by_the_files_that_are_read(tmp_path):
    def takes(path):
        return takes_columns(str(path), MODEL, Preprocessing(), ColumnChoice())

    for name in ("deep/A.CSV", ".hidden/b.csv", "_c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n1\n" if name == "deep/A.CSV" else "2\n1\n")
    assert takes(tmp_path)
    assert takes(tmp_path / "deep" / "A.CSV")
    assert [values["x"] for *_, values, _ in read(opened(tmp_path, MODEL))[0]] == [1]
    assert not takes(tmp_path / ".hidden")
    (tmp_path / "deep" / "A.CSV").unlink()
    assert not takes(tmp_path)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_than_commas_are_read(tmp_path, separator):
    (tmp_path / "a.csv").write_text(f'x{separator}review\n1{separator}"good{separator} really"\n')
    assert [values["x"] for *_, values, _ in read(opened(tmp_path / "a.csv", MODEL))[0]] == [1]
    (tmp_path / "c.csv").write_text(f"\ufeffmy{separator}review\ngood\n")
    texts = graph(x=("string", (-1,)))
    opened(tmp_path / "c.csv", texts)
    (tmp_path / "b.csv").write_text(f'"x{separator}"\n1{separator}\n')  # a name
    assert list(opened(tmp_path / "b.csv", texts).types) == [f"x{separator}".strip()]


def test_a_header_in_another_encoding_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,pr\xe9nom\n1,a\n")
    with raises(GraphError, "csv-row", number=1, reason="it is not UTF-8 text"):
        opened(tmp_path / "a.csv", MODEL)


@pytest.mark.parametrize("last", ["label", "labels", "amount", "", "3"])
def test_numbers_below_names_are_columns_by_name_unless_the_last_is_a_label(tmp_path, last):
    path = tmp_path / "a.csv"
    path.write_text(f"{'4' if last == '3' else 'id'},{last}\n1,10.5\n")
    found = takes_columns(str(path), graph(q=("float32", (-1, 1))), Preprocessing(), ColumnChoice())
    assert found == (last in ("amount", "label", "labels"))
    vector = graph(q=("float32", (-1, 3)), w=("float32", (-1, 1)))
    found = takes_columns(str(path), vector, Preprocessing(), ColumnChoice())
    assert found == (last == "amount")


def test_lists_of_dictionaries_in_several_row_groups(tmp_path):
    texts = pa.array([[["a", "b"]] * 6][0], pa.list_(pa.dictionary(pa.int32(), pa.string())))
    pq.write_table(pa.table({"v": texts}), tmp_path / "a.parquet", row_group_size=2)
    good, bad = read(opened(tmp_path / "a.parquet", graph(v=("string", (-1, -1)))))
    assert [list(values["v"]) for *_, values, _ in good] == [[b"a", b"b"]] * 6
    assert not bad


@pytest.mark.sampled
@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl", "csv.gz"])
@pytest.mark.parametrize("below", [".", "*/*/*.*", "day=2026-01-01/n=7/part 0."])
def test_folders_named_as_columns_are_columns(tmp_path, end, below):
    days = ["2026-01-01", None, "a b%"]
    for number, day in enumerate(days):
        name = "__HIVE_DEFAULT_PARTITION__" if day is None else quote(day)
        folder = tmp_path / f"day={name}" / f"n={number + 7}"
        folder.mkdir(parents=True)
        write_table(folder / f"part 0.{end}", pa.table({"x": [1.5, 2.5], "id": ["p", "q"]}))
    model = graph(x=("float32", (-1,)), m=("int64", (-1,)), t=("string", (-1,)))
    path = tmp_path / (below + end if below.endswith(".") and len(below) > 1 else below)
    data = opened(path, model, {"m": "n", "t": "id"}, keep=["day", "n", "id"])
    good, bad = read(data)
    assert not bad
    expected = [(x, n, day, n, id_) for n, day in zip((7, 8, 9), days, strict=True)
                for x, id_ in ((1.5, "p"), (2.5, "q"))]  # fmt: skip
    found = [(row["x"], row["n"], kept["day"], kept["n"], kept["id"]) for *_, row, kept in good]
    assert found == (expected if len(below) < 10 else expected[:2])
    types = {name: str(type_) for name, type_ in data.types.items()}
    assert (types["day"], types["n"]) == ("string", "int32")


def test_only_columns_of_folders_may_be_used_and_files_take_precedence(tmp_path):
    for number in (1, 2):
        folder = tmp_path / f"x={number}" / "k=9"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"k": ["own"], "z": [0.5]}), folder / "a.parquet")
    good, _ = read(opened(tmp_path, MODEL, keep=["k"]))
    assert [(values["x"].item(), kept["k"]) for *_, values, kept in good] == [
        (1, "own"),
        (2, "own"),
    ]
    (_, _, values, _), *_ = read(opened(tmp_path, graph(other=("float32", (-1,)))))[0]
    assert values == {"z": 0.5}  # the only column of numbers in the files
    with raises(GraphError, "unknown-name", name="q"):
        opened(tmp_path, MODEL, {"x": "q"})


def test_a_column_of_later_lines_takes_precedence_over_a_folder(tmp_path):
    folder = tmp_path / "x=5"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"z": 1}\n')
    (folder / "b.jsonl").write_text('{"z": 2, "x": 7}\n')
    good, bad = read(opened(tmp_path, MODEL))
    assert [int(values["x"]) for *_, values, _ in good] == [7]
    assert len(bad) == 1


def test_folders_above_a_path_state_only_columns_that_are_named(tmp_path):
    folder = tmp_path / "b=9" / "x=5"
    folder.mkdir(parents=True)
    path = write_table(folder / "a.parquet", pa.table({"z": ["t"]}))
    assert [values["x"] for *_, values, _ in read(opened(folder, MODEL))[0]] == [5]
    with raises(GraphError, "column-type", name="z"):
        opened(path, MODEL)
    good, _ = read(opened(path, MODEL, {"x": "x"}, keep=["b"]))
    assert [(values["x"], kept["b"]) for *_, values, kept in good] == [(5, 9)]


def test_names_and_values_of_folders_are_decoded(tmp_path):
    write_table(_made(tmp_path / "my%20x=1%2B") / "a.csv", pa.table({"x": [1]}))
    data = opened(tmp_path, MODEL, keep=["my x"])
    assert [kept["my x"] for *_, kept in read(data)[0]] == ["1+"]
    for name in ("k=%ff%fe", "%ff=1"):
        write_table(_made(tmp_path / "other" / name) / "a.csv", pa.table({"x": [1]}))
        with raises(GraphError, "partition-not-utf8", got=name):
            opened(tmp_path / "other", MODEL)
        (tmp_path / "other" / name).rename(tmp_path / f"{len(name)} plain %ff")


NULL = "__HIVE_DEFAULT_PARTITION__"
FOLDERS = [  # the names of the folders of one column, its Arrow type, and its values
    (["7", "-8", "0"], "int32", [7, -8, 0]),
    (["2147483647", "-2147483648"], "int32", [2**31 - 1, -(2**31)]),
    (["2147483648", "1"], "int64", [2**31, 1]),
    (["-9223372036854775808", "9223372036854775807"], "int64", [-(2**63), 2**63 - 1]),
    (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
    (["0.5", "2"], "double", [0.5, 2.0]),
    (["-1.50", ".25", "1E-3", "3."], "double", [-1.5, 0.25, 0.001, 3.0]),
    (["9007199254740993", "0.5"], "string", ["9007199254740993", "0.5"]),
    (["1e999"], "string", ["1e999"]),
    (["01", "12"], "string", ["01", "12"]),
    (["00.5", "1"], "string", ["00.5", "1"]),
    (["+4", "0x10", "1_0", "\u0663"], "string", ["+4", "0x10", "1_0", "\u0663"]),
    (["5", "DE", "2.5"], "string", ["5", "DE", "2.5"]),
    (["", "4", NULL], "int32", [None, 4, None]),
    (["", "D%3DE%2F", NULL], "string", [None, "D=E/", None]),
    ([NULL, ""], "string", [None, None]),
    (["%31", "2"], "int32", [1, 2]),
]


def _in_folders(tmp_path, names, end):
    for number, name in enumerate(names):
        folder = _made(tmp_path / f"{number}" / f"a%20b={name}")
        write_table(folder / f"part.{end}", pa.table({"x": [number]}))
    return tmp_path


@pytest.mark.parametrize("end", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize(("names", "type_", "values"), FOLDERS)
def test_a_column_of_folders_has_the_narrowest_type_of_all_values(
    tmp_path, names, type_, values, end
):
    path = _in_folders(tmp_path, names, end)
    data = opened(path, MODEL, keep=["a b"])
    good, bad = read(data)
    assert (str(data.types["a b"]), bad) == (type_, {})
    assert [kept["a b"] for *_, kept in good] == values


@pytest.mark.sampled
@pytest.mark.parametrize(("names", "type_", "values"), FOLDERS)
@pytest.mark.parametrize("dtype", ["float64", "int64", "int8", "string"])
def test_inputs_take_columns_of_folders_as_they_take_cells(tmp_path, names, type_, values, dtype):
    path = _in_folders(tmp_path / "folders", names, "parquet")
    rows = [unquote(name) for name in names if name not in ("", NULL)]
    table = write_table(tmp_path / "a.csv", pa.table({"a b": rows}))
    model = graph(y=(dtype, (-1,)))

    def results(path):
        try:
            return [values["a b"] for *_, values, _ in read(opened(path, model, {"y": "a b"}))[0]]
        except GraphError as error:
            return error.code

    assert results(path) == (results(table) if rows else [])


def test_a_column_of_folders_that_a_text_input_takes_is_kept_as_text(tmp_path):
    path = _in_folders(tmp_path, ["2024", "7"], "parquet")
    model = graph(y=("string", (-1,)))
    good, _ = read(opened(path, model, {"y": "a b"}, keep=["a b"]))
    assert [(row["a b"], kept["a b"]) for *_, row, kept in good] == [
        (b"2024", "2024"), (b"7", "7")
    ]  # fmt: skip
    numbers = graph(y=("string", (-1,)), z=("int64", (-1,)))
    with raises(GraphError, "column-type", name="a b"):
        opened(path, numbers, {"y": "a b", "z": "a b"})


def _made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder
