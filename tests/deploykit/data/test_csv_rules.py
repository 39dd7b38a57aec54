"""The rule of CSV: every command that reads it finds the same header, rows and bad rows."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

import deploykit as api
from deploykit.batch_inference.reading.partitions import cut_parts
from deploykit.batch_inference.reading.readers import reader_for
from deploykit.batch_inference.tables.table_data import ColumnChoice, open_table, takes_columns
from deploykit.data.data import Data, open_data
from deploykit.data.preprocessing import Preprocessing, with_header
from deploykit.data.reading import records
from deploykit.data.samples import open_feeds, open_samples
from deploykit.records.conversion import problem_text
from deploykit.records.lines import LineNumbers
from deploykit.records.open_source import open_source
from deploykit.records.table_values import text_numbers
from deploykit.storage import csv_files
from deploykit.storage.arrays import load_data
from deploykit.storage.tables import CsvTable
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.batch_inference.tables.made_up_tables import graph
from tests.support import Containing, raises

KINDS = {
    r"expected a number|is null": "number",
    "beyond float64": "range",
    r"has \d+ cells?, expected": "count",
    "UTF-8": "text",
    "double quote": "quotes",
    "no label": "label",
}
"""What a reason says, and the kind of a bad row."""


@dataclass
class Outcome:
    """The cells of the rows, as text, and the kind of each bad row by its line."""

    rows: list[str] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    refusal: str = ""

    def add(self, *cells: float) -> None:
        """Add a row."""
        self.rows.append(" ".join(f"{cell:g}" for cell in cells))

    def spoil(self, line: int, reason: str) -> None:
        """Add a bad row."""
        self.bad[line] = next(kind for text, kind in KINDS.items() if re.search(text, reason))


def converted(path: str) -> Outcome:
    """Read as `records convert` does."""
    result, lines = Outcome(), LineNumbers()
    source = open_source([path], kind="csv")
    for part in source.parts():
        batch = source.read(part)
        for item in batch.rows():
            result.add(*item["x"], item["label"])
        for problem in batch.problems:
            result.spoil(lines.at(problem.file, problem.offset or 0), problem.reason)
    return result


def fed(path: str) -> Outcome:
    """Read as commands with --data do, which end with the first bad row."""
    data, result = open_data(path), Outcome()
    try:
        for _, item in records(data, ("x", "label")):
            result.add(*item["x"], item["label"])
    except GraphError as error:
        return first_bad(result, error)
    return result


def first_bad(result: Outcome, error: GraphError) -> Outcome:
    """Return what a reader found before it ended with an error of a row."""
    if error.code != "csv-row":
        raise error
    result.spoil(error.fields["number"], error.fields["reason"])
    return result


def inferred(path: str) -> Outcome:
    """Read as `infer` does without --columns."""
    return read_parts(open_data(path, may_be_empty=True), ["x", "label"], lambda row: row)


def by_column(path: str) -> Outcome:
    """Read as `infer --columns` does."""
    names = csv_files.layout_of(path).names
    inputs = [f"input{n}" for n in range(len(names))]
    choice = ColumnChoice(dict(zip(inputs, names, strict=True)))
    model = graph(**dict.fromkeys(inputs, ("float32", (-1,))))
    data, _ = open_table(path, model, Preprocessing(), choice)
    with open(path, "rb") as file:
        found = csv_files.split(file.read().removeprefix(b"\xef\xbb\xbf"))[bool(data.header) :]
    return read_parts(data, names, lambda row: found[row].line)


def read_parts(data: Data, names, line_of: Callable[[int], int]) -> Outcome:
    """Read the parts of a run of `infer`, with small batches."""
    result, read = Outcome(), reader_for(data)
    for part in cut_parts(data, None):
        seen = 0
        for batch in read(part, 2):
            for place in range(len(batch.rows)):
                values = [batch.arrays[name][place] for name in names if name in batch.arrays]
                result.add(*(cell for value in values for cell in value.reshape(-1)))
            for item in batch.bad:
                result.spoil(line_of(item.row), item.reason)
            seen += len(batch.rows) + len(batch.bad)
        assert seen == part.rows
    return result


def loaded(path: str) -> Outcome:
    """Read as commands with --data do where the columns are named as inputs."""
    result = Outcome()
    csv_files.layout_of(path)  # which refuses a file whose first row is damaged
    try:
        table = load_data(path)
    except GraphError as error:
        return first_bad(result, error)
    assert isinstance(table, CsvTable)
    for row in range(len(next(iter(table.values())))):
        cells = [array[row] for array in table.values()]
        if wrong := [cell for cell in cells if isinstance(cell, bytes)]:
            try:
                csv_files.floats([item.decode() for item in wrong], [0])
            except ValueError as error:
                result.spoil(table.lines[row], str(error))  # as it is reported where it is used
                return result
        result.add(*map(float, cells))
    return result


READERS: list[Callable[[str], Outcome]] = [converted, fed, inferred, by_column, loaded]
ALL = ["1 2 0", "3 4 1"]
LAST = ["3 4 1"]
FIRST = ["1 2 0"]
BOM = b"\xef\xbb\xbf"

RULES: list[tuple[str, bytes, list[str], dict[int, str] | str]] = [
    ("no header", b"1,2,0\n3,4,1\n", ALL, {}),
    ("header", b"a,b,label\n1,2,0\n3,4,1\n", ALL, {}),
    ("header in blanks", b" a ,b, label\n1,2,0\n3,4,1\n", ALL, {}),
    ("header in quotes", b'"a","b, or c",label\n1,2,0\n3,4,1\n', ALL, {}),
    ("header over two lines", b'"a\nb",b,label\n1,2,0\n3,4,1\n', ALL, {}),
    ("header of numbers", b"0,1,2\n1,2,0\n3,4,1\n", ["0 1 2", *ALL], {}),
    ("header with a number", b"a,b,7\n1,2,0\n3,4,1\n", ALL, {1: "number"}),
    ("header with an empty cell", b",b,label\n1,2,0\n3,4,1\n", ALL, {1: "number"}),
    ("header alone", b"a,b,label\n", [], {}),
    ("first row: no number", b",2,0\n3,4,1\n", LAST, {1: "number"}),
    ("first row: underscore", b"1_000,2,0\n3,4,1\n", LAST, {1: "number"}),
    ("first row: hexadecimal", b"0x10,2,0\n3,4,1\n", LAST, {1: "number"}),
    ("first row: minus sign", "\u22121,2,0\n3,4,1\n".encode(), LAST, {1: "number"}),
    ("first row: beyond float64", b"1e400,2,0\n3,4,1\n", LAST, {1: "range"}),
    ("last line without an end", b"1,2,0\n3,4,1", ALL, {}),
    ("CRLF", b"a,b,label\r\n1,2,0\r\n3,4,1\r\n", ALL, {}),
    ("CR", b"a,b,label\r1,2,0\r3,4,1\r", ALL, {}),
    ("CR without an end", b"1,2,0\r3,4,1", ALL, {}),
    ("several line ends", b"1,2,0\r\n3,4,1\r5,6,2\n", [*ALL, "5 6 2"], {}),
    ("CR: the line of a bad row", b"1,2,0\r\rx,2,0\r3,4,1\r", ALL, {3: "number"}),
    ("byte-order mark", BOM + b"1,2,0\n3,4,1\n", ALL, {}),
    ("byte-order mark and header", BOM + b"a,b,label\n1,2,0\n3,4,1\n", ALL, {}),
    ("blank lines", b"\n1,2,0\n\n\n3,4,1\n\n", ALL, {}),
    ("blank lines and header", b"\n\na,b,label\n\n1,2,0\nx,2,0\n", FIRST, {6: "number"}),
    ("blank lines, CRLF", b"\r\n1,2,0\r\n\r\n3,4,1\r\n\r\n", ALL, {}),
    ("line of blanks", b"1,2,0\n   \n3,4,1\n", ALL, {2: "count"}),
    ("quoted numbers", b'"1","2",0\n3,"4","1"\n', ALL, {}),
    ("quotes over two lines", b'"1\n",2,0\nx,2,0\n"3\r\n",4,1\n', ALL, {3: "number"}),
    ("quoted separator", b'"1,5",2,0\n3,4,1\n', LAST, {1: "number"}),
    ("doubled quotes", b'"1""",2,0\n3,4,1\n', LAST, {1: "number"}),
    ("blank before a quote", b'1,2,0\n3, "4",1\n', FIRST, {2: "quotes"}),
    ("text after a quote", b'1,2,0\n"1"2,2,0\n3,4,1\n', ALL, {2: "quotes"}),
    ("quotes inside of a cell", b'1,2,0\n1""2,2,0\n3,4,1\n', ALL, {2: "quotes"}),
    ("quote that is never closed", b'1,2,0\n3,4",1\n', [], "csv-quote-open"),
    ("semicolons", b"1;2;0\n3;4;1\n", ALL, {}),
    ("semicolons and header", b"a;b;label\n1;2;0\n3;4;1\n", ALL, {}),
    ("tabs", b"a\tb\tlabel\n1\t2\t0\n3\t4\t1\n", ALL, {}),
    ("bars", b"1|2|0\n3|4|1\n", ALL, {}),
    ("semicolons in quotes", b'"a;b";b;label\n1;2;0\n3;4;1\n', ALL, {}),
    ("too few cells", b"1,2,0\n3,4\n3,4,1\n", ALL, {2: "count"}),
    ("too many cells", b"1,2,0\n3,4,1,\n3,4,1\n", ALL, {2: "count"}),
    ("empty cell", b"1,2,0\n,4,1\n3,4,1\n", ALL, {2: "number"}),
    ("cell of blanks", b"1,2,0\n ,4,1\n3,4,1\n", ALL, {2: "number"}),
    ("blanks around numbers", b" 1 ,2, 0\n3,\t4,1 \n", ALL, {}),
    ("signs and exponents", b"+1,.2e1,0\n30E-1,4.,1\n", ALL, {}),
    ("infinite", b"nan,-inf,0\nNaN,Infinity,1\n", ["nan -inf 0", "nan inf 1"], {}),
    ("nan with a text", b"1,2,0\nnan(1),2,0\n3,4,1\n", ALL, {2: "number"}),
    ("text", b"1,2,0\ntwo,2,0\n3,4,1\n", ALL, {2: "number"}),
    ("word", b"1,2,0\ntrue,2,0\n3,4,1\n", ALL, {2: "number"}),
    ("underscore", b"1,2,0\n1_0,2,0\n3,4,1\n", ALL, {2: "number"}),
    ("hexadecimal", b"1,2,0\n0x1p3,2,0\n3,4,1\n", ALL, {2: "number"}),
    ("two numbers in a cell", b"1,2,0\n1 2,2,0\n3,4,1\n", ALL, {2: "number"}),
    ("Arabic digits", "1,2,0\n\u0661,2,0\n3,4,1\n".encode(), ALL, {2: "number"}),
    ("wide digits", "1,2,0\n\uff11,2,0\n3,4,1\n".encode(), ALL, {2: "number"}),
    ("minus sign", "1,2,0\n\u22121,2,0\n3,4,1\n".encode(), ALL, {2: "number"}),
    ("beyond float64", b"1,2,0\n-1e400,2,0\n3,4,1\n", ALL, {2: "range"}),
    ("Latin-1", b"1,2,0\n\xe9,2,0\n3,4,1\n", ALL, {2: "text"}),
    ("zero byte", b"1,2,0\n1\0,2,0\n3,4,1\n", ALL, {2: "text"}),
    ("first row in Latin-1", b"\xe9,2,0\n3,4,1\n", [], "csv-row"),
    ("UTF-16", "1,2,0\n".encode("utf-16"), [], "csv-row"),
    ("empty file", b"", [], "csv-empty"),
    ("blank file", b"\n\n\r\n", [], "csv-empty"),
]  # fmt: skip


def outcome(read: Callable[[str], Outcome], path: str) -> Outcome:
    """Return what a reader finds, or the code of its refusal."""
    try:
        return read(path)
    except GraphError as error:
        return Outcome(refusal=error.code)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("content", "rows", "bad"), [rule[1:] for rule in RULES],
                         ids=[rule[0] for rule in RULES])  # fmt: skip
def test_every_reader_follows_the_rule(tmp_path, content, rows, bad, read):
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    found = outcome(read, str(path))
    if isinstance(bad, str):
        assert found.refusal == bad
        return
    if not rows and read is converted:
        assert found.refusal == "nothing-to-convert"
        return
    if read in (fed, loaded) and bad:  # they end with the first bad row
        assert found.bad == dict([next(iter(bad.items()))])
        assert found.rows == rows[: len(found.rows)]
        return
    assert (found.rows, found.bad) == (rows, bad)


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ("1,2,cat", ["column 2", "'cat'", "deploykit records"]),
        ("1,2, ", ["no label", "column 2"]),
        ("1,two,cat", ["column 1", "'two'"]),
    ],
)
def test_only_a_bad_label_is_explained_as_one(tmp_path, row, parts):
    path = tmp_path / "a.csv"
    path.write_text(f"1,2,0\n{row}\n")
    with raises(GraphError, "csv-row", number=2, reason=Containing(*parts)) as found:
        list(records(open_data(str(path)), ("x", "label")))
    assert ("deploykit records" in str(found.value)) == (parts[-1] == "deploykit records")


def test_a_layout_is_said_in_words(tmp_path):
    path = tmp_path / "a.csv"
    for content, said in (
        ("a,b,label\n1,2,0\n", "header: a, b, label"),
        ("1,2,0\n", "no header"),
        ("a;b\n1;2\n", "header: a, b; columns are separated by semicolons"),
        ("1\t2\n", "no header; columns are separated by tabs"),
    ):
        path.write_text(content)
        assert str(csv_files.layout_of(path)) == said


@pytest.mark.parametrize(("rule", "count", "names"), [
    ("yes", 1, ("0", "1", "2")), ("no", 2, ()), ("auto", 2, ()),
])  # fmt: skip
def test_the_header_can_be_stated(tmp_path, rule, count, names):
    path = tmp_path / "a.csv"
    path.write_text("0,1,2\n3,4,1\n")
    layout = csv_files.layout_of(path, rule)
    assert layout.header == names
    assert len([*csv_files.rows_of(path.read_bytes(), layout, path)]) == count


@pytest.mark.sampled
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("block", [7, 8, 9, 64])
@pytest.mark.parametrize("empty_lines", [0, 1, 9])
def test_records_are_whole_wherever_a_block_or_a_part_ends(
    tmp_path, monkeypatch, block, end, empty_lines
):
    monkeypatch.setattr(csv_files, "_BLOCK", block)
    monkeypatch.setattr("deploykit.records.lines.PART", block)
    monkeypatch.setattr("deploykit.storage.record_offsets._BLOCK", block)
    path = tmp_path / "a.csv"
    rows = [f"{n},{n + 1},{n % 2}" for n in range(40)]
    rows[20] = '"20\n\n\r","21",0'
    rows[30] = ""
    rows += [""] * empty_lines
    path.write_bytes(BOM + end.join(row.encode() for row in rows))
    expected = [f"{n} {n + 1} {n % 2}" for n in range(40) if n != 30]
    for read in READERS:
        assert read(str(path)).rows == expected


@pytest.mark.parametrize(("rule", "rows"), [("auto", 3), ("yes", 2), ("no", 3)])
def test_a_header_of_numbers_is_stated_for_every_reader(tmp_path, rule, rows):
    path = tmp_path / "a.csv"
    path.write_text("0,1,2\n1,2,0\n3,4,1\n")
    model = graph(x=("float32", (-1, 2)))
    source = open_source([path], kind="csv", header=rule)
    assert sum(len([*source.read(part).rows()]) for part in source.parts()) == rows
    assert open_samples(path, model, with_header(None, rule)).count == rows
    declared = with_header(None, rule) or Preprocessing()
    data = open_data(str(path), None, model, rule=declared.rule)
    assert sum(part.rows for part in cut_parts(data, None)) == rows
    choice = ColumnChoice({"x": "0,1"})
    assert sum(part.rows for part in cut_parts(open_table(str(path), model, declared, choice)[0],
                                               None)) == rows  # fmt: skip


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("a,b\n1,2\n3,4\n", None),
        ("1,2\n3,4\n", None),
        ("a,b,c\n1,2,0\n3,4,1\n", [0, 1]),
        ("1,2,0\n3,4,1\n", [0, 1]),
        ("label,a,b\n0,1,2\n1,3,4\n", [0, 1]),
    ],
)
def test_columns_are_the_vector_of_the_only_input(tmp_path, content, labels):
    path = tmp_path / "a.csv"
    path.write_text(content)
    model = graph(x=("float32", (-1, 2)))
    found = open_samples(path, model)
    assert found.arrays["x"].tolist() == [[1, 2], [3, 4]]
    assert labels == (None if found.labels is None else found.labels.tolist())
    assert not takes_columns(str(path), model, Preprocessing(), ColumnChoice())
    data = open_data(str(path), None, model, may_be_empty=True)
    assert read_parts(data, ["x"], lambda row: row).rows == ["1 2", "3 4"]


def test_the_first_rows_are_read_once_to_choose_a_reader(tmp_path, monkeypatch):
    looked = []
    layout_of = csv_files.layout_of
    monkeypatch.setattr(
        csv_files, "layout_of", lambda *given: looked.append(1) or layout_of(*given)
    )
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    assert takes_columns(str(path), graph(x=("float32", (-1, 3))), Preprocessing(), ColumnChoice())
    assert len(looked) == 1


def test_columns_are_joined_to_a_vector(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,a,b,"c, d"\nr1,1,2,3\nr2,4,x,6\nr3,7,8,9\n')
    model = graph(x=("float32", (-1, 2)), y=("float32", (-1, 1)))
    choice = ColumnChoice({"x": "b,a", "y": "c, d"})
    data, steps = open_table(str(path), model, Preprocessing(), choice)
    assert steps.inputs["x"].feature == "b,a"
    found = read_parts(data, ["b,a", "c, d"], lambda row: row)
    assert (found.rows, found.bad) == (["2 1 3", "8 7 9"], {1: "number"})
    for columns, code in (("a", "column-type"), ("a,b,id", "column-type"), ("a,z", "unknown-name")):
        with pytest.raises(GraphError) as caught:
            open_table(str(path), model, Preprocessing(), ColumnChoice({"x": columns, "y": "a"}))
        assert caught.value.code == code
    with pytest.raises(GraphError) as caught:
        open_table(str(path), graph(z=("float32", (-1, 2))), Preprocessing(), ColumnChoice())
    assert "--columns z=a,b" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "takes", "advice"),
    [
        ("id,a,b,name\n1,2,3,r\n", ("float32", (-1, 2)), "x=a,b"),
        ("rowId,user_id,a,flag,label,b,\n1,2,3,true,4,5,6\n", ("float32", (-1, 2)), "x=a,b"),
        ("valid,grid,c,d\n1,2,3,r\n", ("float32", (-1, 2)), "x=valid,grid"),
        ("id,price,size,c\n1,2.5,3,r\n", ("float32", (-1,)), "x=price"),
        ("id,price,size,c\n1,2.5,3,r\n", ("int32", (-1, 1)), "x=size"),
        ("id,a b,c\n1,2,3\n", ("float32", (-1,)), "'x=a b'"),
        ("id,n,a,b\nr1,1,r,s\n", ("string", (-1,)), "x=a"),
        ("id,a,name\n1,2,r\n", ("float32", (-1, 2)), "x=COLUMN"),
    ],
)
def test_advised_columns_fit_and_can_be_read(tmp_path, content, takes, advice):
    path = tmp_path / "a.csv"
    path.write_text(content)
    model, declared = graph(x=takes), with_header(None, "yes")
    with raises(GraphError, "column-missing", columns=advice):
        open_table(str(path), model, declared, ColumnChoice())
    if "COLUMN" not in advice:
        name, _, columns = shlex.split(advice)[0].partition("=")
        data, _ = open_table(str(path), model, declared, ColumnChoice({name: columns}))
        (part,) = cut_parts(data, None)
        (batch,) = reader_for(data)(part, 2)
        assert (len(batch.rows), batch.bad) == (1, ())


@pytest.mark.parametrize(
    ("content", "got", "columns", "unused"),
    [
        ("id,a,b,c,label\n7,1,2,3,0\n", 4, "x=a,b,c", ["id", "label"]),
        ("name,a,b,c,label\nr1,1,2,3,0\n", 4, "x=a,b,c", ["name", "label"]),
        ("label,a,b,c,d\n0,1,2,3,4\n", 4, "x=a,b,c", ["label", "d"]),
        ("r1,1,2,3,0\n", 4, "x=1,2,3", ["0", "4"]),
    ],
)
def test_more_columns_than_a_vector_has_come_with_advice(tmp_path, content, got, columns, unused):
    path = tmp_path / "a.csv"
    path.write_text(content)
    model, more = graph(x=("float32", (-1, 3))), {"input": "x", "expected": 3}
    for act in (
        lambda: open_samples(path, model),
        lambda: open_feeds(path, model),
        lambda: open_data(str(path), width=3, input_name="x"),
        lambda: api.benchmark(model, data=path),
    ):
        with raises(
            GraphError, "csv-vector-width", got=got, columns=columns, unused=unused, **more
        ):
            act()
    found = open_samples(path, model, with_header(None, "auto", {"x": columns[2:]}))
    assert found.arrays["x"].tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("content", ["id,a,b,label\n7,1,2,0\n", "1,2\n"])
def test_without_columns_that_fit_a_vector_there_is_no_advice(tmp_path, content):
    (tmp_path / "a.csv").write_text(content)
    with raises(GraphError, "does-not-fit", expected="[?, 4]"):
        open_samples(tmp_path / "a.csv", graph(x=("float32", (-1, 4))))


def test_a_label_between_the_columns_of_a_vector_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,label,b\n1,0,2\n3,1,4\n")
    model = graph(x=("float32", (-1, 2)))
    with raises(GraphError, "csv-label-between", advice="with --columns x=a,b"):
        open_data(str(path), None, model)
    with raises(GraphError, "csv-label-between", advice=Containing("--preprocess")):
        open_data(str(path), width=2)
    assert takes_columns(str(path), model, Preprocessing(), ColumnChoice())
    with raises(GraphError, "column-missing", columns="x=a,b"):
        open_table(str(path), model, Preprocessing(), ColumnChoice())


def test_a_later_part_of_a_table_may_lack_the_header_that_names_its_label(tmp_path):
    paths = [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")]
    for path, text in zip(paths, ("x,y,z\n1,2,3\n", "3,4,9\n", "x,y,z\n5,6,7\n"), strict=True):
        path.write_text(text)
    source = open_source(paths, kind="csv", label="z")
    found = [item for part in source.parts() for item in source.read(part).rows()]
    assert [item["label"] for item in found] == [3, 9, 7]


def test_a_bad_first_row_does_not_decide_the_type_of_a_label(tmp_path):
    for file, header in (("a.csv", ",b,label"), ("b.csv", "a,7,label")):
        (tmp_path / file).write_text(f"{header}\n1,2,0\n3,4,1\n")
    source = open_source(sorted(tmp_path.iterdir()), kind="csv")
    assert (source.features["label"].dtype, source.classes) == ("int64", ())
    (tmp_path / "c.csv").write_text(",b,label\n1,2,cat\n")
    assert open_source([tmp_path / "c.csv"], kind="csv").classes == ("cat",)


def test_headers_that_differ_late_are_told_apart(tmp_path):
    names = [f"column{number}" for number in range(9)]
    for file, last in (("a.csv", "z"), ("b.csv", "y")):
        (tmp_path / file).write_text(",".join([*names, last, "other"]) + "\n" + "1," * 10 + "2\n")
    with raises(GraphError, "csv-files-differ") as caught:
        open_data(str(tmp_path))
    assert caught.value.fields["got"] != caught.value.fields["expected"]


@pytest.mark.sampled
def test_a_long_record_is_split_a_few_times(tmp_path, monkeypatch):
    """Not once for each block that it takes."""
    splits = []
    split = csv_files.split
    monkeypatch.setattr(csv_files, "split", lambda *given: splits.append(1) or split(*given))
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,"' + b"x\n" * (1 << 21) + b'"\n3,4\n' + b"\n" * (1 << 20))
    assert [len(record.text) for record in csv_files.records(path)] == [3, 4 + (1 << 22), 3]
    csv_files.layout_of(path)
    assert len(splits) < 20


@pytest.mark.parametrize("content", [",a,b\n0,1,2\n1,3,4\n", ",a,b,c\n0,1,2,0\n1,3,4,1\n"])
def test_an_index_without_a_name_is_no_value_of_a_vector(tmp_path, content):
    path = tmp_path / "a.csv"
    path.write_text(content)
    model = graph(x=("float32", (-1, 2)))
    assert csv_files.layout_of(path).may_have_header
    assert open_samples(path, model, with_header(None, "yes")).arrays["x"].tolist() == [
        [1, 2],
        [3, 4],
    ]
    declared = with_header(None, "yes")
    assert not takes_columns(str(path), model, declared, ColumnChoice())
    data = open_data(str(path), None, model, rule="yes")
    assert read_parts(data, ["x"], lambda row: row).rows == ["1 2", "3 4"]


def test_lone_returns_end_no_lines_of_tab_separated_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"a\rb\t1\nc\rd\t2\nno label\n")
    source = open_source([str(path)], kind="text")
    (batch,) = map(source.read, source.parts())
    assert len([*batch.rows()]) == 2
    assert problem_text(batch.problems[0], LineNumbers()) == Containing("line 3:")


def test_only_text_of_an_infinite_number_may_be_one():
    layout = csv_files.CsvLayout((), 2)
    found = layout.numbers(b"1,inf\n-Infinity,nan\n")
    assert found is not None
    assert np.array_equal(found, [[1, np.inf], [-np.inf, np.nan]], equal_nan=True)
    for text in (b"1,1e999\n", b"inf,1e999\n", b"1,2\n-1e999,inf\n"):
        assert layout.numbers(text) is None
    assert layout.numbers(b"info,1e999\n", {0: len}) is None


def test_only_odd_cells_are_read_one_by_one(monkeypatch):
    checked = []
    monkeypatch.setattr(csv_files, "number", lambda cell, own=csv_files.number: (
        checked.append(cell), own(cell))[1])  # fmt: skip
    cells = [b"1", None, b"", b" nan ", b"-INF", b"1e999", b"nan(1)", b"2.5"]
    column, bad = text_numbers("x", pa.array(cells, pa.binary()), "float32")
    assert checked == ["1e999", "nan(1)"]
    assert [*bad] == [5, 6]
    assert bad[5] == Containing("'1e999'", "beyond float64")
    assert column.null_count == 2
    found = column.fill_null(7).to_numpy()
    assert np.array_equal(found, [1, 7, 7, np.nan, -np.inf, 0, 0, 2.5], equal_nan=True)
